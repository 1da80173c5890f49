"""The installer of EC2, without EC2: the template as Terraform renders it, the unit, the script in a folder that plays /."""

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from tests.deploy import boot, tools
from tools import installers

from chipwatch.base.version import __version__
from chipwatch.collectors.neuron import monitor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="user-data runs on Linux alone")
LONG = 60.0
EC2_TAKES = 16384
OS_POLICY_TAKES = 32768
TOP_LEVEL = {"write_files", "runcmd"}
COMMANDS = (
    "basename", "bash", "cat", "chmod", "cmp", "cp", "cut", "env", "find", "flock", "grep", "gzip", "head", "id", "install", "ln", "mkdir",
    "mktemp", "mv", "readlink", "rm", "sed", "sh", "sha256sum", "sleep", "tar", "timeout", "touch", "tr", "uname",
)  # fmt: skip
SHA = "ab" * 32
FAKE = """#!/bin/bash
# Plays python, the agent and every command that would change the machine; notes what it was called with.
name=${0##*/}; play=PLAY
echo "$name $*" >> "$play/calls"
[ -z "${PIP_INDEX_URL:-}" ] || echo "PIP_INDEX_URL=$PIP_INDEX_URL" >> "$play/calls"
last=${!#}
case "$name $*" in
  *"-m venv "*) mkdir -p "$last/bin"; cp "$0" "$last/bin/python"; cp "$0" "$last/bin/agent"; cp "$0" "$last/bin/chipwatch"; exit ;;
  *" install --quiet"* | *" download --quiet"*) echo "Looking in indexes: https://user:hunter2@pypi.example/simple" ;;
  "aws s3 cp --recursive"*) cp -r "$play/bucket" "$last" ;;
  "aws s3 cp"*) cp "$play/constraints.txt" "$last" ;;
  "agent check"*) cp "$last" "$play/checked.toml"; echo "chipwatch: sink: no such sink" >&2 ;;
  "systemctl is-active"*) [ ! -e "$play/systemctl restart chipwatch.service" ] ;;
esac
code=0
for known in "$play/$name $*" "$play/$name $1"; do [ ! -e "$known" ] || { read -r code < "$known"; break; }; done
exit "$code"
"""


class Play:
    """A folder that plays /, and a PATH with fakes and the few commands that only read and write files."""

    def __init__(self, folder):
        self.folder, self.root, self.bin, self.wheels = folder, folder / "root", folder / "bin", folder / "wheels"
        self.root.mkdir()
        self.bin.mkdir()
        for name in COMMANDS:
            (self.bin / name).symlink_to(shutil.which(name))
        self.add("python3.12", "systemctl", "journalctl")

    def add(self, *names):
        for name in names:
            (self.bin / name).write_text(FAKE.replace("PLAY", str(self.folder)))
            (self.bin / name).chmod(0o755)

    def ends(self, call, code):
        """Let a fake's call end with `code`."""
        (self.folder / call).write_text(f"{code}\n")

    def run(self, script, *options):
        env = {"PATH": str(self.bin), "CHIPWATCH_ROOT": str(self.root), "CHIPWATCH_PAUSE": "0", "CHIPWATCH_WATCH": "2"}
        return subprocess.run(
            ["sh", "-c", script, "install.sh", *map(str, options)], env=env, capture_output=True, text=True, timeout=LONG, check=False,
            cwd=self.folder, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def install(self, **given):
        if not {"wheelhouse", "constraints"} & given.keys():
            self.wheels.mkdir(exist_ok=True)
            given["wheelhouse"] = str(self.wheels)
        return self.run(boot.user_data(**given))

    def cli(self, *options):
        return self.run(boot.INSTALL.read_text(), *options)

    def calls(self):
        found = self.folder / "calls"
        return found.read_text() if found.exists() else ""

    def releases(self):
        return sorted(path.name for path in (self.root / "opt/chipwatch").glob("*-*"))


@pytest.fixture
def play(tmp_path):
    return Play(tmp_path)


def tool(*words, **options):
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=LONG, check=False, stdin=subprocess.DEVNULL, **options
    )  # fmt: skip


# -- the template --------------------------------------------------------------------------------------------------


def test_the_templates_head_lists_the_variables_that_it_takes():
    text = boot.TEMPLATE.read_text()
    head = text[: text.index("set -eu")]
    taken = {found[1] for found in boot.MARK.finditer(text) if found[1]}
    assert taken == set(boot.variables())
    assert [name for name in taken if not re.search(rf"\b{name}\b", head)] == []


