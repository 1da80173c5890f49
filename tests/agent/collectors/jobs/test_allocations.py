import os
import socket
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.kubelet import Server, claim, containers, pod

from chipwatch.collectors.jobs import allocations as kubelet
from chipwatch.collectors.jobs.allocations import KEPT, MAX_JOBS, Allocations


@pytest.fixture
def mapping(tmp_path):
    folder = tmp_path / "run/slurm/dcgm-job-mapping"
    folder.mkdir(parents=True)
    return folder


def found(allocations: Allocations) -> list[tuple[str, str]]:
    return [(one.device, one.owner.job) for one in allocations.read()]


def test_a_mapping_file_names_the_jobs_of_a_gpu_and_of_an_instance(tmp_path, mapping):
    (mapping / "0").write_text("41337\n41340\n")
    (mapping / "1.3").write_text("41337\n")
    (mapping / "2-5").write_text("41338\n")
    (mapping / "GPU-5a1b").write_text("41339")
    (mapping / "3").write_text("")
    (mapping / "4").write_text("0\n")
    allocations = Allocations(tmp_path, None, None, {})
    assert found(allocations) == [
        ("0", "41337"), ("0", "41340"), ("1.3", "41337"), ("2.5", "41338"), ("GPU-5a1b", "41339")
    ]  # fmt: skip
    assert allocations.source == str(mapping)
    assert {(one.source, one.owner.kind) for one in allocations.read()} == {("mapping", "slurm")}


def test_a_file_that_is_not_a_mapping_is_left_out(tmp_path, mapping):
    for name in ("0.lock", "README", ".0.swp", "99999"):
        (mapping / name).write_text("41337\n")
    (mapping / "1").mkdir()
    os.mkfifo(mapping / "6")
    (mapping / "2").write_bytes(b"\xff\xfe 41337 ../../etc\n" + b"9" * 100)
    (mapping / "3").write_text("\n".join(map(str, range(1, 10_000))))
    (mapping / "4").symlink_to(tmp_path / "missing")
    (mapping / "5").write_text("5" * (1 << 20))
    devices = [device for device, _ in found(Allocations(tmp_path, None, None, {}))]
    assert devices == ["2"] + ["3"] * MAX_JOBS


def test_a_mapping_that_cannot_be_read_is_missing(tmp_path, mapping):
    (mapping / "0").symlink_to("0")
    allocations = Allocations(tmp_path, None, None, {})
    assert found(allocations) == []
    assert allocations.missing == {"mapping": f"{mapping}: Too many levels of symbolic links"}
    (mapping / "0").unlink()
    mapping.rmdir()
    mapping.symlink_to(mapping.name)
    assert found(allocations) == []
    assert allocations.missing == {"mapping": f"{mapping}: Too many levels of symbolic links"}
    mapping.unlink()
    mapping.touch()
    assert (found(allocations), allocations.missing) == ([], {})


def test_a_mapping_that_changes_is_read_again(tmp_path, mapping):
    allocations = Allocations(tmp_path, None, None, {})
    assert found(allocations) == []
    (mapping / "0").write_text("7\n")
    assert found(allocations) == [("0", "7")]
    (mapping / "0").unlink()
    assert found(allocations) == []
    assert allocations.source == str(mapping), "an empty folder says that no device is given to a job"


def test_the_variable_of_dcgm_exporter_and_the_option_win_over_the_known_folders(tmp_path, mapping):
    (mapping / "0").write_text("7\n")
    other, third = tmp_path / "other", tmp_path / "third"
    for folder, job in (other, "8"), (third, "9"):
        folder.mkdir()
        (folder / "0").write_text(job)
    env = {"DCGM_HPC_JOB_MAPPING_DIR": str(other)}
    assert found(Allocations(tmp_path, None, None, env)) == [("0", "8")]
    assert found(Allocations(tmp_path, third, None, env)) == [("0", "9")]


