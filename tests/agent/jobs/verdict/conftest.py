"""A machine with a fake driver, a log of the kernel and trees of files, for the real command."""

import time

import pytest
from tests.doubles.kmsg import log as kmsg
from tests.doubles.nvml import driver as nvml
from tests.forked import Forked

LOADED = [f"chipwatch.{name}" for name in ("config.instances", "engine.clock", "host.owners", "config.identity.resolver",
          "collectors.nvidia", "collectors.kernel", "collectors.rdma", "collectors.amd")]  # fmt: skip
"""Modules without `jobs.verdict.callers`, whose import is the start of the program."""
PARTS = {"PROC": "proc", "SYS": "sys", "ROOT": "root"}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    try:
        return nvml.build(folder), kmsg.build(folder)
    except (nvml.CannotBuild, kmsg.CannotBuild) as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def forked(libraries, tmp_path_factory):
    """Run the command without a start of Python for each."""
    env = {"LD_LIBRARY_PATH": str(libraries[0].parent), "LD_PRELOAD": str(libraries[1])}
    with Forked(tmp_path_factory.mktemp("asked"), [*LOADED, "tests.agent.jobs.verdict.hurry"], env) as forked:
        yield forked


class Machine:
    """A machine as `chipwatch verdict` finds it; `ask` runs the command."""

    def __init__(self, libraries, folder, agent, forked):
        self.folder, self.agent, self._forked = folder, agent, forked
        self.spool = folder / "spool"
        self.driver = nvml.Driver(folder, "h100", 2)
        self.ring = kmsg.Ring(libraries[1], folder)
        self.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.48.01\n")
        self.file("proc/sys/kernel/random/boot_id", "boot-1\n")
        self.file("proc/stat", f"btime {int(time.time()) - 90_000}\n")
        for name in ("sys/class", "root"):
            (folder / name).mkdir(parents=True)
        self.env = {
            **self.ring.env,
            nvml.VARIABLE: self.driver.path,
            "LD_LIBRARY_PATH": libraries[0].parent,
            "CHIPWATCH_COLLECTORS__KERNEL__PATH": self.ring.path,
            **{f"CHIPWATCH_{key}": folder / name for key, name in PARTS.items()},
        }
        self.seconds = 0.0

    def file(self, path, text):
        """Write a file below this machine's folder."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def port(self, device, state="4: ACTIVE", rate="400 Gb/sec (4X NDR)"):
        """Give it an InfiniBand port."""
        base = f"sys/class/infiniband/{device}/ports/1"
        files = {"state": state, "rate": rate, "link_layer": "InfiniBand", "counters/link_downed": "0"}
        for name, text in files.items():
            self.file(f"{base}/{name}", f"{text}\n")

    def pci(self, *, bound, free=0):
        """Put GPUs on the PCI bus, so many with a driver."""
        for n in range(bound + free):
            self.file(f"sys/bus/pci/devices/0000:{n:02x}:00.0/class", "0x030200\n")
            self.file(f"sys/bus/pci/devices/0000:{n:02x}:00.0/vendor", "0x10de\n")
            if n < bound:
                (self.folder / f"sys/bus/pci/devices/0000:{n:02x}:00.0/driver").mkdir()

    def ask(self, *words, timeout="20s", **env):
        """Run the command; return what subprocess.run returns. A busy machine takes its time."""
        self.driver.write()
        asked = ["verdict", "--spool", str(self.spool), "--timeout", timeout, *words]
        begun = time.monotonic()
        if "PYTHONPATH" in env:  # plugins that a process finds as it starts
            done = self.agent.run(*asked, env={**self.env, **env})
        else:
            done = self._forked.run(asked, self.agent.env(**{**self.env, **env}))
        self.seconds = time.monotonic() - begun
        return done

    def start(self, *words):
        """Start an agent that keeps what it cannot send."""
        self.driver.write()
        return self.agent.start(
            "--sink", "cloudwatch", "--region", "eu-west-1", "--endpoint-url", "http://127.0.0.1:9", "--interval", "0.2",
            "--spool", str(self.spool), *words, env={**self.env, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
        )  # fmt: skip


@pytest.fixture
def machine(libraries, tmp_path, agent, forked):
    return Machine(libraries, tmp_path, agent, forked)
