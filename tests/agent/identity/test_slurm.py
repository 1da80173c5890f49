from agent.identity.local import Slurm


def test_a_job_has_its_id_and_rank():
    answer = Slurm({"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0"}).ask(["slurm_job"])
    assert answer.words == {"slurm_job": ("4711", "SLURM_JOB_ID"), "slurm_rank": ("0", "SLURM_PROCID")}
    assert answer.trouble == ""


def test_outside_a_job_the_message_names_the_unset_variables():
    assert Slurm({}).ask(["slurm_rank", "slurm_job"]) == ({}, "SLURM_JOB_ID, SLURM_PROCID not set", False)
    assert Slurm({"SLURM_JOB_ID": "1"}).ask(["slurm_rank"]).trouble == "SLURM_PROCID not set"
