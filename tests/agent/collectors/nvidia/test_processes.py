"""Use of the GPUs by the watched process tree."""

import pytest

from chipwatch.collectors.nvidia.processes import FOREIGN
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.facts import DeviceProcess, names_of

MIB = 1 << 20
TOTAL = 81559 * MIB
USED, SHARE, BUSY = (f"gpu.process.{name}{{gpu=0}}" for name in ("memory.used", "memory.utilization", "utilization"))
HOST, CONTAINER = "pid:[4026531836]", "pid:[4026532817]"


@pytest.fixture
def process(proc):
    """Add a process to /proc: its parent, its numbers in the inner pid namespaces, the files that it has open."""
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to(HOST)
    (proc / "self/status").write_text("Name:\tagent\nNSpid:\t1\nThreads:\t1\n")

    def add(pid, parent=1, inner=(), files=()):
        folder = proc / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(f"{pid} (python) R {parent} {'0 ' * 17}{pid} 0 7 {'0 ' * 20}\n")
        numbers = "\t".join(map(str, (pid, *inner)))
        (folder / "status").write_text(f"Name:\tpython\nPid:\t{pid}\nNSpid:\t{numbers}\nThreads:\t1\n")
        for n, file in enumerate(files):
            (folder / "fd" / str(n)).symlink_to(file)

    return add


@pytest.fixture
def contained(proc):
    """Put ourselves into the pid namespace of a container."""

    def enter(*numbers):
        (proc / "self/ns/pid").unlink()
        (proc / "self/ns/pid").symlink_to(CONTAINER)
        (proc / "self/status").write_text("Name:\tagent\nNSpid:\t" + "\t".join(map(str, numbers)) + "\n")

    return enter


def shares(watched, seconds=10):
    return {name: value for name, value in watched.read(seconds).items() if ".process." in name}


def test_the_memory_and_the_utilization_of_the_tree_are_the_sums_over_its_members(fake, watch, process):
    process(11000)
    process(11327, parent=11000)
    process(11345, parent=11327)
    process(11328)  # another's
    watched = watch(Level.BASIC, pid=11000)
    memory = (2566 + 15690) * MIB
    assert shares(watched) == {USED: memory, SHARE: 100 * memory / TOTAL}
    fake.gpus[0]["samples"] = "11345:1800000000000100:60,11327:1800000000000101:15,11328:1800000000000099:20"
    assert shares(watched) == {USED: memory, SHARE: 100 * memory / TOTAL, BUSY: 75}
    assert watched.collector.describe().endswith(", the process tree is found by pid")


def test_utilization_of_the_tree_covers_the_time_since_the_last_reading(driver, watch, process):
    fake = driver("h100")
    process(11345)
    watched = watch(Level.BASIC, pid=11345)
    assert BUSY not in shares(watched)  # of the whole time that the driver remembers
    assert shares(watched)[BUSY] == 0  # nothing ran since
    fake.gpus[0]["samples"] = "11345:1800000000000200:100"
    assert shares(watched)[BUSY] == 100
    assert shares(watched)[BUSY] == 0
    assert watched.problems == []


def test_gpus_that_the_tree_does_not_use_have_no_process_metrics(driver, watch, process):
    fake = driver("h100", 3)
    fake.gpus[0]["processes"] = fake.gpus[2]["processes"] = "4711:1000"
    fake.tell()
    process(11345)
    watched = watch(Level.BASIC, pid=11345)
    assert {name.partition("{")[2] for name in shares(watched)} == {"gpu=1}"}


def test_a_tree_that_uses_no_gpu_has_no_process_metrics(driver, watch, process):
    driver("h100")
    process(500)
    watched = watch(Level.BASIC, pid=500)
    assert shares(watched) == {}
    assert watched.collector.describe().endswith(", the process tree is on no GPU")


def test_the_gpus_are_read_after_the_tree_has_ended(driver, watch, process, proc):
    driver("h100")
    process(11345)
    watched = watch(Level.BASIC, pid=11345)
    assert USED in shares(watched)
    (proc / "11345/stat").write_text("")  # an open file of a process that has ended cannot be read
    read = watched.read(10)
    assert USED not in read
    assert read["gpu.state{gpu=0}"] == 1


def test_a_lost_gpu_has_no_process_metrics_and_no_problem_until_it_returns(two, watch, process):
    process(11345)
    watched = watch(Level.BASIC, pid=11345)
    assert USED in shares(watched)
    two.gpus[0] |= {"lost": 1, "handle": "!15"}
    for _ in range(3):
        assert USED not in shares(watched)
        assert watched.problems == []
    del two.gpus[0]["lost"], two.gpus[0]["handle"]
    assert BUSY not in shares(watched, 300)  # the samples cover the time in which it was lost
    assert BUSY in shares(watched)


def test_the_gpus_are_read_if_the_process_does_not_exist(driver, watch, proc):
    driver("h100")
    watched = watch(Level.BASIC, pid=4711)
    assert shares(watched) == {}
    assert watched.read(10)["gpu.state{gpu=0}"] == 1


