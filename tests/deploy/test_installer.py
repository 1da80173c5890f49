"""install.sh with its options, in a folder that plays /: what an update changes, and how it comes back."""

import hashlib
import re
import sys
import tarfile

import pytest
from tests.deploy import boot
from tests.deploy.test_user_data import Play, tool

pytestmark = [
    pytest.mark.deploy_files,
    pytest.mark.skipif(sys.platform != "linux", reason="the service runs on Linux alone"),
]
TOML = 'sink = ["stdout"]\n'
CURL = """  "curl "*) cp "$play/site${last#https://host}" "${*: -2:1}" || exit 22 ;;
"""
HOST = "https://host/1.0"


@pytest.fixture
def play(tmp_path):
    made = Play(tmp_path)
    made.wheels.mkdir()
    (tmp_path / "mine.toml").write_text(TOML)
    return made


def install(play, version, *options):
    return play.cli("--version", version, "--from", play.wheels, "--config", play.folder / "mine.toml", *options)


def fetch(play, place, digest, *options, version="1.0"):
    """Install what is at a place, whose sums have a SHA-256."""
    return play.cli("--version", version, "--from", place, "--sha256", digest, "--config", play.folder / "mine.toml", *options)  # fmt: skip


def current(play):
    return (play.root / "opt/chipwatch/current").resolve().name.partition("-")[0]


def state(play):
    """Return every file that an update may change, by path, and the release."""
    files = {
        str(path): path.read_text()
        for top in ("etc", "opt/chipwatch/uninstall.sh")
        for path in [play.root / top, *(play.root / top).rglob("*")]
        if path.is_file()
    }
    return files, current(play), play.releases()


def changes(play, name, shell):
    """Let a fake run a line of bash first."""
    text = (play.bin / name).read_text()
    (play.bin / name).write_text(text.replace("last=${!#}\n", f"last=${{!#}}\n{shell}\n"))


def breaks(play, words, only="9.9.9"):
    """Let a command fail while the release `only` is the present one."""
    is_other = f'[[ "$(readlink {play.root}/opt/chipwatch/current)" != *{only}* ]]'
    for name in ("systemctl", "python3.12"):
        changes(play, name, f'case "$name $*" in "{words}"*) {is_other} || exit 3 ;; esac')


def test_an_update_keeps_one_previous_release_and_rollback_brings_it_back_with_its_configuration(play):
    done = play.cli("--rollback")
    assert (done.returncode, done.stderr) == (1, "chipwatch: --rollback: there is no previous release\n")
    undo = (
        play.root / "opt/chipwatch/kept.new/undo"
    )  # by a service that starts while the change goes on: it does nothing
    changes(play, "systemctl", f"[[ $1 != restart || ! -e {undo} ]] || {undo} || exit 9")
    for version in ("1.0", "2.0", "3.0"):
        (play.folder / "mine.toml").write_text(f"{TOML}dims.release = '{version}'\n")
        done = install(play, version)
        assert done.returncode == 0, done.stderr
    assert [name.partition("-")[0] for name in play.releases()] == ["2.0", "3.0"]
    after = state(play)
    assert play.cli("--rollback", "--dry-run").returncode == 0
    assert state(play) == after
    done = play.cli("--rollback")
    assert (done.returncode, current(play)) == (0, "2.0"), done.stderr
    assert "'2.0'" in (play.root / "etc/chipwatch/chipwatch.toml").read_text()
    assert play.calls().rstrip().splitlines()[-1].startswith("systemctl ")
    assert play.cli("--rollback").returncode == 0
    assert state(play) == after


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("systemctl restart", "9.9.9 does not start"),
        ("systemctl is-active", "9.9.9 ended within 2 s"),
        ("agent status --health", "9.9.9 is not healthy after 2 s"),
    ],
)
def test_an_update_that_fails_brings_back_release_configuration_and_unit_and_the_exit_code_says_so(play, fails, said):
    install(play, "0.9")
    install(play, "1.0")
    unit = play.root / "etc/systemd/system/chipwatch.service"
    unit.write_text("[Service]\nExecStart=old\n")
    before = state(play)
    breaks(play, fails)
    (play.folder / "mine.toml").write_text("sink = ['cloudwatch']\n")
    (play.folder / "proxy").write_text("HTTPS_PROXY=http://proxy:3128\n")
    done = install(play, "9.9.9", "--environment", play.folder / "proxy")
    assert done.returncode == 3
    assert f"chipwatch: {said}; its last lines are above. 1.0-" in done.stderr
    assert "journalctl" in play.calls()
    assert state(play) == before
    assert play.cli("--rollback").returncode == 0  # to what was there before 1.0
    assert current(play) == "0.9"