def test_without_any_source_nothing_is_known(tmp_path):
    allocations = Allocations(tmp_path, None, None, {})
    assert (found(allocations), allocations.source, allocations.missing) == ([], "", {})


@pytest.fixture
def allocations(tmp_path):
    """The mapping folder and the kubelet, asked for the devices of each job."""
    made = Allocations(tmp_path, None, tmp_path / "kubelet.sock", {})
    yield made
    made.close()


@pytest.fixture
def serve(tmp_path, at_the_end):
    def start(answer, path=tmp_path / "kubelet.sock"):
        server = Server(path, answer)
        at_the_end.callback(server.stop)
        return server

    return start


def test_the_kubelet_names_the_pod_of_each_device(tmp_path, serve, allocations):
    serve(
        pod("team-a", "train-0", "main", "nvidia.com/gpu", "GPU-5a", "GPU-6b")
        + pod("team-b", "serve", "web", "nvidia.com/gpu", "GPU-7c::1")
        + pod("team-b", "serve-2", "web", "nvidia.com/gpu", "GPU-7c::0")
        + pod("team-c", "slice", "main", "nvidia.com/mig-1g.10gb", "MIG-8d")
        + pod("team-d", "neuron", "main", "aws.amazon.com/neuroncore", "3")
    )
    got = [(one.device, one.owner.namespace, one.owner.pod, one.owner.container) for one in allocations.read()]
    assert got == [
        ("GPU-5a", "team-a", "train-0", "main"), ("GPU-6b", "team-a", "train-0", "main"),
        ("GPU-7c", "team-b", "serve", "web"), ("GPU-7c", "team-b", "serve-2", "web"),
        ("MIG-8d", "team-c", "slice", "main"), ("core3", "team-d", "neuron", "main"),
    ]  # fmt: skip
    assert allocations.source == str(tmp_path / "kubelet.sock")
    assert {(one.source, one.owner.kind, one.owner.job == one.owner.pod) for one in allocations.read()} == {
        ("kubelet", "kubernetes", True)
    }


def test_the_kubelet_is_asked_where_nobody_writes_into_the_mapping_folder(tmp_path, serve, allocations):
    folder = tmp_path / "var/lib/dcgm-exporter/job-mapping"
    folder.mkdir(parents=True)
    serve(pod("team-a", "train-0", "main", "nvidia.com/gpu", "GPU-5a"))
    assert found(allocations) == [("GPU-5a", "train-0")]
    (folder / "0").write_text("7\n")
    assert found(allocations) == [("0", "7")]
    assert allocations.source == str(folder)


UID = "a85e5873-fc49-4554-a151-de159f528a04"


@pytest.mark.parametrize(
    ("cdi", "found_here"),
    [
        ([f"k8s.gpu.nvidia.com/claim={UID}-gpu-0"], ["gpu-0"]),
        ([f"k8s.gpu.nvidia.com/claim={UID}-gpu-0-mig-1g18gb-19-0"], ["gpu-0-mig-19-0"]),
        (["k8s.gpu.nvidia.com/device=gpu-2", f"k8s.gpu.nvidia.com/claim={UID}-gpu-2"], ["gpu-2"]),
        (["k8s.gpu.amd.com/gpu=common", f"k8s.gpu.amd.com/gpu={UID}-gpu-1-129"], ["card1"]),
        (["intel.com/gpu=0000-00-02-0-0x56c0"], ["0000:00:02.0"]),
        (["example.com/net=eth0", "not a name", ""], []),
    ],
)
def test_an_older_kubelet_names_the_devices_of_a_claim_as_the_containers_runtime_does(
    serve, cdi, found_here, allocations
):
    """Names of NVIDIA/k8s-dra-driver-gpu, ROCm/k8s-gpu-dra-driver and intel/intel-resource-drivers-for-kubernetes."""
    serve(containers("team", "train", claim("main", {"cdi_devices": [{"name": name} for name in cdi]})))
    assert found(allocations) == [(device, "train") for device in found_here]


