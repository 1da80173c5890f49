from chipwatch.config.identity import local
from chipwatch.config.identity.local import RecordsSource
from chipwatch.config.identity.names import LATE, NAMES, OF_POINTS, PASSING, PER_HOST, WORDS
from chipwatch.config.identity.resolver import sources


def test_each_name_is_unique_and_its_sources_exist():
    assert len(set(WORDS)) == len(WORDS) == len(NAMES)
    known = {source.name for source in (*sources({}), RecordsSource())}
    assert {source for name in NAMES for source in name.sources} == known


def test_dimensions_read_from_variables_are_in_the_table():
    assert set(local.KUBERNETES) == {*local.Kubernetes({}).words}
    assert set(local.SLURM) == {*local.Slurm({}).words}


def test_the_flags_of_each_name_are_set():
    assert {"instance_id", "hostname", "ecs_task", "k8s_node", "k8s_pod", "slurm_rank", "run_id"} == PER_HOST
    assert {"ecs_task", "k8s_pod", "slurm_job", "slurm_step", "run_id"} == PASSING
    assert ({"autoscaling_group"}, {"neuron_runtime_tag"}) == (LATE, OF_POINTS)