def test_where_neither_release_starts_the_exit_code_is_4(play):
    install(play, "1.0")
    play.ends("systemctl restart chipwatch.service", 1)
    done = install(play, "9.9.9")
    assert (done.returncode, current(play)) == (4, "1.0")
    assert "does not start either" in done.stderr


@pytest.mark.parametrize("by", ["the next run", "the next start"])
def test_a_change_that_was_killed_in_the_middle_is_taken_back(play, by):
    install(play, "1.0")
    before = state(play)
    real = (play.bin / "systemctl").read_text()
    changes(play, "systemctl", '[[ "$1" != daemon-reload ]] || kill -9 $PPID')
    assert install(play, "2.0").returncode == -9
    assert current(play) == "2.0"
    (play.bin / "systemctl").write_text(real)
    (play.folder / "calls").unlink()
    if by == "the next start":
        done = tool(undo := play.root / "opt/chipwatch/kept.new/undo", env={"PATH": str(play.bin)})
        assert done.stdout == "chipwatch: a change was cut off, and what ran before it is back\n", done.stderr
        assert (state(play)[:2], play.calls(), undo.exists()) == (before[:2], "systemctl daemon-reload\n", False)
        return
    done = install(play, "1.0")
    assert "a change was cut off; what ran before it comes back first" in done.stderr
    assert (state(play)[:2], done.returncode) == (before[:2], 0)
    assert "systemctl restart" in play.calls()  # the killed change may have started the other release


def test_a_signal_in_the_middle_of_a_change_brings_back_what_was_there(play):
    install(play, "1.0")
    before = state(play)
    once = play.folder / "once"
    changes(play, "systemctl", f'[[ "$1" != restart || -e {once} ]] || {{ touch {once}; kill -TERM $PPID; sleep 1; }}')
    done = install(play, "2.0")
    assert done.returncode == 3, done.stderr
    assert state(play) == before


def test_where_the_disk_is_full_every_file_is_whole_and_the_next_run_brings_back_what_was_there(play):
    install(play, "1.0")
    before = state(play)
    (play.folder / "mine.toml").write_text(f"{TOML}level = 'all'\n")
    (play.bin / "cp").unlink()
    (play.bin / "cp").write_text(
        '#!/bin/bash\nlast=${!#}\n/bin/cp "$@" || exit\n[[ $last != */chipwatch.*.new ]] || { echo half > "$last"; exit 1; }\n'
    )
    (play.bin / "cp").chmod(0o755)
    assert install(play, "2.0").returncode == 1
    assert state(play)[:2] == before[:2]
    (play.bin / "cp").unlink()
    (play.bin / "cp").symlink_to("/bin/cp")
    (play.folder / "mine.toml").write_text(TOML)
    assert install(play, "1.0").stdout == "chipwatch: 1.0 runs already\n"
    assert state(play)[:2] == before[:2]


def test_the_same_release_and_configuration_again_changes_nothing_and_restarts_nothing(play):
    install(play, "1.0")
    install(play, "2.0")
    before = state(play)
    (play.folder / "calls").unlink()
    done = install(play, "2.0")
    assert (done.returncode, done.stdout) == (0, "chipwatch: 2.0 runs already\n")
    assert not {"restart", "venv"} & {*play.calls().split()}
    assert state(play) == before
    assert (
        play.cli("--version", "2.0", "--from", play.wheels).stdout == "chipwatch: 2.0 runs already\n"
    )  # without --config, too


def test_an_update_without_a_configuration_keeps_the_present_one(play):
    install(play, "1.0")
    done = play.cli("--version", "2.0", "--from", play.wheels)
    assert (done.returncode, current(play)) == (0, "2.0"), done.stderr
    assert (play.root / "etc/chipwatch/chipwatch.toml").read_text() == TOML


