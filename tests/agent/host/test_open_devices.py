import pytest

from chipwatch.host.open_devices import OpenDevices


@pytest.fixture
def proc(tmp_path):
    folder(tmp_path, 1, "/dev/null")
    return tmp_path


def folder(proc, pid, *files):
    place = proc / str(pid) / "fd"
    place.mkdir(parents=True, exist_ok=True)
    for n, file in enumerate(files, len([*place.iterdir()])):
        (place / str(n)).symlink_to(file)


def test_only_whole_names_of_devices_count(proc):
    folder(proc, 10, "/dev/accel0", "/dev/accel12", "/dev/accel0x", "socket:[1]", "/tmp/dev/accel3")
    folder(proc, 11, "/dev/accel")
    assert OpenDevices(proc, r"/dev/accel\d+").by_process() == {10: {"/dev/accel0", "/dev/accel12"}}


def test_a_process_that_opens_a_device_late_is_found_in_the_next_look_at_all(proc):
    devices = OpenDevices(proc, "/dev/accel0")
    folder(proc, 10, "/dev/null")
    assert devices.by_process() == {}
    folder(proc, 10, "/dev/accel0")
    folder(proc, 11, "/dev/accel0")
    assert set(devices.by_process()) == {11}, "new processes are looked at at once"
    devices._due = 0
    assert set(devices.by_process()) == {10, 11}


def test_without_the_right_to_see_the_first_process_nothing_is_known(tmp_path):
    assert OpenDevices(tmp_path, "/dev/accel0").by_process() is None
