"""docs/maintain/bounds.md has the program's own numbers; bounds that no other test goes over are gone over here."""

import re
import socket
from contextlib import closing, suppress
from importlib import import_module
from types import SimpleNamespace

import pytest
from tests.docs.test_links import ROOT

from chipwatch.collectors import kernel
from chipwatch.config.file import MAX_BYTES, read_file
from chipwatch.contract.errors import ConfigError
from chipwatch.net.status_socket import MAX_QUESTION, NAME, ask, serve

ROW = re.compile(r"^\| [^|]+ \| ([^|]+) \| `([\w/]+)\.py` `(\w+)` \|[^|]+\|[^|]+\|$", re.MULTILINE)


def test_each_bound_is_the_programs_own():
    rows = ROW.findall((ROOT / "docs/maintain/bounds.md").read_text())
    assert len(rows) >= 35
    for cell, module, name in rows:
        number = getattr(import_module(f"chipwatch.{module.replace('/', '.')}"), name)
        assert cell in (f"{number:,}", f"{number:g} s", f"{number / 2**20:g} MiB", f"{number / 2**10:g} KiB"), name


@pytest.mark.parametrize("over", [1, 1_000_000])
def test_a_configuration_above_its_bound_is_one_line(tmp_path, over):
    (tmp_path / "chipwatch.toml").write_bytes(b"#" * (MAX_BYTES + over))
    with pytest.raises(ConfigError, match="not a configuration: it has more than 1,048,576 bytes"):
        read_file(tmp_path / "chipwatch.toml")


@pytest.mark.parametrize("over", [1, 1_000_000])
def test_a_question_of_a_million_bytes_harms_nobody(tmp_path, over):
    with closing(serve(tmp_path, {"status": dict})):
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):  # it may be closed before all is sent
            client.connect(str(tmp_path / NAME))
            client.sendall(b"x" * (MAX_QUESTION + over))
        assert ask(tmp_path, "status", 60.0) == {}


def test_a_log_of_more_records_than_a_reading_takes_is_read_on_and_counted_once(tmp_path, monkeypatch):
    (tmp_path / "kmsg").touch()
    records = iter([*(b"4,%d,%d,-;Oops" % (n, n) for n in range(kernel.MAX_RECORDS + 1)), b""])
    with closing(kernel.KernelLog(tmp_path / "kmsg")) as log:
        monkeypatch.setattr(kernel, "os", SimpleNamespace(read=lambda *_: next(records)))
        assert [len([*log.read()]) for _ in range(2)] == [kernel.MAX_RECORDS, 1]
        assert (log.lost, log.is_drained) == (0, True)