def test_a_check_that_fails_with_the_new_release_and_passes_with_the_old_changes_nothing(play):
    install(play, "1.0")
    before = state(play)
    new = play.folder / "new.toml"
    new.write_text("sink = ['google']\n")
    changes(play, "python3.12", '[[ "$name $*" != "agent check"* || $0 != *2.0-* ]] || exit 1')
    done = play.cli("--version", "2.0", "--from", play.wheels, "--config", new)
    assert done.returncode == 1
    assert "check: it fails with this release and configuration, and passes with the present ones" in done.stderr
    assert state(play)[:2] == before[:2]
    assert "systemctl restart" not in play.calls().rpartition("agent check")[0].rpartition("agent check")[2]


def test_a_dry_run_changes_nothing_and_says_what_it_would_do_and_write(play):
    done = install(play, "1.0", "--print")
    assert done.returncode == 0, done.stderr
    assert list(play.root.iterdir()) == []
    assert re.search(r"would install 1\.0 into \S+/opt/chipwatch/1\.0-\w{8}, from ", done.stdout)
    assert f"Python: {play.bin}/python3.12\n" in done.stdout
    assert f"writes {play.root}/etc/chipwatch/chipwatch.toml\n" in done.stdout
    install(play, "1.0")
    for name in ("etc/chipwatch/chipwatch.toml", "etc/systemd/system/chipwatch.service", "opt/chipwatch/uninstall.sh"):
        written = play.root / name
        assert f"\n# {written}\n{written.read_text()}" in done.stdout
    again = install(play, "2.0", "--dry-run")
    assert "in place of " in again.stdout
    assert "the configuration stays" in again.stdout
    assert "would remove" in play.cli("--uninstall", "--dry-run").stdout
    assert current(play) == "1.0"


def test_a_dry_run_asks_the_wheelhouses_pip_and_says_what_is_missing(play):
    (play.wheels / "pip-26.0-py3-none-any.whl").touch()
    words = f"python3.12 {play.wheels}/pip-26.0-py3-none-any.whl/pip install --dry-run"
    assert install(play, "1.0", "--dry-run").returncode == 0
    assert words in play.calls()
    changes(play, "python3.12", '[[ "$*" != *--dry-run* ]] || { echo no msgspec; exit 1; }')
    done = install(play, "1.0", "--dry-run")
    assert done.returncode == 1
    assert "no msgspec" in done.stdout
    assert done.stderr == "chipwatch: the packages cannot be installed\n"
    assert list(play.root.iterdir()) == []


