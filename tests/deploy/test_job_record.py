"""The epilog that stores a job's record with Slurm."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "slurm/record.sh"
RECORD = '{"jobs": [{"job": "41337", "seconds": {"busy": 3.0}}]}'
pytestmark = pytest.mark.skipif(not Path("/bin/sh").exists(), reason="a script of the shell")


@pytest.fixture
def end(tmp_path):
    """Run the epilog on a node whose agent has an answer, and whose scontrol notes its arguments."""

    def run(answer, **env):
        programs = {
            "chipwatch": f"printf '%s\\n' '{answer}'",
            "scontrol": f"[ \"$1\" = show ] && echo node-1 && exit 0\nprintf '%s\\n' \"$@\" > '{tmp_path}/asked'",
        }
        for name, text in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        # cat ends when the last process of the script has closed its output.
        words = {"CHIPWATCH_PATH": str(tmp_path), "SLURM_JOB_NODELIST": "node-[1-2]", **env}
        code = f"exec 9>&1; sh {SCRIPT} 9>&1; echo $?"
        done = subprocess.run(
            ["/bin/sh", "-c", code], capture_output=True, text=True, check=False, env=words, timeout=60
        )
        asked = tmp_path / "asked"
        return done.stdout, asked.read_text().splitlines() if asked.exists() else None

    return run


def test_the_record_is_stored_as_the_comment_of_the_job(end):
    code, asked = end(RECORD, SLURM_JOB_ID="41337", SLURMD_NODENAME="node-1")
    assert code == "0\n"
    assert asked == ["update", "JobId=41337", f"AdminComment={RECORD}"]


@pytest.mark.parametrize(
    ("answer", "job", "node"),
    [(RECORD, "41337", "node-2"), (RECORD, "", "node-1"), (RECORD, "1;rm", "node-1"), ('{"jobs": []}', "41337", "node-1")],
)  # fmt: skip
def test_nothing_is_stored_of_another_node_or_without_a_record_and_the_node_is_not_drained(end, answer, job, node):
    assert end(answer, SLURM_JOB_ID=job, SLURMD_NODENAME=node) == ("0\n", None)