def test_a_claim_that_two_containers_and_a_static_pod_share_is_given_to_each(serve, allocations):
    """All fields of the messages, as in kubelet's pkg/apis/podresources/v1/api.proto; a static pod has its node's name."""
    given = {"driver_name": "gpu.nvidia.com", "pool_name": "node-7", "device_name": "gpu-1", "share_id": "share-1"}
    given["cdi_devices"] = [{"name": f"k8s.gpu.nvidia.com/claim={UID}-gpu-1"}]
    static = containers("kube-system", "monitor-node-7", claim("a", given), cpu_ids=[2])
    serve(containers("team", "train", claim("a", given), claim("b", given)) + static)
    got = [(one.device, one.owner.namespace, one.owner.pod, one.owner.container) for one in allocations.read()]
    shared = [("gpu-1", "team", "train", container) for container in "ab"]
    assert got == [*shared, ("gpu-1", "kube-system", "monitor-node-7", "a")]


DYNAMIC = [
    ("gpu.nvidia.com", "gpu-2", "gpu-2"),
    ("gpu.nvidia.com", "gpu-0-mig-1g10gb-19-4", "gpu-0-mig-19-4"),
    ("gpu.nvidia.com", "gpu-0-mig-1g10gb-me-20-0", "gpu-0-mig-20-0"),
    ("gpu.nvidia.com", "gpu-vfio-1", "gpu-vfio-1"),
    ("gpu.amd.com", "gpu-3-130", "card3"),
    ("gpu.intel.com", "0000-03-00-0-0x56c0", "0000:03:00.0"),
    ("gpu.intel.com", "0000-b3-1f-7-0x0bda", "0000:b3:1f.7"),
    ("gpu.intel.com", "something-else", "something-else"),
    ("neuron.aws.com", "neuron-device-3", "neuron3"),
]


@pytest.mark.parametrize(("driver", "device", "name"), DYNAMIC)
def test_a_device_of_dynamic_allocation_has_the_name_that_collectors_give_it(serve, allocations, driver, device, name):
    serve(containers("team", "train", claim("main", {"driver_name": driver, "pool_name": "n", "device_name": device})))
    assert found(allocations) == [(name, "train")]


@pytest.mark.parametrize(
    ("resource", "device", "name"),
    [
        ("gpu.intel.com/i915", "card1-0", "card1"),
        ("gpu.intel.com/xe", "card1-7", "card1"),
        ("amd.com/gpu", "0000:03:00.0", "0000:03:00.0"),
        ("amd.com/gpu", "0000:03:00.0-slice-2", "0000:03:00.0"),
        ("amd.com/cpx_nps4", "amdgpu_xcp_3", "amdgpu_xcp_3"),
        ("amd.com/spx_nps1", "0000:19:00.0", "0000:19:00.0"),
        ("nvidia.com/gpu", "GPU-5a::0", "GPU-5a"),
        ("nvidia.com/gpu.shared", "GPU-5a::11", "GPU-5a"),
        ("nvidia.com/mig-1g.10gb.shared", "MIG-8d::1", "MIG-8d"),
        ("nvidia.com/gpu", "nvidia3", "nvidia3"),
        ("nvidia.com/gpu", "nvidia3/vgpu1", "nvidia3"),
        ("nvidia.com/gpu", "nvidia0/gi5", "0.5"),
        ("nvidia.com/gpu", "nvidia0/gi5/vgpu2", "0.5"),
        ("nvidia.com/a-name-of-the-site", "GPU-5a", "GPU-5a"),
        ("aws.amazon.com/neurondevice", "3", "neuron3"),
        ("google.com/tpu", "3", "tpu3"),
        ("nvidia.com/hostdev", "0000:3b:00.2", None),
        ("amd.com/nic", "0000:3b:00.2", None),
        ("gpu.intel.com/i915_monitoring", "all", None),
        ("vpc.amazonaws.com/efa", "0", None),
    ],
)
def test_a_device_of_a_plugin_has_the_name_that_collectors_give_it_if_it_is_an_accelerator(
    serve, resource, device, name, allocations
):
    serve(pod("team", "train", "main", resource, device))
    assert found(allocations) == ([(name, "train")] if name else [])


