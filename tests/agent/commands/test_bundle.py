import json
import stat
import tarfile
import time

import pytest

from chipwatch.commands.bundle import pack, scrub
from chipwatch.config.load import load
from chipwatch.config.options import Config
from chipwatch.contract.errors import CommandError
from chipwatch.net.status_socket import serve

PLANTED = {
    "AKIAIOSFODNN7EXAMPLE": "an access key",
    "wJalrXUtnFEMI_K7MDENG_bPxRfiCYEXAMPLEKEY": "a secret key",
    "hunter2": "a password",
    "gpu-node-7": "a host",
    "10.1.2.3": "an address",
    "fe80::1c2b:3dff:fe4e:5f60": "an address",
    "2001:db8:0:0:1:0:0:1": "an address",
    "02:42:ac:11:00:02": "an address",
    "ada": "a user",
    "123456789012": "an account",
    "i-0123456789abcdef0": "an instance",
    "metrics.example.org": "a host",
    "s3cr3t-token": "a token",
    "1652221012345": "a serial number",
    "5c2d3e4f": "a UUID",
}
LINES = [
    "sink cloudwatch FAILED arn:aws:iam::123456789012:user/ada is not allowed on gpu-node-7",
    "collector openmetrics ok http://ada:hunter2@metrics.example.org:9400/metrics?token=s3cr3t-token",
    "peers 10.1.2.3, fe80::1c2b:3dff:fe4e:5f60, [2001:db8:0:0:1:0:0:1]:80 and 02:42:ac:11:00:02",
    "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI_K7MDENG_bPxRfiCYEXAMPLEKEY in /home/ada/.aws/credentials of i-0123456789abcdef0",
]
OF_MAKER = """Serial Number    : 1652221012345
GPU UUID : GPU-5c2d3e4f-1a2b-3c4d-5e6f-0123456789ab
Minor Number : 0, on gpu-node-7"""


@pytest.fixture
def packed(tmp_path, monkeypatch):
    monkeypatch.setenv("USER", "ada")
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat << 'END'\nProduct Name : H100\n{OF_MAKER}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    monkeypatch.setenv("CHIPWATCH_SINKS__CLOUDWATCH__PROFILE", "hunter2")
    config = tmp_path / "chipwatch.toml"
    config.write_text(
        '[collectors.openmetrics.endpoints.a]\nurl = "http://metrics.example.org/m"\ntoken = "s3cr3t-token"\n'
    )
    (tmp_path / "command.log").write_text("first line lost\n" * 5000 + "\n".join(LINES) + "\n")
    server = serve(
        tmp_path,
        {"status": lambda: {"sinks": {"cloudwatch": {"last_error": LINES[0]}}}, "log": lambda: {"lines": LINES}},
    )
    file = tmp_path / "bundle.tar.gz"
    pack(file, load(config, {"spool": str(tmp_path)}), LINES, {"hostname": "gpu-node-7"})
    server.close()
    return file


def read(file):
    with tarfile.open(file) as archive:
        return {entry.name: archive.extractfile(entry).read().decode() for entry in archive}


@pytest.mark.parametrize("secret", PLANTED)
def test_nothing_that_names_somebody_is_packed(packed, secret):
    for name, text in read(packed).items():
        assert secret not in text, f"{PLANTED[secret]} in {name}"


def test_what_the_makers_programs_print_is_packed(packed):
    lines = read(packed)["chipwatch/chips.txt"].splitlines()
    assert lines[:4] == ["$ nvidia-smi -q", "Product Name : H100", "Serial Number    : <serial>", "GPU UUID : <long>"]
    assert "$ tpu-info" in lines


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"password": "hunter2"}', '{"password": "<secret>"}'),
        ("password=hunter2 level=all", "password=<secret> level=all"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: <secret>"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "<secret>"),
        ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "..."),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\nvQ==\n-----END PRIVATE KEY-----", "..."),
        (r"http:\/\/ada:hunter2@h.example.org:80\/x", "http://<secret>@<host>:80/x"),
        ("http%3A%2F%2Fada%3Ahunter2%40h.example.org%2Fx", "http://<secret>@<host>/x"),
        (r"\u0061da", "<user>"),
        ("ada_job of ADA", "<user>_job of <user>"),
        ("grpc://h:4317 and host='h.example.org', port=443", "grpc://<host>:4317 and host='<host>', port=443"),
        ("no address of db.corp.internal and ip-10-1-2-3", "no address of <host> and <host>"),
        ("fe80::1%eth0 ::ffff:10.1.2.3 10.1.2.3.", "<address> <address> <address>."),
        (r"C:\Users\bob\x C:\\Users\\bob \\files\x", r"C:\Users\<user>\x C:\\Users\\<user> \\<host>\x"),
        ("SLURM_JOB_USER=bob", "SLURM_JOB_USER=<user>"),
        ("projects/team-models-7/x project_id=team-models-7", "projects/<project>/x project_id=<project>"),
        ("00-11-22-33-44-55", "<mac>"),
    ],
)
def test_odd_forms_of_secrets_and_names_are_found(text, left):
    assert scrub(text, {"ada": "<user>"}) == left


