import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from chipwatch.collectors.cpu import CpuCollector
from chipwatch.collectors.disk import DiskCollector
from chipwatch.collectors.memory import MemoryCollector
from chipwatch.collectors.network import NetworkCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given
from chipwatch.host import procfs
from chipwatch.host.procfs import KeptFile, ProcessFiles, boot_time, count

PROC = Path(__file__).parents[2] / "fixtures/host/node_exporter/proc"


def test_a_kept_file_has_its_current_content(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    kept = KeptFile(path)
    assert kept.read() == b"old"
    path.write_bytes(b"newer")
    assert kept.read() == b"newer"
    path.write_bytes(b"")
    assert kept.read() == b""
    kept.close()


def test_a_file_larger_than_a_chunk_is_read_whole(tmp_path):
    path = tmp_path / "file"
    content = os.urandom(procfs.CHUNK * 3 + 17)
    path.write_bytes(content)
    assert KeptFile(path).read() == content


def test_a_file_that_the_kernel_returns_in_pieces_is_read_whole(monkeypatch, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    kept = KeptFile(path)
    pread = os.pread
    monkeypatch.setattr(procfs, "pread", lambda fd, size, offset: pread(fd, min(size, 3), offset))
    assert kept.read(procfs.PAGE) == b"0123456789"


def test_reading_ends_at_the_limit(monkeypatch, tmp_path):
    monkeypatch.setattr(procfs, "MAX_BYTES", 8)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    monkeypatch.setattr(procfs, "CHUNK", 4)
    assert KeptFile(path).read(procfs.PAGE) == b"x" * 8


@pytest.mark.parametrize("content", [b"", b"\xff", b"x 1", b"1 x", b"cpu", b"9" * 5000])
@pytest.mark.parametrize(
    ("collector", "name"),
    [(CpuCollector, "stat"), (CpuCollector, "loadavg"), (MemoryCollector, "meminfo"), (DiskCollector, "diskstats"),
     (NetworkCollector, "net/dev")],
)  # fmt: skip
def test_a_file_that_is_not_as_linux_writes_it_is_an_os_error_that_names_it(tmp_path, collector, name, content):
    for path in PROC.rglob("*"):
        if path.is_file() and str(path.relative_to(PROC)) in {"stat", "loadavg", "meminfo", "diskstats", "net/dev"}:
            (tmp_path / path.relative_to(PROC)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / path.relative_to(PROC))
    (tmp_path / "loadavg").write_text("0.1 0.2 0.3 1/2 3\n")
    paths = {"paths": ("/",), "sys": tmp_path / "none"} if collector is DiskCollector else {}
    reading = collector(collector.Config(proc=tmp_path, **paths))
    reading.open(Given(level=Level.ALL))
    (tmp_path / name).write_bytes(content)
    told = []
    try:
        list(reading.collect(7))
    except OSError as problem:
        told = [str(problem)]
    reading.close()
    assert all(text.startswith(f"{tmp_path / name} has an unknown format: ") for text in told)


def test_closing_twice_is_safe_and_reading_afterwards_is_an_os_error(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    kept = KeptFile(path)
    kept.close()
    kept.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        kept.read()


def test_the_file_of_a_dropped_reader_is_closed(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    kept = KeptFile(path)
    descriptor = kept._fd
    del kept
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc here")
def test_the_boot_time_of_this_machine_is_what_psutil_says():
    assert boot_time(Path("/proc")) == pytest.approx(psutil.boot_time() * 1e9, abs=2e9)


@pytest.mark.parametrize("content", [b"", b"cpu 1 2 3\n", b"btime \n", b"btime soon\n"])
def test_a_boot_time_that_cannot_be_read_is_none(tmp_path, content):
    (tmp_path / "stat").write_bytes(content)
    assert boot_time(tmp_path) is None


@pytest.mark.parametrize(("lines", "calls"), [(1, 1), (20, 1), (40, 3), (400, 15)])
def test_a_small_file_takes_one_call_and_one_that_comes_page_by_page_is_whole(monkeypatch, tmp_path, lines, calls):
    path, asked, pread = tmp_path / "file", [], os.pread
    content = b"".join(b"%099d\n" % n for n in range(lines))
    path.write_bytes(content)
    kept = KeptFile(path)

    def in_pages(fd, size, offset):
        asked.append(offset)
        return pread(fd, min(size, 3000), offset)  # a page of the kernel ends with the last record that fits

    monkeypatch.setattr(procfs, "pread", in_pages)
    assert kept.parse(bytes) == content
    assert len(asked) == calls


@pytest.mark.parametrize(
    ("word", "value"),
    [("0", 0), (f"{2**63 - 1}\n", 2**63 - 1), (f"{2**63}", None), (f"{2**64 - 1}", None), ("1_0", None)],
)
def test_a_count_with_all_bits_set_is_absent(word, value):
    assert (count(word), count(word.encode())) == (value, value)


def test_neither_a_pipe_nor_a_folder_in_the_place_of_a_file_blocks_a_reader(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    before = psutil.Process().num_fds()
    for name in ("pipe", "folder", "absent"):
        path = tmp_path / name
        assert (procfs.text(path), procfs.number(path), procfs.read(path)) == ("", None, b"")
        with pytest.raises(OSError, match=r"."):
            KeptFile(path).read()
    assert psutil.Process().num_fds() == before


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_a_file_of_a_process_stays_open_until_its_end():
    files = ProcessFiles(Path("/proc"))
    with subprocess.Popen(["sleep", "60"]) as process:
        opened = len([*Path("/dev/fd").iterdir()])
        for _ in range(2):
            assert files.read(process.pid, "stat").startswith(b"%d (" % process.pid)
        assert len([*Path("/dev/fd").iterdir()]) == opened + 1
        process.kill()
    with pytest.raises(FileNotFoundError):
        files.read(process.pid, "stat")
    assert len([*Path("/dev/fd").iterdir()]) == opened
