import io
import sys
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge
from chipwatch.contract.facts import DeviceProcess
from chipwatch.show.report.devices import DeviceState
from chipwatch.show.top import terminal
from chipwatch.show.top.draw import bar, fit, flow, scaled, width_of
from chipwatch.show.top.graphs import graph
from chipwatch.show.top.live import Frame
from chipwatch.show.top.machine import ListedProcess, MachineState
from chipwatch.show.top.processes import ProcessTable
from chipwatch.show.top.program import Top
from chipwatch.show.top.screen import GUIDES, Notes, compose
from chipwatch.show.top.table import Column, cells_of, ordered, title_at
from chipwatch.show.top.terminal import keys
from chipwatch.show.top.view import View

AT, S = 1_795_168_805_000_000_000, 10**9
SIZES = [(1, 1), (40, 10), (60, 20), (79, 24), (80, 24), (100, 30), (159, 50), (160, 50), (240, 60), (500, 200)]


def metric(name, unit="%"):
    return gauge(name, unit, "G.")


def point(name, value, at=AT, **dims):
    return metric(name).point(at, value, Dimensions(dims))


def asks(action, state, value=1.0):
    return [point("gpu.recovery_action", value, gpu="0", action=action), point("gpu.state", state, gpu="0")]


def rise(name, increase, at=AT, **dims):
    return Datapoint(counter(name, "s", "C."), 10.0, Dimensions(dims), at, AT - 9 * S, at - S, None, increase)


def machine(*points, at=AT, processes=(), holding=None):
    made = MachineState()
    made.take(points, at, processes, {(("gpu", "0"),): holding or DeviceState()})
    return made


def test_accelerators_of_every_make_are_rows_in_the_order_of_their_numbers():
    made = machine(
        point("gpu.utilization", 10.0, gpu="10", hostname="n"),
        point("gpu.utilization", 9.0, gpu="9", hostname="n"),
        point("tpu.duty_cycle", 7.0, tpu="0"),
        point("ipu.utilization", 8.0, ipu="1"),
        point("neuron.core.utilization", 6.0, neuron_device="0", neuron_core="3"),
    )
    assert [(one.label, one.get("utilization")) for one in made.devices] == [
        ("9", 9.0), ("10", 10.0), ("1", 8.0), ("0.3", 6.0), ("0", 7.0),
    ]  # fmt: skip


def test_an_instance_of_a_gpu_shows_the_temperature_of_the_gpu_and_its_own_memory():
    made = machine(
        point("gpu.temperature", 60.0, gpu="0"),
        point("gpu.memory.used", 5.0, gpu="0"),
        point("gpu.memory.used", 2.0, gpu="0", mig="1"),
    )
    whole, part = made.devices
    assert (part.label, part.get("temperature"), part.get("used")) == ("0.1", 60.0, 2.0)
    assert (whole.label, whole.get("used")) == ("0", 5.0)


def test_memory_by_category_is_summed_for_each_tick():
    def used(at):
        return [point("neuron.core.memory.used", 3.0, at, neuron_core="0", neuron_device="0", category=c) for c in "ab"]

    made = machine(*used(AT))
    made.take(used(AT + S), AT + S)
    assert made.devices[0].get("used") == 6.0


def test_a_throttle_is_a_letter_until_a_reading_without_it():
    both = ("thermal", 0.4), ("power", 0.0)
    made = machine(*(rise("gpu.throttled", seconds, gpu="0", reason=reason) for reason, seconds in both))
    assert made.devices[0].flags == "T"
    made.take([rise("gpu.throttled", 0.0, AT + 10 * S, gpu="0", reason="thermal")], AT + 10 * S)
    assert made.devices[0].flags == ""