def test_what_is_secret_in_the_configuration_is_found_in_logs_and_a_name_beside_json_escapes(tmp_path, monkeypatch):
    monkeypatch.setenv("USER", "jos\N{LATIN SMALL LETTER E WITH ACUTE}")
    monkeypatch.setenv("SERVICE_TOKEN", "opensesame")
    config = Config(spool=tmp_path, project="models-7", sinks={"mine": {"headers": {"X-Team": "correct horse"}}})
    (tmp_path / "command.log").write_text("half a secret\n" + "x\n" * (32 << 10))
    status = {"sinks": ["opensesame for jos\N{LATIN SMALL LETTER E WITH ACUTE} in models-7", {"correct horse": 1}]}
    server = serve(tmp_path, {"status": lambda: status, "log": lambda: {"lines": ["ok"]}})
    pack(tmp_path / "bundle.tar.gz", config, [], {})
    server.close()
    parts = read(tmp_path / "bundle.tar.gz")
    assert json.loads(parts["chipwatch/status.json"]) == {
        "sinks": ["<secret> for <user> in <project>", {"<secret>": 1}]
    }
    assert json.loads(parts["chipwatch/config.json"])["sinks"] == {"mine": {"headers": "<1 set>"}}
    assert "secret" not in parts["chipwatch/log-command.log"]


def test_of_the_configuration_only_numbers_and_known_words_are_packed(tmp_path):
    sink = {"type": "otlp", "flavour": "plain", "endpoint_url": "http://h/?k=opensesame", "timeout": 5.0, "pin": "0815"}
    config = Config(
        spool=tmp_path, level="all", sink=("mine",), dims={"opensesame": "opensesame"}, pid=7, sinks={"mine": sink},
        collectors={"openmetrics": {"endpoints": {"opensesame": {"url": "http://opensesame/"}}, "token": 12345}},
    )  # fmt: skip
    (tmp_path / "opensesame.log").write_text("opensesame\n")
    pack(tmp_path / "bundle.tar.gz", config, [], {})
    parts = read(tmp_path / "bundle.tar.gz")
    assert "opensesame" not in str(parts)
    packed = json.loads(parts["chipwatch/config.json"])
    assert packed["sinks"] == {
        "mine": {"type": "otlp", "flavour": "plain", "endpoint_url": "<set>", "timeout": 5.0, "pin": "<set>"}
    }
    assert packed["collectors"] == {"openmetrics": {"endpoints": "<1 set>", "token": "<set>"}}
    assert (packed["level"], packed["sink"], packed["dims"], packed["pid"]) == ("all", ["mine"], "<1 set>", 7)
    assert (packed["spool"], packed["project"]) == ("<set>", None)


def test_versions_are_of_the_agents_own_libraries(packed):
    found = {line.split()[0] for line in read(packed)["chipwatch/versions.txt"].split("\n\n")[1].splitlines()}
    assert {"msgspec", "psutil"} <= found
    assert "pip" not in found


@pytest.mark.parametrize("part", ["a", "a.", "a-", ":", "1.", "a@", "/home", "token", "://", "%2", "\\", "0a:", "?"])
def test_a_long_text_is_searched_in_linear_time(part):
    text, began = part * (20_000 // len(part)), time.process_time()
    scrub(text, {"ada": "<user>"})
    assert time.process_time() - began < 2.0


def test_a_bundle_holds_what_a_ticket_needs(packed):
    parts = read(packed)
    assert stat.S_IMODE(packed.stat().st_mode) == 0o600
    assert {"check.txt", "chips.txt", "config.json", "log.txt", "log-command.log", "status.json", "versions.txt"} == {
        name.removeprefix("chipwatch/") for name in parts
    }
    assert "chipwatch 0." in parts["chipwatch/versions.txt"]
    assert "CHIPWATCH_SINKS__CLOUDWATCH__PROFILE" in parts["chipwatch/versions.txt"]
    assert json.loads(parts["chipwatch/config.json"])["interval"] == 5
    assert "is not allowed" in parts["chipwatch/status.json"]
    assert "is not allowed" in parts["chipwatch/log.txt"]
    assert len(parts["chipwatch/log-command.log"]) <= 64 << 10


def test_a_file_that_is_there_is_not_overwritten(tmp_path):
    file = tmp_path / "bundle.tar.gz"
    file.write_text("mine")
    with pytest.raises(CommandError, match=r"--bundle: .*File exists"):
        pack(file, Config(spool=tmp_path), [], {})
    assert file.read_text() == "mine"


def test_times_versions_and_counts_stay_readable():
    text = "2026-11-22T10:00:05.123Z chipwatch 0.1.0: 2,825 points kept; Linux 6.18.44; series 12345"
    assert scrub(text, {}) == text
