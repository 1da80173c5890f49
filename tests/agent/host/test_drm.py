import pytest

from chipwatch.host.drm import cards
from chipwatch.host.drm_clients import fdinfo, size

AMD, INTEL = "0x1002", "0x8086"


@pytest.fixture
def sys(tmp_path):
    for name, vendor in (("card10", AMD), ("card2", AMD), ("card2-DP-1", AMD), ("card1", INTEL), ("renderD128", AMD)):
        device = tmp_path / "class/drm" / name / "device"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
    return tmp_path


def test_the_cards_of_a_vendor_come_in_the_kernels_order_and_its_connectors_do_not(sys):
    assert [index for index, _ in cards(sys, AMD)] == ["2", "10"]
    assert [(index, folder.name) for index, folder in cards(sys, INTEL)] == [("1", "card1")]


@pytest.mark.parametrize(("words", "value"), [("12", 12), ("12 KiB", 12 << 10), ("3 MiB", 3 << 20), ("1 GiB", 1 << 30)])
def test_sizes_have_units(words, value):
    assert size(words) == value


@pytest.mark.parametrize("words", ["", "x", "1 kB", "N/A", "-1", "1_0 KiB", "18014398509481980 KiB", f"{2**64 - 1}"])
def test_a_text_that_is_not_a_size_is_an_error(words):
    with pytest.raises((ValueError, KeyError)):
        size(words)


def test_only_files_of_cards_are_read_and_ended_processes_are_skipped(tmp_path):
    folder = tmp_path / "7"
    for name, target in (("0", "/dev/null"), ("5", "/dev/dri/renderD128"), ("6", "/dev/dri/card0")):
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "fd" / name).symlink_to(target)
    (folder / "fdinfo").mkdir()
    (folder / "fdinfo/5").write_text("pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t9\n")
    assert list(fdinfo(tmp_path, [7, 8])) == [(7, {"pos": "0", "drm-driver": "amdgpu", "drm-client-id": "9"})]