@pytest.mark.parametrize(
    ("points", "state"),
    [
        ([point("gpu.utilization", 0.0, gpu="0")], ("", "dim")),
        ([point("gpu.state", 0.0, gpu="0")], ("lost", "bad")),
        ([point("gpu.state", 0.0, gpu="0"), point("gpu.xid", 1.0, gpu="0", xid="79")], ("lost (Xid 79)", "bad")),
        ([point("gpu.state", 0.0, gpu="0"), point("gpu.power", 9.0, gpu="0")], ("failing", "bad")),
        (asks("gpu_reset", 0.0), ("gpu reset", "bad")),
        ([point("gpu.state", 1.0, gpu="0"), point("gpu.xid", 1.0, gpu="0", xid="13")], ("", "dim")),
        ([*asks("node_reboot", 0.0), point("gpu.xid", 1.0, gpu="0", xid="95")], ("node reboot (Xid 95)", "bad")),
        (asks("drain_p2p", 1.0), ("drain p2p", "warn")),
        (asks("unknown (9)", 1.0), ("unknown (9)", "warn")),
        ([*asks("drain_p2p", 1.0, 0.0), point("gpu.utilization", 5.0, gpu="0")], ("", "dim")),
        ([point("gpu.ecc.uncorrected", 3.0, gpu="0")], ("ECC 3", "bad")),
        ([point("neuron.ecc.events", 3.0, neuron_device="0", corrected="yes")], ("", "dim")),
        ([point("neuron.ecc.events", 3.0, neuron_device="0", corrected="no")], ("ECC 3", "bad")),
    ],
)  # fmt: skip
def test_the_state_says_what_is_wrong_or_why_it_is_idle(points, state):
    assert machine(*points).devices[0].state == state


@pytest.mark.parametrize(
    ("holding", "state", "bar"),
    [
        (DeviceState(state="free", active=0.0), ("free", "dim"), 0),
        (DeviceState(state="unknown", reason="a list", active=0.9), ("holder not known", "warn"), 90),
        (DeviceState(state="unknown", reason="a list", active=0.0), ("holder not known", "warn"), 0),
        (DeviceState(state="stalled", cause="data", jobs=["7"], active=0.4), ("stalled: data", "dim"), 40),
    ],
    ids=["free", "busy", "idle", "stalled"],
)
def test_state_and_bar_are_of_the_same_time_and_only_an_idle_device_is_free(holding, state, bar):
    (device,) = machine(point("gpu.utilization", 86.0, gpu="0"), processes=[], holding=holding).devices
    assert (device.state, device.get("utilization")) == (state, bar)


@pytest.mark.parametrize(("jobs", "said"), [(("7",), "held 14 min"), (("8",), "stalled: data")])
def test_the_agent_that_runs_here_says_what_a_device_does_if_it_knows_of_the_same_jobs(jobs, said):
    told = {(("gpu", "0"),): DeviceState(state="held", cause="held", jobs=jobs, active=0.9, seconds_since_kernel=840.0)}
    top = Top("n", None, {}, SimpleNamespace(parts=[], holding=told))
    own = DeviceState(state="stalled", cause="data", jobs=("7",), active=0.0)
    frame = Frame(AT, [point("gpu.state", 1.0, gpu="0")], holding={(("gpu", "0"),): own})
    top.take(SimpleNamespace(rewound=False, new=lambda: [frame]))
    assert [(device.state[0], device.busy) for device in top.machine.devices] == [(said, 0.0)]


def test_a_device_that_falls_silent_says_so_and_its_figures_end_later():
    made = machine(point("gpu.utilization", 50.0, gpu="0"))
    for second in range(1, 40):
        made.take([], AT + second * S)
        device = made.devices[0]
        assert (device.state[0] == f"no answer for {second} s") == (second > 3)
        assert (device.get("utilization") == 50.0) == (second <= 30)


def test_a_counter_of_the_host_is_shown_as_a_rate():
    made = machine(rise("network.received", 500.0))
    assert made.of_host("network.received") == 500.0
    first = Datapoint(counter("network.sent", "By", "N."), 5.0, Dimensions(), AT)
    assert machine(first).of_host("network.sent") is None


def test_a_graph_has_a_mean_for_each_step_and_gaps_where_nothing_was_read():
    made = MachineState()
    for second, value in ((0, 10.0), (1, 30.0), (6, 50.0)):
        made.take([point("cpu.utilization", value, AT + second * S)], AT + second * S)
    means = made.trends["cpu.utilization"].means(AT + 7 * S, 2, 5)  # the intervals begin at even seconds, AT is odd
    assert means == [10.0, 30.0, None, 50.0, None]
    means = made.trends["cpu.utilization"].means(AT + 6 * S, 0.5, 5, longest=2)
    assert means == [None, None, None, None, 50.0]
    means = made.trends["cpu.utilization"].means(AT + 5 * S, 0.5, 5, longest=2)
    assert means == [30.0, None, None, None, None], "the first interval continues the reading before it"