def test_a_kubelet_that_does_not_answer_costs_its_deadline_only(serve, monkeypatch, allocations):
    monkeypatch.setattr(kubelet, "TIMEOUT", 0.2)
    server = serve(b"")
    server.delay.clear()
    assert (allocations.read(), allocations.source) == ([], ""), "the next source is asked"
    assert "DEADLINE_EXCEEDED" in allocations.missing["kubelet"]
    server.delay.set()
    server.answer = pod("a", "b", "c", "nvidia.com/gpu", "GPU-1")
    monkeypatch.setattr(kubelet, "TIMEOUT", 20.0)
    assert [one.device for one in allocations.read()] == ["GPU-1"]
    assert allocations.missing == {}


def test_a_kubelet_that_restarts_is_asked_again(tmp_path, serve, allocations):
    path = tmp_path / "kubelet.sock"
    first = serve(pod("a", "b", "c", "nvidia.com/gpu", "GPU-1"))
    assert len(allocations.read()) == 1
    first.stop()
    assert [one.owner.pod for one in allocations.read()] == ["b"], "nobody else gives devices meanwhile"
    path.unlink(missing_ok=True)
    assert [one.owner.pod for one in allocations.read()] == ["b"]
    assert allocations.source == str(path)
    allocations._answered -= KEPT
    assert (allocations.read(), allocations.source) == ([], "")
    serve(pod("a", "b2", "c", "nvidia.com/gpu", "GPU-1"))
    assert [one.owner.pod for one in allocations.read()] == ["b2"]


@given(st.binary(max_size=200))
def test_any_answer_is_read_or_refused(data):
    with suppress(ValueError):
        assert all(one.device for one in kubelet.pod_devices(data))


@pytest.mark.parametrize(
    "answer", [b"\x0a\x05abc", b"\x0a\x02\xff\xff", b"\x0a\x06\x1a\x04\x0a\x02\xff\xfe", b"\x08" + b"\xff" * 12]
)
def test_an_answer_that_is_malformed_is_reported(serve, answer, allocations):
    serve(answer)
    assert found(allocations) == []
    assert "kubelet.sock" in allocations.missing["kubelet"]


def test_a_plugin_with_a_device_for_each_mib_hides_no_gpu_up_to_the_limit(serve, monkeypatch, allocations):
    monkeypatch.setattr(kubelet, "TIMEOUT", 20.0)
    shares = pod(
        "team", "part", "main", "volcano.sh/vgpu-memory", *(f"GPU-5a1b2c3d-{mib:050}" for mib in range(80_000))
    )
    server = serve(shares + pod("team", "train", "main", "nvidia.com/gpu", "GPU-5a::7"))
    assert 4 << 20 < len(server.answer) < kubelet.MAX_BYTES
    assert found(allocations) == [("GPU-5a", "train")]
    server.answer = shares * 4
    assert found(allocations) == [("GPU-5a", "train")], "the last answer counts for a while"
    assert "RESOURCE_EXHAUSTED" in allocations.missing["kubelet"]


def test_a_socket_that_nobody_serves_is_reported(tmp_path, allocations):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "kubelet.sock"))  # and closed at the end, as a killed kubelet leaves it
    assert found(allocations) == []
    assert "UNAVAILABLE" in allocations.missing["kubelet"]


def test_grpc_is_loaded_only_where_there_is_a_socket(tmp_path):
    program = (
        "import sys; from pathlib import Path; from chipwatch.collectors.jobs.allocations import Allocations\n"
        f"assert Allocations(Path({str(tmp_path)!r}), None, None, {{}}).read() == []\n"
        "print('grpc' in sys.modules)"
    )
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert asked.stdout.strip() == "False", asked.stderr
