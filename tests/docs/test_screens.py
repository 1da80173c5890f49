"""docs/troubleshooting.md shows the agent's output; numbers and addresses may differ."""

import ctypes.util
import re
from pathlib import Path

import pytest
from tests.doubles.cloudwatch import DENIED, CloudwatchDouble, environment
from tests.doubles.imds import Imds

ROOT = Path(__file__).parents[2]
FAULTS = (ROOT / "docs/troubleshooting.md").read_text()
QUICK = ("--once", "--interval", "0.1", "--collector")
SENDING = (*QUICK, "cpu,memory", "--sink", "cloudwatch", "--region", "us-east-1")


def pattern(text):
    """Return the words of a text, where a number is N, an address URL, and the size of a unit of bytes left out."""
    text = re.sub(r"\b[KMGT]iB\b", "iB", re.sub(r"https?://[\w.:]+/?", "URL", text))
    return re.sub(r"[\d.]+", "N", text).split()


def shown(heading):
    """Return the message of the agent below a heading of the page."""
    section = FAULTS[FAULTS.index(f"\n## {heading}\n") :]
    return re.search(r"^ *(chipwatch: .*)$", section, re.MULTILINE)[1]


def holds(text, message):
    return any(pattern(message) == pattern(line[line.find("chipwatch: ") :]) for line in text.splitlines())


@pytest.fixture
def proc(tmp_path):
    """A /proc of a machine with NVIDIA's driver."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    return tmp_path / "proc"


def test_a_service_that_cannot_be_reached(agent):
    with CloudwatchDouble(listen=False) as cloud:
        done = agent.run(*SENDING, "--endpoint-url", cloud.url, env=environment())
    assert holds(done.stderr, shown("Nothing arrives"))


def test_a_permission_that_is_missing(agent):
    with CloudwatchDouble() as cloud:
        cloud.weather = lambda: DENIED
        done = agent.run(*SENDING, "--endpoint-url", cloud.url, env=environment())
    assert holds(done.stderr, shown("The permission is missing"))


def test_credentials_that_are_missing(agent):
    env = environment(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    done = agent.run(*SENDING, "--endpoint-url", "http://127.0.0.1:9", env=env)
    assert holds(done.stderr, shown("No credentials"))


def test_a_hop_limit_that_is_too_low(agent, tmp_path):
    hardware = {"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge", "board_asset_tag": "i-0abc1234567890def"}
    (tmp_path / "class/dmi/id").mkdir(parents=True)
    for name, value in hardware.items():
        (tmp_path / "class/dmi/id" / name).write_text(f"{value}\n")
    service = Imds()
    service.hops = "hang"
    env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url}
    done = agent.run(*QUICK, "memory", "--sys", tmp_path, "--common-dims", "instance_id,ami_id", env=env)
    service.close()
    assert holds(done.stderr, shown("The hop limit"))


def test_a_dimension_that_is_misspelt(agent):
    done = agent.run(*QUICK, "memory", "--common-dims", "instanceid")
    assert holds(done.stderr, shown("Wrong dimensions"))


@pytest.mark.skipif(bool(ctypes.util.find_library("nvidia-ml")), reason="NVIDIA's library is here")
def test_a_driver_whose_library_is_missing(agent, proc):
    done = agent.run(*QUICK, "nvidia", env={"CHIPWATCH_COLLECTORS__NVIDIA__PROC": proc})
    assert holds(done.stderr, shown("No GPU is seen"))