def test_bar_and_state_are_of_the_last_minute_and_begin_again_with_other_jobs():
    made = MachineState()

    def after(seconds, loads, jobs=("7",)):
        for second, load in zip(range(*seconds), loads * 99, strict=False):
            state = "busy" if load > 50 else "stalled"
            holding = DeviceState(state=state, cause="data", jobs=jobs, active=load / 100)
            made.take(
                [point("gpu.state", 1.0, AT + second * S, gpu="0")], AT + second * S, [], {(("gpu", "0"),): holding}
            )
        (device,) = made.devices
        return device.busy, device.state[0], device.history(4)

    assert after((0, 100), [90, 0, 0]) == (30.0, "stalled: data", [30.0] * 4)
    assert after((100, 160), [90])[:2] == (90.0, "busy")
    assert after((160, 164), [0])[:2] == (84.0, "busy"), "a pause is not yet its state"
    assert after((164, 166), [0], jobs=("8",))[:2] == (0.0, "stalled: data")
    held = DeviceState(state="held", cause="held", jobs=("8",), active=0.0, seconds_since_kernel=60.0)
    made.take([], AT + 165 * S, [], {(("gpu", "0"),): held})
    assert made.devices[0].state[0] == "held 1 min", "its own minute has passed"
    assert after((166, 168), [90], jobs=("8",))[1] == "busy", "it is held no longer"
    made.take([point("gpu.state", 0.0, AT + 168 * S, gpu="0")], AT + 168 * S)
    assert made.devices[0].state == ("lost", "bad"), "a fault is shown at once"


@pytest.mark.parametrize(
    ("percent", "text"), [(0, "····"), (50, "██··"), (53, "██▏·"), (100, "████"), (250, "████"), (None, "····")]
)
def test_a_bar_is_as_full_as_its_share(percent, text):
    assert "".join(part for part, _ in bar(percent, 4)) == text
    assert bar(percent, 80)[0][0].startswith("█" * min(80, (percent or 0) * 80 // 100))
    assert width_of(bar(percent, 80)) == 80


def test_processes_are_shown_where_six_lines_are_left():
    made = machine(point("gpu.utilization", 5.0, gpu="0"))
    (device,) = made.devices
    made.processes = [ListedProcess(device.key, 7, "ada", 1.0, 2.0, 3.0, "train.py", "")]

    def is_shown(height):
        lines = compose(made, View(), (80, height), Notes("n"))
        return any("train.py" in text for line in lines for text, _ in line)

    assert [is_shown(height) for height in (10, 11, 12, 13, 24)] == [False, False, True, True, True]


def test_figures_of_a_table_descend_texts_ascend_and_absent_values_are_last():
    columns = [Column("figure", 6, str, lambda row: row), Column("text", 4, lambda row: (row, ""))]
    assert ordered([1, None, 0, 3.5], columns, "figure", reverse=False) == [3.5, 1, 0, None]
    assert ordered(["b", "-", "A", ""], columns, "text", reverse=False) == ["A", "b", "", "-"]
    assert ordered(["b", "a"], columns, "none", reverse=True) == ["a", "b"]


def test_a_click_hits_the_column_under_it():
    columns = [Column("a", 4, str), Column("b", 6, str, percent=float), Column("c", 1, str, rest=True)]
    assert [title_at(columns, 40, x) for x in (0, 5, 6, 36, 37, 39, 40)] == ["a", "a", "b", "b", "c", "c", ""]
    assert cells_of(columns, 40) == 22


def test_a_graph_in_braille_has_two_values_a_cell_and_four_dots_a_row():
    assert graph([0, 25, 50, 100, None, 100], 1, 100) == ["⣀⣼⢸"]
    assert graph([100, 50], 2, 100) == ["⡇", "⣿"]


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [(0, 1000, "0"), (999, 1000, "999"), (1000, 1000, "1.0K"), (12_345, 1000, "12K"), (1.5 * 2**30, 1024, "1.5G")],
)
def test_numbers_are_short(value, step, text):
    assert scaled(value, step) == text


def test_lines_are_cut_and_filled_to_the_width_of_the_screen():
    assert fit([("wide 日本語", ""), ("x", "bad")], 8) == [("wide 日 ", "")]
    assert width_of(fit([("ab", "")], 5)) == 5
    assert [width_of(line) for line in flow([[("aaaa", "")], [("bbb", "")], [("cc", "")]], 10)] == [10, 2]


def test_wide_characters_shift_no_column():
    made = machine(
        *(point("gpu.utilization", 100.0, gpu=n) for n in "01"), point("disk.utilization", 1.0, path="/デー")
    )
    users = "\N{PANDA FACE}" * 9, "ada"
    held = [DeviceState(jobs=[user], users=[user], state="busy", active=1.0) for user in users]
    made.take([], AT + S, holding=dict(zip([device.key for device in made.devices], held, strict=True)))
    for device, model, user in zip(made.devices, ("日本語" * 9, "A"), users, strict=True):
        device.model = model
        made.processes = [*made.processes, ListedProcess(device.key, 7, user, 1.0, 2.0, 3.0, "train.py", user)]
    lines = ["".join(part for part, _ in line) for line in compose(made, View(), (120, 40), Notes("n"))]
    for end in (" 100  ", "busy  ", "train.py"):
        first, second = (cell_len(line[: line.index(end)]) for line in lines if end in line)
        assert first == second
    assert all(cell_len(line) == 120 for line in lines)


def test_control_characters_are_replaced_before_a_terminal_gets_them():
    assert fit([("python \x1b]0;title\x07\x9b31m\u202e", "")], 24) == [
        ("python \ufffd]0;title\ufffd\ufffd31m\ufffd", ""),
        ("  ", ""),
    ]


@pytest.mark.parametrize("name", ["gpu.xid", "gpu.utilization"])
@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "日本語" * 9, "e\u0301" * 30, "9" * 5000, "\ud800", ""])
def test_any_name_of_a_device_or_an_error_leaves_a_whole_screen_of_any_size(name, text):
    dims = Dimensions(gpu=text, xid=text, hostname="n")
    many = (point("gpu.utilization", float(n), gpu=str(n)) for n in range(16))
    made = machine(Datapoint(counter(name, "1", "C."), 5.0, dims, AT), point("disk.utilization", 5.0, path=text), *many)
    for size in SIZES:
        lines = compose(made, View(cores=True), size, Notes(text, troubles=[text]))
        assert [width_of(line) for line in lines] == [size[0]] * size[1]
        assert all(part.isprintable() for line in lines for part, _ in line)


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324, -5.0])
def test_impossible_figures_leave_a_screen(value):
    names = ("gpu.power", "gpu.power.limit", "gpu.utilization", "gpu.memory.used", "gpu.memory.total")
    made = machine(*(point(name, value, gpu=str(n)) for n in range(3) for name in names))
    assert len(compose(made, View(), (200, 50), Notes("n"))) == 50


