"""DMI tables of machines in folders, and doubles of metadata services."""

import os

import pytest
from tests.doubles.gce import Gce
from tests.doubles.imds import Imds

STEERING = (
    "AWS_", "ECS_", "GCE_", "NO_GCE_CHECK", "KUBERNETES_", "K8S_", "CLUSTER_", "SLURM_", "HTTP_PROXY", "http_proxy", "HOSTNAME",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_platform_from_outside(monkeypatch):
    for name in [name for name in os.environ if name.startswith(STEERING)]:
        monkeypatch.delenv(name)


@pytest.fixture
def imds():
    with Imds() as double:
        yield double


@pytest.fixture
def gce():
    with Gce() as double:
        yield double


@pytest.fixture
def beside():
    """Return the environment in which a double has the address that AWS and Google share."""

    def build(double):
        return {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": double.url,
            "GCE_METADATA_HOST": double.url.removeprefix("http://"),
        }

    return build


@pytest.fixture
def machine(tmp_path):
    """Return a /sys with these DMI tables."""

    def build(**dmi):
        sys = tmp_path / "sys"
        folder = sys / "class" / "dmi" / "id"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in dmi.items():
            (folder / name).write_text(f"{text}\n")
        return sys

    return build


@pytest.fixture
def nitro(machine):
    """An EC2 instance on Nitro."""
    return machine(sys_vendor="Amazon EC2", board_asset_tag="i-1234567890abcdef0", product_name="trn1.32xlarge")


@pytest.fixture
def xen(machine):
    """An EC2 instance on Xen, whose DMI tables lack id and type."""
    sys = machine(sys_vendor="Xen", product_name="HVM domU", bios_version="4.11.amazon")
    (sys / "hypervisor").mkdir()
    (sys / "hypervisor" / "uuid").write_text("ec2e1916-9099-7caf-fd21-012345abcdef\n")
    return sys


@pytest.fixture
def google(machine):
    """A Compute Engine instance."""
    return machine(sys_vendor="Google", product_name="Google Compute Engine", board_asset_tag="E3B0C442-98FC-1C14")


@pytest.fixture
def elsewhere(machine):
    """A machine of neither EC2 nor Google."""
    return machine(sys_vendor="QEMU", product_name="Standard PC (Q35 + ICH9, 2009)")
