"""The scripts are run by the shells that they are for."""

import shutil
import subprocess

import pytest

from chipwatch.commands.completion import completion as script


@pytest.fixture(scope="module")
def completed():
    """Return what bash offers for the last of some words."""
    text = script("bash")

    def ask(*words):
        program = f"""{text}
COMP_WORDS=({" ".join(repr(word) for word in words)})
COMP_CWORD={len(words) - 1}
_shtab_chipwatch chipwatch {words[-1]!r} {words[-2]!r}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, timeout=30)
        return done.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["chipwatch", "sta"], {"status"}),
        (["chipwatch", "--inter"], {"--interval"}),
        (["chipwatch", "run", "--dur"], {"--duration"}),
        (["chipwatch", "--level", ""], {"basic", "detailed", "all"}),
        (["chipwatch", "check", "--collector", "mem"], {"memory"}),
        (["chipwatch", "--no-collector", "gp"], {"gpu"}),
        (["chipwatch", "--common-dims", "instance_t"], {"instance_type"}),
        (["chipwatch", "plan", "--for", "ho"], {"host"}),
        (["chipwatch", "plan", "--format", ""], {"text", "json"}),
        (["chipwatch", "completion", ""], {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes_commands_options_and_values(completed, words, offered):
    assert {*completed(*words)} == offered


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_real_command_prints_a_script_that_the_shell_can_read(agent, shell):
    done = agent.run("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert "chipwatch agent\n" in done.stdout
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True, timeout=30)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("agent sta", {"status"}),
        ("chipwatch --level ", {"basic", "detailed", "all"}),
        ("chipwatch check --collector mem", {"memory"}),
        ("chipwatch --config /pro", {"/proc/"}),
    ],
)
def test_fish_completes_commands_options_and_values(tmp_path, line, offered):
    file = tmp_path / "agent.fish"
    file.write_text(script("fish"))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {file}; complete -C '{line}'"],
        capture_output=True, text=True, timeout=30, check=True, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stderr == ""
    assert {row.partition("\t")[0] for row in done.stdout.splitlines()} == offered
