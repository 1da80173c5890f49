"""
The image, really built and really run: `make test-deploy`. No registry is needed.

The bases are stand-ins, made by debootstrap of Debian 13's packages: the build's is a small Debian, the run's has the
packages of Google's distroless Python image (its python3/python.bzl) and, as that, no shell. Linux, root and an
index for pip are needed. The flags of podman are what a machine without systemd and without limits to raise takes.
"""

import json
import os
import platform
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.deploy import tools
from tests.deploy.boot_machine import kept, run
from tests.doubles.cloudwatch import BROKEN, KEY, SECRET, CloudwatchDouble
from tests.load import idle_seconds
from tests.ports import free_port

from chipwatch.base.version import __version__

pytestmark = pytest.mark.deploy
ROOT = Path(__file__).parents[2]
LONG = 600.0
MB = 1_000_000
LIMIT = 64 << 20
LIMITED = ("--memory", LIMIT, "--memory-swap", LIMIT)
MOST_BYTES = 85 * MB
READY = 1.0
BUILDER = "python3-venv,python3-pip,ca-certificates"
DISTROLESS = [
    "base-files", "ca-certificates", "libbz2-1.0", "libc6", "libcrypt1", "libdb5.3t64", "libexpat1", "libffi8",
    "libgcc-s1", "liblzma5", "libncursesw6", "libpython3.13-minimal", "libpython3.13-stdlib", "libreadline8t64",
    "libsqlite3-0", "libssl3t64", "libstdc++6", "libtinfo6", "libuuid1", "libzstd1", "media-types", "netbase",
    "python3.13-minimal", "tzdata", "zlib1g",
]  # fmt: skip
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
USER = "nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
HARDENED = ("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges")


def debian():
    """Return the folder of a small Debian 13 with its packages, made once."""
    words = (tools.debootstrap(), "--variant=minbase", f"--include={BUILDER}", "trixie")
    return kept("trixie-builder", lambda fresh: run(*words, fresh, check=False))


def run_base(folder):
    """Unpack the packages of the base; nothing of them is run, as with distroless."""
    archives = debian() / "var/cache/apt/archives"
    for name in DISTROLESS:
        (package,) = archives.glob(f"{name}_*.deb")
        run("dpkg", "-x", package, folder)
    for name in "python", "python3":
        (folder / "usr/bin" / name).symlink_to("python3.13")
    for name in "tmp", "home/nonroot", "proc", "sys", "dev":
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "tmp").chmod(0o1777)
    shutil.copy(debian() / "etc/ssl/certs/ca-certificates.crt", folder / "etc/ssl/certs")
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/sbin/nologin\n" + USER)
    (folder / "etc/group").write_text("root:x:0:\nnonroot:x:65532:\n")
    for name in "doc", "man":
        shutil.rmtree(folder / "usr/share" / name)


class Engine:
    """podman and buildah with a separate store."""

    def __init__(self, folder):
        self.folder = folder
        self._own = ("--root", folder / "store", "--runroot", folder / "run")
        self._limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--no-healthcheck", "--network=host"]

    def podman(self, *words, **options):
        return run(tools.podman(), *self._own, "--cgroup-manager", "cgroupfs", "--runtime", "runc", *words, **options)

    def build(self, context, dockerfile, tag, *words):
        words = ("--isolation", "chroot", "--network", "host", "--format", "docker", *words)
        return run(
            tools.buildah(), *self._own, "bud", *words, "--file", dockerfile, "--tag", f"localhost/{tag}", context
        )

    def image(self, tag, image, prepared):
        """Make an image of a folder."""
        context = Path(tempfile.mkdtemp(dir=self.folder))
        left_out = [f"--exclude=./{path}" for path in ("var/cache/apt", "proc/*", "sys/*")]
        run("tar", "-C", prepared, *left_out, "-cf", context / "all.tar", ".")
        (context / "Dockerfile").write_text(f"FROM scratch\nADD all.tar /\n{image}")
        self.build(context, context / "Dockerfile", tag)

    def run(self, *words, **options):
        return self.podman("run", "--rm", *self._limits, *HARDENED, *words, **options)

    def start(self, name, *words):
        begun = time.time()
        self.podman("run", "--detach", "--name", name, *self._limits, *HARDENED, *words)
        return begun


