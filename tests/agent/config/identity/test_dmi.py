import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.config.identity.dmi import PATTERNS, DmiTables


def test_nitro_has_the_instance_id_and_the_type(nitro):
    hardware = DmiTables(nitro, {})
    assert hardware.is_ec2
    answer = hardware.ask(["instance_id"])
    assert {word: found.value for word, found in answer.words.items()} == {
        "instance_id": "i-1234567890abcdef0",
        "instance_type": "trn1.32xlarge",
    }
    assert answer.words["instance_id"].origin == str(nitro / "class/dmi/id/board_asset_tag")
    assert answer.trouble == ""


def test_xen_is_ec2_without_id_and_type(xen):
    hardware = DmiTables(xen, {})
    assert hardware.is_ec2
    assert hardware.ask(["instance_id"]).words == {}


@pytest.mark.parametrize(
    "uuid", ["EC2E1916-9099-7CAF-FD21-012345ABCDEF", "45E12AEC-DCD1-B213-94ED-012345ABCDEF"], ids=["big", "little"]
)
def test_xen_is_detected_by_its_uuid_in_either_byte_order(machine, uuid):
    assert DmiTables(machine(sys_vendor="Xen", product_uuid=uuid), {}).is_ec2


def test_a_random_uuid_that_begins_with_ec2_is_not_ec2(machine):
    assert not DmiTables(machine(sys_vendor="QEMU", product_uuid="ec2e1916-9099-7caf-fd21-012345abcdef"), {}).is_ec2


def test_xen_without_signs_of_amazon_is_not_ec2(machine):
    assert not DmiTables(machine(sys_vendor="Xen", bios_version="4.17", product_uuid="0" * 36), {}).is_ec2


def test_the_message_of_another_machine_names_its_vendor(elsewhere):
    answer = DmiTables(elsewhere, {}).ask(["instance_id"])
    assert answer == ({}, f"{elsewhere}/class/dmi/id/sys_vendor says QEMU, not Amazon EC2", False)


def test_a_machine_without_dmi_is_not_ec2(tmp_path):
    hardware = DmiTables(tmp_path, {})
    assert not hardware.is_ec2
    assert hardware.found == {}
    assert "says nothing" in hardware.why


def test_a_fargate_task_is_not_its_hosts_instance(nitro):
    hardware = DmiTables(nitro, {"AWS_EXECUTION_ENV": "AWS_ECS_FARGATE"})
    assert not hardware.is_ec2
    assert hardware.found == {}
    assert hardware.why == "a Fargate task does not own an instance"


@pytest.mark.parametrize("tag", ["", "Not Specified", "i-", "i-123", "I-1234567890ABCDEF0", "i-1234567890abcdef0 x"])
def test_an_asset_tag_that_is_not_an_instance_id_is_ignored(machine, tag):
    sys = machine(sys_vendor="Amazon EC2", board_asset_tag=tag, product_name="HVM domU")
    assert DmiTables(sys, {}).found == {}


@given(st.text())
def test_only_instance_ids_match_the_pattern(text):
    assert bool(PATTERNS["instance_id"].fullmatch(text)) == (
        text[:2] == "i-" and 8 <= len(text) - 2 <= 17 and set(text[2:]) <= set("0123456789abcdef")
    )


def test_google_is_detected_by_the_product_name(google, machine):
    hardware = DmiTables(google, {})
    assert (hardware.is_google, hardware.is_ec2, hardware.is_hidden, hardware.found) == (True, False, False, {})


def test_gvisor_shows_only_the_product_name(machine):
    hardware = DmiTables(machine(product_name="Google Compute Engine"), {})
    assert (hardware.is_google, hardware.is_hidden) == (True, False)


@pytest.mark.parametrize("product", ["", "Standard PC (Q35 + ICH9, 2009)", "Not Google", "trn1.32xlarge", "google"])
def test_only_a_product_name_that_begins_with_google_is_google(machine, product):
    assert not DmiTables(machine(sys_vendor="Google", product_name=product), {}).is_google


def test_empty_tables_count_as_hidden(tmp_path, xen):
    assert DmiTables(tmp_path / "none", {}).is_hidden
    assert not DmiTables(xen, {}).is_hidden