def test_without_pid_the_processes_are_not_queried(fake, watch):
    watched = watch()
    fake.calls("nvmlDeviceGetComputeRunningProcesses_v3")
    watched.read()
    assert fake.calls("nvmlDeviceGetComputeRunningProcesses_v3") == 0


def test_a_process_in_two_lists_counts_once_and_clients_of_mps_are_found(driver, watch, process):
    fake = driver("rtx4080s")
    fake.gpus[0] |= {"processes": "5022:1000", "graphics": "5022:1500,7:9", "mps": "5023:700"}
    fake.tell()
    process(5022)
    process(5023, parent=5022)
    assert shares(watch(Level.BASIC, pid=5022))[USED] == 1500 + 700


def test_unknown_and_impossible_memory_of_a_process_is_absent(fake, watch, process):
    process(11345)
    fake.gpus[0]["processes"] = "11345:!,0:1"
    watched = watch(Level.BASIC, pid=11345)
    shares(watched)
    assert shares(watched) == {BUSY: 0}
    fake.gpus[0]["processes"] = f"11345:{TOTAL * 2}"
    assert shares(watched) == {}


def test_a_forbidden_process_list_is_reported(fake, watch, process):
    fake.gpus[0]["processes"] = "!4"
    fake.tell()
    process(11345)
    watched = watch(Level.BASIC, pid=11345)
    assert shares(watched) == {}
    assert watched.problems == ["GPU 0: processes: Insufficient Permissions (NVML 4)"]


def test_each_mig_instance_has_its_own_process_metrics(driver, watch, process):
    fake = driver("h100_mig")
    process(21198)
    process(21181, parent=21198)
    watched = watch(Level.BASIC, pid=21198)
    assert shares(watched) == {
        "gpu.process.memory.used{gpu=0,mig=0}": 7484 * MIB,
        "gpu.process.memory.utilization{gpu=0,mig=0}": 100 * 7484 / 40448,
        "gpu.process.memory.used{gpu=0,mig=1}": 1272 * MIB,
        "gpu.process.memory.utilization{gpu=0,mig=1}": 100 * 1272 / 19968,
    }
    assert watched.problems == []
    fake.calls("nvmlDeviceGetProcessUtilization")
    shares(watched)
    assert fake.calls("nvmlDeviceGetProcessUtilization") == 0  # not supported there


def test_pids_of_the_agents_namespace_are_matched_by_nspid(fake, watch, process, contained):
    contained(900, 1)  # /proc is the host's, we are in a container
    process(11345, inner=(27,))
    process(11346, parent=11345, inner=(28,))
    process(11347, parent=11345)  # outside the container
    fake.gpus[0]["processes"] = "27:1000,28:500,29:9"
    watched = watch(Level.BASIC, pid=11345)
    assert shares(watched)[USED] == 1500


def test_pids_of_the_host_are_matched_in_a_container_with_the_hosts_proc(driver, watch, process, contained):
    driver("h100")
    contained(900, 1)
    process(11345, inner=(27,))
    assert shares(watch(Level.BASIC, pid=11345))[USED] == 15690 * MIB


def test_in_a_container_with_unknown_pids_a_gpu_with_an_open_device_file_counts_as_a_whole(
    driver, watch, process, contained
):
    fake = driver("h100", 2)
    contained(1)
    process(27, files=("/dev/null", "/dev/nvidia1", "/dev/nvidiactl"))
    watched = watch(Level.BASIC, pid=27)
    shares(watched)
    assert shares(watched) == {
        "gpu.process.memory.used{gpu=1}": 19818 * MIB,
        "gpu.process.memory.utilization{gpu=1}": 100 * 19818 / 81559,
        "gpu.process.utilization{gpu=1}": 0,
    }
    assert watched.collector.describe().endswith("the process tree is found by open device files, each GPU as a whole")
    fake.gpus[1]["processes"] = None  # nor does it list any
    assert shares(watched)["gpu.process.memory.used{gpu=1}"] == 19818 * MIB


def test_in_a_container_a_known_pid_without_memory_gets_the_memory_of_the_gpu(driver, watch, process, contained):
    fake = driver("h100")
    contained(1)
    process(27)
    fake.gpus[0] |= {"processes": "27:0", "samples": "645400:1:13"}  # as driver 560 does
    watched = watch(Level.BASIC, pid=27)
    shares(watched)
    fake.gpus[0]["samples"] = "645400:2:13"
    assert shares(watched) == {USED: 19818 * MIB, SHARE: 100 * 19818 / 81559, BUSY: 100}


def test_in_a_container_utilization_is_absent_if_others_share_the_gpu(fake, watch, process, contained):
    contained(1)
    process(27)
    fake.gpus[0] |= {"processes": "27:5000,28:6000", "samples": "645400:1:13"}
    watched = watch(Level.BASIC, pid=27)
    shares(watched)
    fake.gpus[0]["samples"] = "645400:2:13"
    assert shares(watched) == {USED: 5000, SHARE: 100 * 5000 / TOTAL}