def test_the_help_fits_on_a_terminal_of_80_columns():
    shown = ["".join(text for text, _ in line) for line in compose(machine(), View(help=True), (80, 24), Notes("n"))]
    for task, rows in GUIDES["machine"].tasks:
        at = shown.index(f"{task:80}")
        assert [line.strip() for line in shown[at + 1 : at + 1 + len(rows)]] == [
            f"{key:15} {text}" for key, text in rows
        ]
    assert "absent is not zero" in "".join(shown)


def test_the_selected_row_follows_its_device_and_stays_on_the_screen():
    made = machine(*(point("gpu.utilization", float(n), gpu=str(n)) for n in range(30)))
    view = View()

    def marked():
        lines = compose(made, view, (80, 24), Notes("n"))
        return [line[0][0].split()[0] for line in lines if line[0][1] == "cursor"]

    assert marked() == []
    for key, number in (("end", "29"), ("up", "28"), ("home", "0"), ("wheel down", "3"), ("pagedown", "15")):
        view.press(key)
        assert marked() == [number]
    assert "above, " in "".join(text for text, _ in compose(made, view, (80, 24), Notes("n"))[-1])
    view.press("s")
    view.press("r")
    assert marked() == ["15"]
    view.press("escape")
    assert marked() == []


def test_many_sinks_leave_room_for_the_accelerators():
    delivery = [[(f"sink{n} ok sent 1, kept 0 {'x' * 40}", "")] for n in range(60)]
    lines = compose(machine(point("gpu.utilization", 55.0, gpu="7")), View(), (80, 24), Notes("n", "", delivery))
    assert any("55" in text for line in lines for text, _ in line)


def test_a_process_of_an_impossible_number_is_listed_without_a_user():
    (process,) = ProcessTable().on_devices([DeviceProcess(Dimensions(gpu="0"), -1)])
    assert (process.pid, process.user) == (-1, "")


def test_a_terminal_of_another_encoding_is_sent_question_marks(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert "日x\u00e9".encode(terminal.Terminal()._encoding, "replace") == b"?x?"


def test_keys_of_terminals_have_names_and_unknown_sequences_are_left_out():
    names = "q up down pageup escape backspace enter"
    assert [*keys("q\x1b[A\x1bOB\x1b[5~\x1b[200~\x1b\x7f\r")] == names.split()
    assert [*keys("\x1b[<0;5;7M\x1b[<0;1;1m")] == ["click 4 6"]
