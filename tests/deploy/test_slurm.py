"""The kit for Slurm: its scripts run with the environment that slurmd gives them, which has no PATH."""

import configparser
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deploy import tools

from chipwatch.collectors.jobs.allocations import Allocations
from chipwatch.host.job_numbers import FOLDERS, JobNumbers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="slurmd runs on Linux")
KIT = Path(__file__).parents[2] / "slurm"


def slurmd(script: str, folder: Path, job: str, gpus: str | None = None, **more: str) -> subprocess.Popen[str]:
    """Start a script as slurmd does: as a program, with these variables and no others (prolog_epilog.html)."""
    environ = {
        "SLURM_JOB_ID": job, "SLURM_JOBID": job, "SLURM_JOB_UID": "1000", "SLURM_JOB_USER": "ada", "SLURM_UID": "1000",
        "SLURM_JOB_PARTITION": "h100", "SLURM_CLUSTER_NAME": "test", "SLURMD_NODENAME": "node-1", "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_SCRIPT_CONTEXT": f"{script}_slurmd", "DCGM_HPC_JOB_MAPPING_DIR": str(folder), "CHIPWATCH_PROC": str(folder.parent / "proc"),
    }  # fmt: skip
    if gpus is not None:
        environ["SLURM_JOB_GPUS"] = gpus
    return subprocess.Popen(
        [KIT / f"{script}.sh"], env=environ | more, cwd="/", text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def run(*arguments, **more) -> None:
    with slurmd(*arguments, **more) as started:
        output, _ = started.communicate(timeout=60)
    assert (started.returncode, output) == (0, "")


def mapped(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in Allocations(folder.parent, folder, None, {}).read():
        found.setdefault(one.device, []).append(one.owner.job)
    return found


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "slurm/dcgm-job-mapping"


def test_what_the_prolog_writes_is_what_the_agent_reads_and_the_epilog_removes(folder):
    run("prolog", folder, "41337", "0,1,3")
    run("prolog", folder, "41340", "4-6")
    assert mapped(folder) == {"0": ["41337"], "1": ["41337"], "3": ["41337"], **{key: ["41340"] for key in "456"}}
    assert {path.stat().st_mode & 0o777 for path in folder.glob("[0-9]*")} == {0o644}
    run("epilog", folder, "41337")
    assert mapped(folder) == {key: ["41340"] for key in "456"}
    run("epilog", folder, "41340")
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_jobs_that_share_a_gpu_each_have_a_line(folder):
    for job in ("41337", "4133", "1337"):
        run("prolog", folder, job, "2")
    run("prolog", folder, "4133", "2")
    assert mapped(folder) == {"2": ["41337", "4133", "1337"]}
    run("epilog", folder, "4133", "2")
    assert mapped(folder) == {"2": ["41337", "1337"]}


def test_where_any_user_may_write_root_writes_nothing(folder):
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    (folder / ".lock").symlink_to(folder.parent / "theirs")
    (folder.parent / "theirs").write_text("kept")
    for script in ("prolog", "epilog"):
        run(script, folder, "41337", "0")
    assert ([*folder.iterdir()], (folder.parent / "theirs").read_text()) == ([folder / ".lock"], "kept")


@pytest.mark.parametrize(
    ("code", "asked"), [("3:0", True), ("0:9", True), ("0:0", False), (None, False), ("1;rm", False)]
)
def test_the_epilog_of_a_failed_job_makes_the_agent_keep_its_minutes(folder, tmp_path, code, asked):
    program, words = tmp_path / "chipwatch", tmp_path / "words"
    program.write_text(f'#!/bin/sh\nprintf "%s " "$@" > {words}.new && mv {words}.new {words}\n')
    program.chmod(0o755)
    more = {"SLURM_JOB_EXIT_CODE2": code} if code else {}
    code_ = f"exec 9>&1; {KIT / 'epilog.sh'} 9>&1"  # the output ends with the last process of the script
    env = {"SLURM_JOB_ID": "41337", "DCGM_HPC_JOB_MAPPING_DIR": str(folder), "CHIPWATCH_PATH": str(tmp_path)} | more
    subprocess.run(["sh", "-c", code_], env=env, check=True, timeout=60, capture_output=True)
    text = words.read_text() if words.exists() else ""
    assert text == (f"record --seal --job 41337 --code {code} " if asked else "")


def test_prologs_and_epilogs_at_the_same_time_lose_no_line(folder):
    run("prolog", folder, "999", "0")
    jobs = [str(number) for number in range(1, 13)]
    for script in ("prolog", "epilog"):
        started = [slurmd(script, folder, job, "0,1") for job in jobs]
        for one in started:
            with one:
                assert one.communicate(timeout=120)[0] == ""
        expected = {"0": {"999", *jobs}, "1": {*jobs}} if script == "prolog" else {"0": {"999"}}
        assert {device: {*found} for device, found in mapped(folder).items()} == expected


@pytest.mark.parametrize(
    "gpus", [None, "", "N/A", "0;reboot", "../../etc/passwd", "-1", "1-", "1-2-3", "$(touch /tmp/x)"]
)
def test_a_job_without_gpus_or_with_odd_ones_writes_nothing(folder, gpus):
    run("prolog", folder, "7", gpus)
    assert mapped(folder) == {}
    run("epilog", folder, "7", gpus)


MIG = "MIG-0bf2a07d-4cd6-5a44-8b0d-4e6d4e6f2a11"


@pytest.mark.parametrize(
    ("visible", "written"),
    [
        ("0", set()),
        (f"{MIG},GPU-5a1b", {MIG, "GPU-5a1b"}),
        ("MIG-GPU-5a1b/1/0,MIG-../../x,MIG-,$(id),NoDevFiles", set()),
    ],
)
def test_with_mig_the_uuids_of_instances_are_written_and_no_numbers(folder, visible, written):
    """Slurm gives a prolog the instance's UUID (gres_common_prep_set_env of src/plugins/gres/common/gres_common.c)."""
    (folder.parent / "proc/driver/nvidia/capabilities/gpu0/mig/gi1").mkdir(parents=True)
    run("prolog", folder, "7", "0", CUDA_VISIBLE_DEVICES=visible)
    assert mapped(folder) == {name: ["7"] for name in written}
    run("epilog", folder, "7")
    assert [path.name for path in folder.iterdir()] == [".lock"]


SLUID = "s8FXKTA79XAR00"


def test_the_sluid_of_a_job_has_a_file_with_its_number_until_the_epilog(folder):
    run("prolog", folder, "41337", "0", SLURM_JOB_SLUID=SLUID)
    run("prolog", folder, "41340", None, SLURM_JOB_SLUID=SLUID.replace("8", "9"))
    numbers = JobNumbers(folder, folder, [str(folder)])
    assert [numbers.number_of(name, "/", {}) for name in (SLUID, SLUID.replace("8", "9"))] == ["41337", "41340"]
    assert mapped(folder) == {"0": ["41337"]}
    run("epilog", folder, "41337", "0", SLURM_JOB_SLUID=SLUID)
    assert {path.name for path in folder.iterdir()} == {".lock", SLUID.replace("8", "9")}


def test_jobs_with_shards_or_mps_of_one_gpu_share_its_file(folder):
    """With gres/shard and gres/mps, SLURM_JOB_GPUS is the GPU: gres_p_prep_set_env of both plugins of Slurm."""
    run("prolog", folder, "41337", "3", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50")
    run("prolog", folder, "41340", "3", SLURM_SHARDS_ON_NODE="2")
    assert mapped(folder) == {"3": ["41337", "41340"]}


def test_a_folder_that_cannot_be_made_does_not_drain_the_node(tmp_path):
    (tmp_path / "file").write_text("")
    with slurmd("prolog", tmp_path / "file/folder", "7", "0") as started:
        started.communicate(timeout=60)
    assert started.returncode == 0


def test_the_default_folder_is_one_that_the_agent_knows():
    for script in ("prolog", "epilog"):
        assert f":-/{FOLDERS[0]}}}" in (KIT / f"{script}.sh").read_text()


def test_shellcheck_finds_nothing():
    scripts = [*KIT.glob("*.sh"), KIT / "train.sbatch"]
    assert len(scripts) == 5
    found = subprocess.run([tools.shellcheck(), *scripts], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_batch_script_is_one_that_bash_and_the_agent_take():
    from chipwatch.commands.command_line import parse
    from chipwatch.config.identity.names import WORDS

    text = (KIT / "train.sbatch").read_text()
    assert subprocess.run(["bash", "-n", KIT / "train.sbatch"], timeout=60, check=False).returncode == 0
    line = text.partition("srun chipwatch ")[2].replace("\\\n", " ")
    given = parse(shlex.split(line))
    assert {*given.common_dims[0].split(",")} <= {*WORDS}
    assert given.wrapped[0] == "torchrun"


def test_the_drop_in_adds_the_one_right_that_the_agent_asks_for():
    from chipwatch.host.owners import PERMISSION

    read = configparser.ConfigParser(strict=False)
    read.optionxform = str
    read.read(KIT / "chipwatch.service.d-slurm.conf")
    assert {read["Service"]["CapabilityBoundingSet"], read["Service"]["AmbientCapabilities"]} == {"CAP_SYS_PTRACE"}
    assert "CAP_SYS_PTRACE" in PERMISSION
