"""Names of nodes: names, ranges, files, and lists of Slurm and Kubernetes."""

import os

import pytest

from chipwatch.contract.errors import ConfigError
from chipwatch.show.fleet.hosts import NodeAddress, addresses, output_of


def named(*words, by_ssh=False, run=None):
    return addresses(words, by_ssh=by_ssh, run=run)


def test_a_name_is_asked_for_its_page():
    assert named("node-7") == [NodeAddress("node-7", "http", "node-7", 9465, "/metrics")]
    assert named("https://node-7:9000/x")[0] == NodeAddress("node-7:9000", "https", "node-7", 9000, "/x")
    assert named("http://[::1]:9465/")[0] == NodeAddress("[::1]", "http", "::1", 9465, "/metrics")


def test_ranges_are_written_as_slurm_writes_them_and_a_node_that_is_named_twice_has_one_line():
    assert [node.name for node in named("a[1-2]", "a2", "a3")] == ["a1", "a2", "a3"]
    names = [node.name for node in named("rack[1-2]n[08-10,20]", "gpu[001-003],cpu7")]
    assert names == [
        "rack1n08", "rack1n09", "rack1n10", "rack1n20", "rack2n08", "rack2n09", "rack2n10", "rack2n20",
        "gpu001", "gpu002", "gpu003", "cpu7",
    ]  # fmt: skip


def test_one_host_that_is_asked_in_two_ways_has_two_lines():
    names = ["n1", "n1 (http://n1/other)", "n1 (ssh://n1)"]
    assert [node.name for node in named("n1", "n1/metrics", "n1/other", "ssh://n1")] == names
    pods = named("k8s:app=chipwatch", run=lambda _: "10.0.0.1 n1\n10.0.0.2 n1\n")
    assert [node.name for node in pods] == ["n1", "n1 (http://10.0.0.2/metrics)"]


def test_names_go_by_ssh_where_that_is_asked_for_or_written():
    assert named("ada@n1:2222", by_ssh=True) == [NodeAddress("ada@n1:2222", "ssh", "ada@n1", 2222)]
    assert [node.scheme for node in named("ssh://n[1-2]", "http://n3", by_ssh=False)] == ["ssh", "ssh", "http"]


@pytest.mark.parametrize(
    "word",
    ["-oProxyCommand=x", "ssh://-oProxyCommand=x", "ssh://-x@n1", "n1;id", "n 1", "$(id)", "n1\n-x", "", "http://",
     "gpu[1-", "gpu[5-1]", "gpu[1-99999999]", "gpu[a-b]", "n1:0", "n1:65536", "ada@n1", "ssh://n1/metrics", "ftp://n1",
     "slurm:--help", "slurm:", "k8s:-x", "k8s:$(id)", "@/does/not/exist", "n[,]",
     "a" * 64, "a..b", f"n1.{'b' * 64}", "@/dev/zero", "@/dev/null", ",",
     f"n[{'1' * 5000}]", f"n[1-{'1' * 5000}]", "n[1-]", "n[-1]", "n[1-2-3]"],
)  # fmt: skip
def test_a_bad_name_is_refused_before_anything_is_asked(word):
    def run(command):
        pytest.fail(f"{command} ran")

    with pytest.raises(ConfigError) as problem:
        named(word, run=run)
    assert len(str(problem.value)) < 200


def test_more_nodes_than_a_screen_can_use_are_refused():
    with pytest.raises(ConfigError, match="more than 10,000"):
        named("a[1-9000]", "b[1-9000]")
    with pytest.raises(ConfigError, match="more than 10,000"):
        named("[1,1,1,1,1,1,1,1,1,1]" * 8)
    with pytest.raises(ConfigError, match="more than 10,000"):
        named("a," * 300_000)  # in less than a second


def test_a_name_of_many_ranges_is_a_name():
    assert named("a[1]b[2]" + "[3]" * 40)[0].name == "a1b2" + "3" * 40
    with pytest.raises(ConfigError, match="expected a name"):
        named("[1]" * 2000)


def test_a_file_has_names_ranges_and_comments(tmp_path):
    (tmp_path / "nodes").write_text("# rack 1\nn[1-2]\n\nssh://n3  # by ssh\n")
    assert [(node.name, node.scheme) for node in named(f"@{tmp_path}/nodes")] == [
        ("n1", "http"), ("n2", "http"), ("n3", "ssh"),
    ]  # fmt: skip
    (tmp_path / "windows").write_bytes("\ufeffn1\r\nn2\r\n".encode())
    assert [node.name for node in named(f"@{tmp_path}/windows")] == ["n1", "n2"]
    (tmp_path / "long").write_text("node-000000001\n" * 300_000)
    with pytest.raises(ConfigError, match="longer than 4 MiB"):
        named(f"@{tmp_path}/long")
    (tmp_path / "more").write_text(f"@{tmp_path}/nodes\n")
    with pytest.raises(ConfigError, match="another list"):
        named(f"@{tmp_path}/more")


def test_slurm_lists_the_nodes_of_a_job_and_of_a_partition():
    asked = []

    def run(command):
        asked.append(command)
        return "gpu[001-002]\ngpu007\n"

    assert [node.name for node in named("slurm:41337", run=run)] == ["gpu001", "gpu002", "gpu007"]
    nodes = named("slurm:h100", by_ssh=True, run=run)
    assert [(node.scheme, node.partition) for node in nodes] == [("ssh", "h100")] * 3
    assert asked[0] == ("squeue", "--noheader", "--format=%N", "--jobs=41337")
    assert asked[1] == ("sinfo", "--noheader", "--Node", "--format=%N", "--partition=h100")
    with pytest.raises(ConfigError, match="squeue names no node"):
        named("slurm:1", run=lambda _: "")


def test_kubernetes_lists_pods_under_the_names_of_their_nodes():
    nodes = named("k8s:app=chipwatch", run=lambda _: "10.0.0.1 n1\n10.0.0.2 n2\n fe80::1 \nfd00::1 n3\n")
    assert nodes == [
        NodeAddress("n1", "http", "10.0.0.1", 9465), NodeAddress("n2", "http", "10.0.0.2", 9465),
        NodeAddress("n3", "http", "fd00::1", 9465),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="kubectl names no running pod"):
        named("k8s:a=b", run=lambda _: "")


def test_the_lists_come_from_the_programs_of_the_system(tmp_path, monkeypatch):
    program = tmp_path / "squeue"
    program.write_text('#!/bin/sh\necho gpu[1-2]; echo "$@" > ' + str(tmp_path / "words") + "\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert [node.name for node in named("slurm:7_1")] == ["gpu1", "gpu2"]
    assert (tmp_path / "words").read_text() == "--noheader --format=%N --jobs=7_1\n"
    with pytest.raises(ConfigError, match="cannot be started"):
        output_of(["no-such-program"])
    program.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id' >&2; exit 1\n")
    with pytest.raises(ConfigError, match="Invalid job id"):
        output_of(["squeue"])
    program.write_text("#!/bin/sh\necho gpu1; echo 'slurmctld is away' >&2; exit 1\n")
    with pytest.raises(ConfigError, match=r"no whole list.*slurmctld is away"):
        output_of(["squeue"])