@pytest.mark.usefixtures("process")
def test_an_empty_list_in_a_namespace_of_our_own_does_not_call_a_gpu_free(fake, watch, contained):
    watched = watch()
    for enter, listed, told in ((list, "", ""), (contained, "", FOREIGN), (contained, "27:5000", "")):
        enter()
        fake.gpus[0]["processes"] = listed
        watched.read()
        assert len(watched.processes()) == bool(listed)
        assert [part.unlisted for part in watched.collector._gpus.activity()] == [told]


def test_outside_a_container_open_device_files_are_ignored(driver, watch, process):
    driver("h100")
    process(27, files=("/dev/nvidia0",))
    assert shares(watch(Level.BASIC, pid=27)) == {}


def test_every_process_of_every_gpu_is_listed_with_memory_and_share(driver, watch):
    told = driver(many=2)
    told.gpus[0] |= {"processes": "71:1000,72:!", "samples": "71:5:40"}
    told.gpus[1] |= {"processes": "", "samples": ""}
    watched = watch()
    dims = Dimensions(gpu="0")
    assert watched.processes() == [DeviceProcess(dims, 71, 1000), DeviceProcess(dims, 72)]
    told.gpus[0]["samples"] = "71:9:100,72:9:7"
    assert [one.utilization for one in watched.processes()] == [100, 7]
    assert [device[:2] for device in watched.collector._gpus.devices()] == [
        (Dimensions(gpu=n), "NVIDIA H100 80GB HBM3") for n in "01"
    ]


def test_a_process_of_which_the_driver_has_no_sample_did_nothing(fake, watch):
    fake.gpus[0] |= {"processes": "71:1,72:2", "samples": "71:5:40"}
    watched = watch()
    watched.processes()
    assert [one.utilization for one in watched.processes()] == [0, 0]
    fake.gpus[0]["samples"] = "72:9:30"
    assert [one.utilization for one in watched.processes()] == [0, 30]


def test_samples_of_pids_that_the_driver_does_not_list_tell_nothing(fake, watch):
    fake.gpus[0] |= {"processes": "27:1,28:2", "samples": "645400:5:40"}  # in a container
    watched = watch()
    watched.processes()
    fake.gpus[0]["samples"] = "645400:9:30"
    assert [one.utilization for one in watched.processes()] == [None, None]


def test_a_watched_tree_leaves_the_samples_to_the_list_of_processes(fake, watch, process):
    fake.gpus[0] |= {"processes": "71:1", "samples": ""}
    process(71)
    watched = watch(Level.BASIC, pid=71)
    shares(watched)
    watched.processes()
    fake.gpus[0]["samples"] = "71:1800000000000200:42"
    assert shares(watched)[BUSY] == 42
    assert [one.utilization for one in watched.processes()] == [42]


def test_the_clients_of_mps_are_listed_and_its_server_is_not(fake, watch, process, proc):
    fake.gpus[0] |= {"processes": "500:100,71:7", "mps": "72:8"}
    for pid, name in (500, "nvidia-cuda-mps"), (71, "python"):
        process(pid)
        (proc / f"{pid}/comm").write_text(f"{name}\n")
    assert [one.pid for one in watch().processes()] == [71, 72]


def test_a_lost_gpu_lists_no_process_and_the_others_do(driver, watch):
    told = driver(many=2)
    watched = watch()
    told.gpus[0]["lost"] = 1
    assert {one.dims["gpu"] for one in watched.processes()} == {"1"}


def test_instances_have_the_names_of_dynamic_resource_allocation_where_the_driver_tells_their_place(driver, watch):
    told = driver("h100_mig")
    told.gpus[0]["mig"]["0"] |= {"profile": 9, "slice": 4}
    told.gpus[0]["mig"]["1"] |= {"profile": "!4", "slice": 0}  # no permission
    bench = watch()
    names = names_of(bench.collector._gpus.devices())
    assert {name: dims for name, dims in names.items() if "mig-" in name} == {
        "gpu-0-mig-9-4": Dimensions(gpu="0", mig="0")
    }
    bench.read()
    assert bench.problems == []


def test_gpus_and_instances_have_the_names_that_schedulers_use(driver, watch):
    driver("h100_mig")
    names = {name: device.dims for device in watch().collector._gpus.devices() for name in device.ids}
    whole, first = Dimensions(gpu="0"), Dimensions(gpu="0", mig="0")
    assert names["0"] == names["nvidia0"] == whole
    assert {name.partition("-")[0] for name, dims in names.items() if dims == whole} >= {"GPU"}
    assert sorted(name for name, dims in names.items() if dims == first) == sorted(
        name for name in names if name in {"0.1", "0.2", "0.0"} or name.startswith("MIG") if names[name] == first
    )
    assert len([name for name, dims in names.items() if dims == first]) == 2
