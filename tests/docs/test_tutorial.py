"""The tutorials run from their first line to their last, each in one shell, and print what they show."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import no_nvidia
from tests.docs.test_commands import CONSOLE
from tests.doubles.cloudwatch import environment
from tests.ports import free_port

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tutorial-dashboard.md").read_text()
INSTALLED_HERE = ("python3 -m venv ", "source tutorial/", "pip install ")
"""The environment of the tests takes their place; tests/deploy/test_packaging.py installs the wheel."""


def script(text):
    """Return the commands of a page as a script of a shell, which stops at the first that fails."""
    typed = [line.strip()[2:] for _, block in CONSOLE.findall(text) for line in block.splitlines() if "$ " in line[:2]]
    return "\n".join(
        [
            "set -em; trap 'jobs -p | xargs -r kill 2>/dev/null || true' EXIT",
            *(line for line in typed if not line.startswith(INSTALLED_HERE)),
        ]
    )


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not on PATH")
def test_the_tutorial_runs_as_it_stands(agent, tmp_path):
    ports = {"5000": str(free_port()), "9465": str(free_port())}
    page = re.sub("|".join(ports), lambda found: ports[found[0]], PAGE)
    (source,) = re.findall(r"(?ms)^```python\n(.*?)^```$", page)
    (tmp_path / "put.py").write_text(source)
    env = environment(
        CHIPWATCH_SINKS__PROMETHEUS__LISTEN=f"127.0.0.1:{ports['9465']}",
        HOME=str(tmp_path), PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}", **no_nvidia(agent.folder),
    )  # fmt: skip
    with (tmp_path / "errors").open("w") as errors:
        running = subprocess.Popen(
            ["bash", "-c", script(page)], cwd=tmp_path, env=agent.env(**env), text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
        try:
            printed, _ = running.communicate(timeout=300)
        finally:
            running.terminate()
    said = (tmp_path / "errors").read_text()
    assert running.returncode == 0, printed + said
    assert re.search(r"stopping: collected \d+, sent [1-9]\d*, rejected 0, kept 0", said)
    shown = page.partition("$ python put.py\n")[2].partition("```")[0]
    assert shown in printed
    assert re.search(r"(?m)^memory_used_bytes [\d.e+]+$", printed)
    for name in ("dashboard", "alarms", "grafana", "rules"):
        assert json.loads((tmp_path / f"{name}.json").read_text())


def test_the_tutorial_of_reports_runs_as_it_stands(agent, tmp_path):
    page = (DOCS / "tutorial-report.md").read_text()
    (source,) = re.findall(r"(?ms)^```python\n(.*?)^```$", page)
    (tmp_path / "work.py").write_text(source)
    env = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **no_nvidia(agent.folder),
    }
    running = subprocess.run(
        ["bash", "-c", script(page)], cwd=tmp_path, env=agent.env(**env), text=True, capture_output=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert running.returncode == 0, running.stdout + running.stderr
    shown = re.findall(r"(?m)^\w+\.html: .*$", page)
    assert running.stdout.splitlines() == shown
    assert running.stderr.count("ended with 0") == 2
    report, both = (tmp_path / "report.html").read_text(), (tmp_path / "both.html").read_text()
    assert "no accelerator was recorded." in report
    assert "<h2>Processes</h2>" in report
    assert "<h2>Recordings</h2>" in both