def test_terraform_renders_the_template_as_the_tests_do(tmp_path):
    terraform = tools.terraform()
    values = boot.variables(config='[dims]\nteam = "$${x}"\n', index_url="https://pypi.example/simple")
    (tmp_path / "values.json").write_text(json.dumps(values))
    asked = f'jsonencode(templatefile("{boot.TEMPLATE}", jsondecode(file("{tmp_path}/values.json"))))\n'
    done = subprocess.run(
        [terraform, "console"], input=asked, cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=False,
        env={**os.environ, "CHECKPOINT_DISABLE": "1", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(json.loads(done.stdout)) == boot.render(boot.TEMPLATE.read_text(), values)


def test_what_ec2_and_an_os_policy_get_is_smaller_than_they_take():
    given = {"index_url": "https://user:token@pypi.example/simple", "wheel_sha256": SHA, "region": "us-east-1"}
    assert len(boot.user_data(**given)) < OS_POLICY_TAKES - 3000
    assert len(boot.CLOUD_INIT.read_bytes()) < EC2_TAKES - 1000
    assert len(gzip.compress(boot.user_data(**given).encode())) < EC2_TAKES * 0.7


def test_shellcheck_finds_nothing(tmp_path):
    script = tmp_path / "user-data.sh"
    script.write_text(boot.user_data())
    found = tool(tools.shellcheck(), script, boot.UNINSTALL, boot.INSTALL)
    assert (found.returncode, found.stdout) == (0, "")


# -- the cloud-init file ---------------------------------------------------------------------------------------------


def test_the_cloud_init_file_holds_the_installer_and_runs_it_with_options_that_it_takes(play):
    text = boot.CLOUD_INIT.read_text()
    assert installers.packed_in(text) == boot.INSTALL.read_text()
    read = yaml.safe_load(text)
    assert set(read) == TOP_LEVEL
    assert gzip.decompress(base64.b64decode(read["write_files"][1]["content"])).decode() == boot.INSTALL.read_text()
    (play.folder / "mine.toml").write_text(read["write_files"][0]["content"])
    (command,) = read["runcmd"]
    assert command[:2] == ["sh", read["write_files"][1]["path"]]
    options = dict(zip(command[2::2], command[3::2], strict=True))
    assert options["--config"] == read["write_files"][0]["path"]
    play.wheels.mkdir()
    given = options | {"--config": play.folder / "mine.toml", "--from": play.wheels, "--sha256": ""}
    done = play.cli(*(word for pair in given.items() for word in pair))
    assert done.returncode == 0, done.stderr


def test_cloud_init_takes_the_file():
    done = tool(tools.cloud_init(), "schema", "--config-file", boot.CLOUD_INIT)
    assert done.returncode == 0, done.stdout + done.stderr


# -- the unit --------------------------------------------------------------------------------------------------------


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/sh\n")
    agent.chmod(0o755)
    unit = tmp_path / boot.UNIT.name
    unit.write_text(boot.UNIT.read_text().replace("/opt/chipwatch/current/bin/agent", str(agent)))
    done = tool(tools.systemd_analyze(), "verify", "--man=no", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_exposure_is_at_most_two():
    done = tool(tools.systemd_analyze(), "security", "--offline=true", "--threshold=20", "--no-pager", boot.UNIT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_the_unit_hides_nothing_that_a_collector_reads_and_opens_no_other_device():
    lines = [line for line in boot.UNIT.read_text().splitlines() if line and not line.startswith(("#", "["))]
    assert {
        "ProtectProc=default",
        "ProcSubset=all",
        "PrivateDevices=no",
        "DevicePolicy=closed",
        "ProtectHome=read-only",
    } <= set(lines)
    devices = {line.split("=", 1)[1].split()[0] for line in lines if line.startswith("DeviceAllow=")}
    assert devices == {"char-nvidia*", "char-neuron*", "char-kfd", "char-drm", "char-accel", "char-habanalabs*"}
    assert {"DynamicUser=yes", "StateDirectory=chipwatch", "Type=exec"} <= set(lines)


def test_the_unit_goes_on_trying_checks_before_each_start_takes_little_and_leaves_nothing_running():
    settings = dict(re.findall(r"^(\w+)=(.*)$", boot.UNIT.read_text(), re.MULTILINE))
    assert (settings["Restart"], settings["StartLimitIntervalSec"]) == ("always", "0")
    assert 15 <= int(settings["RestartSec"]) <= 60
    assert not {"RestartPreventExitStatus", "SuccessExitStatus", "StartLimitAction"} & settings.keys()
    assert "agent check --config /etc/chipwatch/chipwatch.toml" in settings["ExecStartPre"]
    assert settings["NoNewPrivileges"] == "yes"
    neuron_monitor = int(monitor.MEMORY.removesuffix("MiB"))
    assert neuron_monitor + 128 <= int(settings["MemoryMax"].removesuffix("M")) <= 512  # it is a child of the agent
    assert int(settings["CPUQuota"].removesuffix("%")) <= 50
    assert settings["KillMode"] == "mixed", (
        "one signal to the agent, which ends what it started; then SIGKILL for what is left"
    )


# -- wrong variables: refused by name, before anything is done -------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", ""), ("version", "latest"), ("version", ">=0.1"), ("version", "0.1.0; rm -rf /"),
        ("extras", "cloudwach"), ("extras", "cloudwatch, google"), ("sink", ""), ("sink", "Cloud Watch"),
        ("namespace", "a b"), ("namespace", "x" * 256), ("region", "Virginia"), ("common_dims", "instance id"),
        ("common_dims", 'a"]'), ("level", "most"), ("wheelhouse", ""), ("wheelhouse", "wheels"), ("wheelhouse", "http://x/y"),
        ("wheelhouse", "s3://B"), ("sums_sha256", "abc"), ("sums_sha256", SHA), ("index_url", "http://pypi.example"),
        ("index_url", "https://a b"), ("constraints", "constraints.txt"), ("wheel_sha256", "g" * 64), ("wheel_sha256", ""),
        ("constraints", ""), ("unit", ""), ("uninstall", "x"), ("extras", ""), ("extras", "google"),
        ("index_url", "https://with.a/wheelhouse"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_refused_by_name_before_anything_is_done(play, name, value):
    given = {name: value}
    if (name, value) == ("wheel_sha256", ""):
        given["constraints"] = "/constraints.txt"
    elif (name, value) == ("constraints", ""):
        given["wheel_sha256"] = SHA
    elif (name, value) == ("sums_sha256", SHA):
        given["wheelhouse"] = ""
    elif (name, value) == ("wheelhouse", ""):
        given["index_url"] = "https://pypi.example/simple"  # anybody may take the agent's name there
    done = play.install(**given)
    assert done.returncode == 2
    assert re.match(rf"chipwatch: {name}: ", done.stderr), done.stderr
    assert (play.calls(), list(play.root.iterdir())) == ("", [])


def test_a_value_is_never_executed_and_never_becomes_another(play):
    for evil in (
        "$(touch evil)",
        "`touch evil`",
        "'; touch evil; '",
        '"; touch evil; "',
        "x\ntouch evil",
        "x\nversion=9",
    ):
        done = play.install(namespace=evil)
        assert done.returncode == 2, evil
        assert not (play.folder / "evil").exists()
    done = play.install(config="$(touch evil) `touch evil`")
    assert not (play.folder / "evil").exists()
    assert "$(touch evil) `touch evil`" in (play.folder / "checked.toml").read_text()


def test_the_password_of_an_index_is_not_printed(play):
    (play.folder / "constraints.txt").write_text(f"rich==15.0.0 --hash=sha256:{SHA}")
    held = {"constraints": str(play.folder / "constraints.txt"), "wheel_sha256": SHA}
    done = play.install(index_url="https://user:hunter2@pypi.example/simple", **held)
    assert done.returncode == 0, done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    assert "https://***@pypi.example" in done.stdout
    assert "PIP_INDEX_URL=https://user:hunter2@pypi.example/simple" in play.calls()
    assert not re.search(r"^(?!PIP_INDEX_URL=).*hunter2", play.calls(), re.MULTILINE)  # nor does `ps` show it
    refused = play.install(index_url="ftp://user:hunter2@pypi.example/simple", constraints="s3:/x?signature=hunter2")
    assert refused.returncode == 2
    assert "hunter2" not in refused.stdout + refused.stderr


# -- an installation -------------------------------------------------------------------------------------------------


def test_it_installs_the_pinned_version_configuration_unit_and_uninstaller_and_starts_the_unit(play):
    done = play.install(region="eusc-de-east-1", namespace="Mine", level="detailed", config='[dims]\nteam = "a$b"')
    assert done.returncode == 0, done.stderr
    assert (play.root / "etc/systemd/system/chipwatch.service").read_text() == boot.UNIT.read_text()
    assert (play.root / "opt/chipwatch/uninstall.sh").read_text() == boot.UNINSTALL.read_text()
    config = (play.root / "etc/chipwatch/chipwatch.toml").read_text()
    assert config.split("\n", 1)[1] == (
        'sink = ["cloudwatch"]\ncommon_dims = ["instance_id", "instance_type"]\nnamespace = "Mine"\nregion = "eusc-de-east-1"\n'
        'level = "detailed"\n[dims]\nteam = "a$b"\n'
    )
    assert (play.root / "opt/chipwatch/current").resolve().name == play.releases()[0]
    calls = play.calls()
    wheels = f"--find-links {play.wheels} --find-links {play.wheels}/wheelhouse"
    assert f"--only-binary :all: --no-index {wheels} chipwatch[cloudwatch]=={__version__}\n" in calls
    order = ["agent check", "systemctl daemon-reload", "systemctl enable", "systemctl restart", "agent status --health"]
    assert [calls.index(word) for word in order] == sorted(calls.index(word) for word in order)


def test_hardware_that_is_absent_keeps_it_from_nothing(play):
    play.ends("agent check", 1)
    assert play.install().returncode == 0


def test_a_first_installation_that_does_not_start_ends_off_and_names_what_is_missing(play):
    (play.root / "etc").mkdir()
    (play.root / "etc/group").write_text("root:x:0:\nvideo:x:44:ada\nrenderers:x:105:\n")
    assert play.install().returncode == 0, "the service runs"
    shutil.rmtree(play.root / "opt")
    play.ends("systemctl restart chipwatch.service", 1)
    for _ in range(2):  # the second run is a first one, too
        assert play.install().stderr.splitlines()[-3:] == [
            "chipwatch: there is no group render",
            "chipwatch: sink: no such sink",
            "chipwatch: the service does not start; its last lines are above",
        ]
        assert play.calls().splitlines()[-1] == "systemctl disable --now --quiet chipwatch.service"
    assert "journalctl --unit chipwatch.service" in play.calls()
    named = re.search("for name in (.*); do grep", boot.TEMPLATE.read_text())[1]
    assert f"SupplementaryGroups={named}\n" in boot.UNIT.read_text()


def test_what_a_network_refuses_is_tried_again(play):
    play.add("aws")
    (play.folder / "bucket").mkdir()
    play.ends("aws s3", 1)
    done = play.install(wheelhouse="s3://wheels/chipwatch")
    assert done.returncode == 1
    assert play.calls().count("aws s3 cp") == 5
    assert "aws failed; again in 0 s" in done.stderr
    assert "wheelhouse: s3://wheels/chipwatch cannot be copied" in done.stderr


def test_a_host_that_failed_to_install_says_so_by_a_metric(play):
    play.add("aws")
    play.ends("systemctl restart chipwatch.service", 1)
    assert play.install(namespace="Training", region="eu-central-1").returncode == 1
    (call,) = [line for line in play.calls().splitlines() if line.startswith("aws ")]
    assert call == (
        "aws cloudwatch put-metric-data --region eu-central-1 --namespace Training --metric-name agent.install.failed --value 1"
    )
    (play.folder / "systemctl restart chipwatch.service").unlink()
    before = play.calls()
    assert play.install(namespace="Training").returncode == 0
    assert "put-metric-data" not in play.calls().removeprefix(before)


HELD = "Could not get lock /var/lib/apt/lists/lock. It is held by process 814 (apt-get)"


@pytest.fixture
def locked(play):
    """Let apt-get's command find the lock held, so many times."""
    (play.bin / "python3.12").unlink()
    play.add("python3", "apt-get")
    play.ends("python3 -c", 1)

    def lock(command, times):
        fake = FAKE.replace("PLAY", str(play.folder))
        held = f'[[ "$*" != "-q {command}"* ]] || [ "$(grep -c "apt-get -q {command}" {play.folder}/calls)" -gt {times} ] || {{ echo "E: {HELD}" >&2; exit 100; }}'
        (play.bin / "apt-get").write_text(fake.replace("last=${!#}", f"{held}\nlast=${{!#}}"))

    return lock


@pytest.mark.parametrize("command", ["update", "install"])
def test_the_locks_of_apt_and_dpkg_are_waited_for(play, locked, command):
    """The distribution's own updates hold them for minutes after the first boot."""
    locked(command, 3)
    done = play.install()
    assert play.calls().count(f"apt-get -q {command}") == 4
    assert done.stdout.count(f"chipwatch: waiting for apt: {HELD}\n") == 1
    assert "python3.14-venv" in play.calls()


def test_a_lock_that_is_never_released_ends_the_attempt_and_is_reported(play, locked):
    locked("install", 1000)
    play.add("aws")
    done = play.install()
    assert done.returncode == 1
    assert f"chipwatch: apt is locked for too long: {HELD}\n" in done.stderr
    assert play.calls().count("apt-get -q install") == 60
    assert "agent.install.failed" in play.calls()


def test_without_a_python_it_asks_the_distribution_for_one_and_says_so_if_there_is_none(play):
    (play.bin / "python3.12").unlink()
    play.add("apt-get")
    for minor in 14, 13, 12:
        play.ends(f"apt-get -q install -y --no-install-recommends python3.{minor}-venv", 100)
    play.add("python3")
    play.ends("python3 -c", 1)  # Ubuntu 22.04's
    done = play.install()
    assert done.returncode == 1
    assert "there is no Python 3.11 to 3.14" in done.stderr
    assert "apt-get -q update" in play.calls()
    assert play.calls().rstrip().splitlines()[-2].endswith("python3.11-venv")
    (play.bin / "apt-get").unlink()
    play.add("dnf")
    assert play.install().returncode == 1
    assert "dnf install -y -q python3.14" in play.calls()


# -- offline, and by hash --------------------------------------------------------------------------------------------


@pytest.fixture
def wheelhouse(play):
    """A folder as `make dist` leaves it, and the SHA-256 of its sums."""
    folder = play.folder / "bucket"
    (folder / "wheelhouse").mkdir(parents=True)
    for name in "chipwatch-0.1.0-py3-none-any.whl", "wheelhouse/rich-15.0.0-py3-none-any.whl":
        (folder / name).write_text(name)
    sums = tool("sh", "-c", "sha256sum *.whl */*.whl", cwd=folder).stdout
    (folder / "SHA256SUMS").write_text(sums + f"{SHA}  chipwatch-0.1.0.tar.gz\n")
    return folder, tool("sha256sum", folder / "SHA256SUMS").stdout.split()[0]


@pytest.mark.parametrize("change", ["changed", "added", "sums"])
def test_a_wheelhouse_that_is_not_what_its_sums_say_is_refused(play, wheelhouse, change):
    folder, sums = wheelhouse
    if change == "changed":
        (folder / "wheelhouse/rich-15.0.0-py3-none-any.whl").write_text("other")
    elif change == "added":
        (folder / "wheelhouse/rich-99.0.0-py3-none-any.whl").write_text("newer")
    else:
        with (folder / "SHA256SUMS").open("a") as out:
            out.write("more\n")
    done = play.install(wheelhouse=str(folder), sums_sha256=sums)
    assert done.returncode == 1
    assert "SHA256SUMS" in done.stderr
    assert ("pip" in play.calls(), play.releases()) == (False, [])


def test_a_pip_among_the_wheels_does_where_the_distribution_has_none(play, wheelhouse):
    folder, _ = wheelhouse
    (folder / "SHA256SUMS").unlink()
    (folder / "wheelhouse/pip-26.0-py3-none-any.whl").touch()
    assert play.install(wheelhouse=f"file://{folder}").returncode == 0
    assert "-m venv --without-pip " in play.calls()
    assert f"python {folder}/wheelhouse/pip-26.0-py3-none-any.whl/pip install --quiet" in play.calls()


def test_with_constraints_everything_is_fetched_by_hash_and_the_index_is_not_asked_again(play):
    constraints = play.folder / "constraints.txt"
    constraints.write_text(f"rich==15.0.0 --hash=sha256:{SHA}")
    play.add("aws")
    done = play.install(constraints="s3://my-bucket/constraints.txt", wheel_sha256="cd" * 32)
    assert done.returncode == 0, done.stderr
    calls = play.calls()
    assert (
        "pip download --quiet --disable-pip-version-check --no-input --only-binary :all: --require-hashes --no-deps -r"
        in calls
    )
    assert re.search(r"pip install .*--no-index --find-links \S+/held chipwatch\[cloudwatch\]==", calls)


# -- and off again ---------------------------------------------------------------------------------------------------


def test_the_uninstaller_leaves_nothing(play):
    play.install()
    wants = play.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "chipwatch.service").symlink_to("/etc/systemd/system/chipwatch.service")
    (play.root / "etc/systemd/system/chipwatch.service.d").mkdir()
    (play.root / "var/lib/private/chipwatch").mkdir(parents=True)
    (play.root / "var/lib/chipwatch").symlink_to("private/chipwatch")
    other = play.root / "etc/systemd/system/other.service"
    other.touch()
    done = play.run((play.root / "opt/chipwatch/uninstall.sh").read_text())
    assert done.returncode == 0, done.stderr
    left = {path for path in play.root.rglob("*") if not path.is_dir() or path.is_symlink() or "chipwatch" in path.name}
    assert left == {other}
    assert "systemctl disable --now --quiet chipwatch.service" in play.calls()
    assert play.run(boot.UNINSTALL.read_text()).returncode == 0  # where nothing is, too