@pytest.mark.parametrize("action", ["--rollback", "--uninstall", "--dry-run", None])
def test_a_machine_with_the_deb_or_rpm_is_left_as_it_is(play, action):
    (play.root / "usr/lib/chipwatch").mkdir(parents=True)
    (play.root / "usr/lib/chipwatch/chipwatch").touch()  # its program, in deploy/packages/build.py
    done = install(play, "1.0", *([action] if action else []))
    assert (done.returncode, play.calls()) == (1, "")
    assert "first: apt remove chipwatch, or dnf remove chipwatch" in done.stderr
    assert [str(path.relative_to(play.root)) for path in play.root.rglob("*") if path.is_file()] == [
        "usr/lib/chipwatch/chipwatch"
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--versoin", "1"], "--versoin: no such option; see --help"),
        (["--version"], "--version: expected a value after it"),
        (["--rollback", "--uninstall"], "--uninstall: --rollback was given too"),
        (["--version", "1.0\n2"], "--version: expected one line"),
        (["--version", "latest", "--from", "/x", "--config", "mine.toml"], "--version: expected one version, such as 0.1.0, got 'latest'"),
        (["--version", "1.0", "--config", "mine.toml"], "--from: give it, or constraints with wheel_sha256"),
        (["--version", "1.0", "--from", "https://host/x", "--config", "mine.toml"], "--sha256: required with https://"),
        (["--version", "1.0", "--from", "http://host/x", "--config", "mine.toml"], "--from: expected "),
        (["--version", "1.0", "--from", "/x"], "--sink: expected names of sinks, such as cloudwatch, with commas; or --config FILE"),
        (["--version", "1.0", "--from", "/x", "--config", "none.toml"], "--config: expected a file that can be read, got 'none.toml'"),
        (["--version", "1.0", "--from", "/x", "--config", "."], "--config: expected a file that can be read, got '.'"),
        (["--version", "1.0", "--from", "/x", "--config", "mine.toml", "--environment", "."], "--environment: expected a file that can be read, got '.'"),
        (["--version", "1.0", "--from", "/x", "--config", "mine.toml", "--level", "all"], "--config: it is the whole configuration"),
        (["--version", "1.0", "--from", "/x", "--config", "mine.toml", "--watch", "soon"], "--watch: expected seconds, at most 9999, got 'soon'"),
        (["--version", "1.0", "--from", "/x", "--config", "mine.toml", "--watch", "99999"], "--watch: expected seconds, at most 9999, got '99999'"),
        (["--version", "1.0", "--from", "/x", "--sink", "google", "--extras", "tpu"], "--extras: the sink google needs google"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_by_name_before_anything_is_done(play, options, said):
    done = play.cli(*options)
    assert done.returncode == 2
    assert f"chipwatch: {said}" in done.stderr
    assert (play.calls(), list(play.root.iterdir())) == ("", [])


def test_the_variables_of_the_service_hold_for_the_installation_too_and_stay_secret(play):
    (play.folder / "proxy").write_text(
        '# ours\nHTTPS_PROXY="http://user:hunter2@proxy:3128"\nPATH=/nowhere\nnot a variable\n'
    )
    changes(play, "python3.12", 'echo "proxy=${HTTPS_PROXY:-}" >> "$play/calls"')
    done = install(play, "1.0", "--environment", play.folder / "proxy")
    assert done.returncode == 0, done.stderr
    assert "proxy=http://user:hunter2@proxy:3128\n" in play.calls()
    assert "hunter2" not in done.stdout + done.stderr
    assert ((play.root / "etc/chipwatch/environment").stat().st_mode & 0o777) == 0o600


@pytest.mark.parametrize(
    ("toml", "said"),
    [("sink = [", "config: it is not TOML, and nothing was changed: "), ("sink = 5", None), ("sink = 'stdout'", None)],
)
def test_a_configuration_that_is_wrong_is_refused_in_words_of_one_line(play, toml, said):
    """The agent reads what is TOML: it names the file and what is wrong in it."""
    changes(play, "python3.12", f'[[ "$*" != *tomllib* ]] || exec {sys.executable} "$@"')
    (play.folder / "mine.toml").write_text(toml)
    done = install(play, "1.0")
    assert done.stderr.count("\n") == (1 if said else 0), done.stderr
    assert (done.returncode, said or "") == (1 if said else 0, said if said and said in done.stderr else "")
    assert said or "agent check --config chipwatch.toml\n" in play.calls()


def test_a_folder_may_have_spaces(play):
    folder = play.wheels.rename(play.folder / "my wheels")
    done = play.cli("--version", "1.0", "--from", folder, "--config", play.folder / "mine.toml")
    assert done.returncode == 0, done.stderr
    assert f"--find-links {folder} " in play.calls()


@pytest.mark.parametrize("action", [(), ("--uninstall",)])
def test_two_at_once_are_refused(play, action):
    play.ends("journalctl", 0)
    install(play, "1.0")
    before = state(play)
    script = f"exec 8> {play.root}/run/chipwatch-install.lock; flock 8; {boot.INSTALL.read_text()}"
    done = play.run(script, *(action or ("--rollback",)))
    assert (done.returncode, state(play)) == (1, before)
    assert re.fullmatch("chipwatch: (an|another) installation of it runs\n", done.stderr)


# -- where it comes from -----------------------------------------------------------------------------------------


@pytest.fixture
def site(play):
    """A folder of a web server as `make dist` leaves it; returns the SHA-256 of its sums."""
    folder = play.folder / "site/1.0"
    names = ("chipwatch-1.0-py3-none-any.whl", "chipwatch-1.0.tar.gz", "wheelhouse/pip-26.0-py3-none-any.whl",
             "wheelhouse/psutil-7.0-cp36-abi3-manylinux_2_17_MACHINE.whl", "wheelhouse/grpcio-1.0-cp312-cp312-manylinux_2_17_MACHINE.whl",
             "wheelhouse/grpcio-1.0-cp311-cp311-manylinux_2_17_MACHINE.whl", "wheelhouse/psutil-7.0-cp36-abi3-manylinux_2_17_other.whl")  # fmt: skip
    machine = tool("uname", "-m").stdout.strip()
    for name in names:
        path = folder / name.replace("MACHINE", machine)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    package(folder, f"chipwatch-1.0-linux-{machine}.tar.gz", play)
    (folder / "SHA256SUMS").write_text(
        "".join(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
            for path in sorted(folder.rglob("*.*"))
        )
    )
    play.add("curl")
    changes(play, "curl", f'case "$name $*" in\n{CURL}esac')
    changes(play, "python3.12", '[[ "$*" != *version_info\\[1\\]* ]] || { echo 12; exit; }')
    return hashlib.sha256((folder / "SHA256SUMS").read_bytes()).hexdigest()


def package(folder, name, play):
    program = play.folder / "program/bin"
    program.mkdir(parents=True, exist_ok=True)
    for word in ("agent", "chipwatch"):
        (program / word).write_text((play.bin / "python3.12").read_text())
        (program / word).chmod(0o755)
    with tarfile.open(folder / name, "w:gz") as archive:
        archive.add(program.parent, "chipwatch-1.0")
    return folder / name


def test_over_https_it_fetches_what_this_python_and_machine_need_and_nothing_else(play, site):
    done = fetch(play, f"{HOST}/", site)
    assert done.returncode == 0, done.stderr
    names = re.findall(r"https://host/1\.0/(\S+)", play.calls())
    machine = tool("uname", "-m").stdout.strip()
    assert sorted(names) == sorted(
        ["SHA256SUMS", "chipwatch-1.0-py3-none-any.whl", "wheelhouse/pip-26.0-py3-none-any.whl",
         f"wheelhouse/psutil-7.0-cp36-abi3-manylinux_2_17_{machine}.whl", f"wheelhouse/grpcio-1.0-cp312-cp312-manylinux_2_17_{machine}.whl"]
    )  # fmt: skip
    assert "-m venv --without-pip" in play.calls()


def test_over_https_other_bytes_than_the_sums_say_are_refused(play, site):
    (play.folder / "site/1.0/chipwatch-1.0-py3-none-any.whl").write_text("other")
    done = fetch(play, HOST, site)
    assert (done.returncode, play.releases()) == (1, [])
    assert "chipwatch-1.0-py3-none-any.whl is not what SHA256SUMS says" in done.stderr
    assert "--sha256: not that of SHA256SUMS" in fetch(play, HOST, "ab" * 32).stderr
    (play.folder / "site/1.0/SHA256SUMS").write_text("<!DOCTYPE html>\n<title>Sign in</title>")
    done = fetch(play, HOST, site)
    assert (done.returncode, play.releases()) == (1, [])
    assert f"--sha256: not that of SHA256SUMS in {HOST}, which begins with '<!DOCTYPE html>" in done.stderr


@pytest.mark.parametrize("password", ["hun/ter2", "hun@ter2"])
def test_no_password_is_printed_whichever_program_says_it(play, site, password):
    (play.folder / "proxy").write_text(f"HTTPS_PROXY=http://user:{password}@a proxy\n")
    changes(play, "curl", """echo "Unsupported syntax in '$HTTPS_PROXY'" >&2; exit 5""")
    options = ("--environment", play.folder / "proxy")
    said = [fetch(play, f"{scheme}://user:{password}@host/x", site, *options) for scheme in ("https", "http")]
    assert [done.returncode for done in said] == [1, 2]
    assert "Unsupported syntax in 'http://***@a proxy'" in said[0].stderr
    assert "ter2" not in "".join(done.stdout + done.stderr for done in said)


@pytest.mark.parametrize("way", ["file", "folder", "https"])
def test_a_package_that_needs_no_python_is_unpacked_where_there_is_none(play, site, way):
    folder = play.folder / "site/1.0"
    if way != "file":
        (play.bin / "python3.12").unlink()
    (one,) = folder.glob("*-linux-*.tar.gz")
    of_file = hashlib.sha256(one.read_bytes()).hexdigest()
    place, digest = {"file": (one, of_file), "folder": (folder, site), "https": (HOST, site)}[way]
    done = fetch(play, place, digest)
    assert done.returncode == 0, done.stderr
    name = "package.tar.gz" if way == "file" else one.name
    assert f"installing 1.0 from {name}, which needs no Python" in done.stdout
    assert (play.root / "opt/chipwatch/current/bin/agent").exists()
    assert "pip" not in play.calls().replace(".whl", "") or way == "https"
    wrong = fetch(play, one, "ab" * 32, version="2.0")
    assert (wrong.returncode, current(play)) == (1, "1.0")