@pytest.fixture(scope="module")
def engine():
    if sys.platform != "linux" or platform.machine() != "x86_64" or os.geteuid():
        pytest.skip("images are built by root on Linux, x86-64, here")
    for tool in ("runc", "dpkg"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not on PATH: `apt-get install podman runc buildah debootstrap`")
    tools.podman(), tools.buildah(), tools.debootstrap()
    folder = Path(tempfile.mkdtemp(prefix="deploy"))
    made = Engine(folder)
    yield made
    made.podman("rm", "--all", "--force", "--time", "0", check=False)
    mounted = [
        line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line.split()[1]
    ]
    for path in sorted(mounted, reverse=True):
        run("umount", path)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def bases(engine):
    shutil.copy(CERTIFICATES, debian() / "etc/ssl/certs")  # this machine's, which its index may need
    engine.image("build:trixie", f"ENV PIP_CERT={CERTIFICATES}\n", debian())
    prepared = engine.folder / "base"
    prepared.mkdir()
    run_base(prepared)
    engine.image("base:trixie", 'USER 65532\nENTRYPOINT ["/usr/bin/python3.13"]\n', prepared)
    return ("--build-arg", "BUILD_BASE=localhost/build:trixie", "--build-arg", "RUN_BASE=localhost/base:trixie")


@pytest.fixture(scope="module")
def image(engine, bases):
    """The image as the Dockerfile makes it."""
    begun = time.monotonic()
    built = engine.build(
        ROOT, ROOT / "ecs-sidecar/Dockerfile", "chipwatch:test", *bases, "--build-arg", f"VERSION={__version__}"
    )
    assert f"chipwatch {__version__}" in built.stdout
    say("built in", f"{time.monotonic() - begun:.0f} s")
    return "localhost/chipwatch:test"


def say(what, figure):
    print(f"\n    {what}: {figure}")  # noqa: T201  # the figures are what this is run for


def inspect(engine, kind, name):
    (found,) = json.loads(engine.podman(kind, "inspect", name).stdout)
    return found


# -- what it is -------------------------------------------------------------------------------------------------


def test_the_image_is_small(engine, image):
    whole, base = (inspect(engine, "image", name)["Size"] for name in (image, "localhost/base:trixie"))
    say("image", f"{whole / MB:.1f} MB, of which the base {base / MB:.1f} MB")
    assert whole <= MOST_BYTES


def test_two_builds_give_the_same_bytes(engine, bases):
    """The hashes of all layers, and the configuration; the image's name has a number of buildah's container, too."""
    built = []
    for tag in ("first:test", "second:test"):
        engine.build(ROOT, ROOT / "ecs-sidecar/Dockerfile", tag, *bases, "--no-cache", "--timestamp", "1700000000")
        whole = inspect(engine, "image", f"localhost/{tag}")
        built.append({name: whole[name] for name in ("RootFS", "Config", "Created")})
    assert built[0] == built[1]


def test_there_is_no_shell_and_no_pip(engine, image):
    for program in ("/bin/sh", "/bin/bash", "sh"):
        done = engine.run("--entrypoint", program, image, "-c", "true", check=False)
        assert done.returncode in {126, 127}
    done = engine.run("--entrypoint", "/usr/bin/python3", image, "-m", "pip", check=False)
    assert "No module named pip" in done.stderr


def test_nothing_is_compiled_at_the_start(engine, image):
    """Else each start and each health check pays for it, since the file system is read-only."""
    look = "import chipwatch.commands.cli, chipwatch.commands.run, chipwatch_sinks.cloudwatch.client, sys, os; print([n for n, m in sys.modules.items() if getattr(m, '__cached__', None) and not os.path.exists(m.__cached__)])"
    assert engine.run("--entrypoint", "/usr/bin/python3", image, "-c", look).stdout.strip() == "[]"


def test_it_reads_the_host_with_nothing_but_read_only_mounts(engine, image):
    mounts = [
        word
        for name, path in (("proc", "/proc"), ("sys", "/sys"), ("root", "/"))
        for word in ("-v", f"{path}:/host/{name}:ro")
    ]
    done = engine.run(
        *mounts, "--pid", "host", "--memory", LIMIT, image,
        "--once", "--proc", "/host/proc", "--sys", "/host/sys", "--root", "/host/root",
    )  # fmt: skip
    names = {json.loads(line)["name"] for line in done.stdout.splitlines()}
    assert {"cpu.utilization", "memory.utilization", "disk.utilization"} <= names, done.stderr


def test_the_neuron_image_has_the_monitor(engine, bases, image, tmp_path):
    fake = tmp_path / "fake/opt/aws/neuron/bin/neuron-monitor"
    fake.parent.mkdir(parents=True)
    shutil.copy(ROOT / "tests/doubles/fake_neuron_monitor.py", fake)
    fake.write_text("#!/usr/bin/python3\n" + fake.read_text())
    fake.chmod(0o755)
    engine.image("neuron-monitor:fake", "", tmp_path / "fake")
    dockerfile = ROOT / "ecs-sidecar/Dockerfile"
    words = (*bases, "--target", "neuron", "--build-arg", "NEURON_BASE=localhost/neuron-monitor:fake")
    engine.build(ROOT, dockerfile, "chipwatch-neuron:test", *words)
    done = engine.run("localhost/chipwatch-neuron:test", "check", "--collector", "neuron", check=False)
    assert "/opt/aws/neuron/bin/neuron-monitor" in done.stdout
    assert "no neuron-monitor" not in done.stdout
    assert "cannot be started" not in done.stdout, "it gets its configuration in a file, and the root is read-only"


def test_the_demo_shows_invented_nodes_and_the_image_has_nothing_of_it(engine, bases, image, until):
    engine.build(ROOT, ROOT / "ecs-sidecar/Dockerfile", "chipwatch-demo:test", *bases, "--target", "demo")
    port = free_port()
    engine.start("demo", "localhost/chipwatch-demo:test", "--prometheus", port)
    until(lambda: "demo: ready" in engine.podman("logs", "demo").stdout, 120)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/user/", timeout=10) as answer:
        assert b"<title>chipwatch demo</title>" in answer.read()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query=count(gpu_utilization_ratio)") as answer:
        assert json.load(answer)["data"]["result"][0]["value"][1] == "24"
    engine.podman("stop", "--time", "30", "demo")
    assert inspect(engine, "container", "demo")["State"]["ExitCode"] == 0
    look = "import os; print([os.path.exists(path) for path in ('/demo', '/usr/bin/prometheus', '/app/lib/tools')])"
    assert engine.run("--entrypoint", "/usr/bin/python3", image, "-c", look).stdout == "[False, False, False]\n"


# -- what it does -----------------------------------------------------------------------------------------------


def settings(url, **more):
    """Return the words that hand a container its environment."""
    said = {
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "CHIPWATCH_SINK": "cloudwatch", "CHIPWATCH_ENDPOINT_URL": url,
        "CHIPWATCH_DIMS__CLUSTER": "test", "CHIPWATCH_INTERVAL": "1", "CHIPWATCH_WINDOW": "1", "CHIPWATCH_FLUSH": "1", **more,
    }  # fmt: skip
    return [word for name, value in said.items() for word in ("--env", f"{name}={value}")]


def is_ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return answer.status == 200
    except (OSError, urllib.error.HTTPError):
        return False


def process_of(engine, name):
    """Return the number of a container's first process, and when that began (s since the epoch)."""
    pid = inspect(engine, "container", name)["State"]["Pid"]
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    boot = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    return pid, boot + ticks / os.sysconf("SC_CLK_TCK")


def memory_of(pid):
    """Return the most that the process had resident, and the most that its cgroup was charged with, if it is known."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for file in (
            Path(f"/sys/fs/cgroup/memory{path}/memory.max_usage_in_bytes") if "memory" in controllers else None,
            Path(f"/sys/fs/cgroup{path}/memory.peak") if not controllers else None,
        ):
            if file and file.exists():
                return int(status["VmHWM"].split()[0]) << 10, int(file.read_text())
    return int(status["VmHWM"].split()[0]) << 10, None


def facts_of(pid):
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {"uid": status["Uid"].split(), "caps": status["CapEff"].strip(), "no_new": status["NoNewPrivs"].strip()}


def test_it_sends_to_cloudwatch_from_a_small_locked_box(engine, image, client, moto, until):
    """Read-only, no capability, no root, 64 MB; and it ends on a signal, with all sent."""
    port = free_port()
    words = (*LIMITED, "--volume", "spool:/var/lib/chipwatch", *settings(moto, CHIPWATCH_HEALTH=str(port)))
    called = engine.start("locked", *words, image)
    until(lambda: is_ready(port), 60)
    ready = time.time()
    pid, began = process_of(engine, "locked")
    say("ready", f"{ready - began:.2f} s after its process began, {ready - called:.2f} s after podman was called")

    cloudwatch = client("cloudwatch")
    until(
        lambda: (
            {m["MetricName"] for m in cloudwatch.list_metrics(Namespace="Chipwatch")["Metrics"]}
            >= {"cpu.utilization", "memory.utilization"}
        ),
        60,
    )
    say("first metrics in moto", f"{time.time() - began:.2f} s after its process began")
    assert facts_of(pid) == {"uid": ["65532"] * 4, "caps": "0" * 16, "no_new": "1"}
    health = engine.podman("exec", "locked", "/app/bin/agent", "status", "--health", "--ready")
    assert "ready" in health.stdout

    begun = time.monotonic()
    engine.podman("stop", "--time", "30", "locked")
    state = inspect(engine, "container", "locked")["State"]
    say("ended", f"{time.monotonic() - begun:.2f} s after SIGTERM, with {state['ExitCode']}")
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    assert idle_seconds(ready - began) <= READY


def test_it_stays_within_64_mb_over_tls_and_keeps_what_it_owes(engine, image, tmp_path, until):
    """As to AWS itself; then the service is gone, the container is killed, and the next one sends what is owed."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not on PATH: `apt-get install openssl`")
    key, pem = tmp_path / "key.pem", tmp_path / "cert.pem"
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", pem, "-days", "2",
        "-subj", "/CN=double", "-addext", "subjectAltName=IP:127.0.0.1")  # fmt: skip
    bundle = tmp_path / "all.pem"
    bundle.write_bytes(CERTIFICATES.read_bytes() + pem.read_bytes())  # as many as a real one has
    bundle.chmod(0o644)
    with CloudwatchDouble() as double:
        words = (*LIMITED, "--volume", "owed:/var/lib/chipwatch", "--volume", f"{bundle}:/ca.pem:ro")
        words += (*settings(double.encrypt(pem, key), AWS_CA_BUNDLE="/ca.pem", CHIPWATCH_LEVEL="all"), image)
        engine.start("tls", *words)
        until(lambda: len(double.requests) >= 15, 90)
        pid, _ = process_of(engine, "tls")
        resident, charged = memory_of(pid)
        of_cgroup = f", its cgroup {charged / MB:.1f} MB" if charged else ""
        say("memory, all levels, over TLS, at most", f"{resident / MB:.1f} MB resident{of_cgroup}")
        assert resident < LIMIT

        double.weather = lambda: BROKEN
        asked = len(double.requests)
        until(lambda: len(double.requests) > asked, 60)
        time.sleep(3)  # windows that are owed
        stored = len(double.datums)
        engine.podman("kill", "tls")
        until(lambda: not inspect(engine, "container", "tls")["State"]["Running"])
        engine.podman("rm", "--force", "tls")
        double.weather = lambda: None
        killed = time.time_ns()
        engine.start("again", *words)
        until(lambda: len(double.datums) > stored, 60)
        assert min(datum.timestamp for datum in double.datums[stored:]) < killed // 10**9, "the first that came is old"
        engine.podman("stop", "--time", "30", "again")
