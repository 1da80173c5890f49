"""Which alarms there are, whatever the cloud: what is watched, when it is too much, and what to do then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from agent.commands.dashboard.options import Wishes
from agent.commands.dashboard.sent import Found, Sent
from agent.config.convert import ConfigError, nearest
from agent.datapoint import Kind

Statistic = Literal["mean", "min", "max", "sum", "rate", "absent"]
"""Of a period: of a gauge's values; how far a counter rose, or its rise a second; or that nothing comes."""


class Rule(NamedTuple):
    """An alarm, before it is known how the metric is sent."""

    key: str
    """Its name; a promise for ever."""
    metric: str
    statistic: Statistic
    below: bool
    """It is wrong to be below the threshold, not above."""
    threshold: float
    """In the metric's unit; of a counter of seconds: seconds a second."""
    minutes: float
    """For how long."""
    title: str
    text: str
    """What it means, and what to do."""
    but: tuple[tuple[str, str], ...] = ()
    """Dimensions and values of series that are of no interest."""
    severe: bool = False


RULES: Final = (
    Rule(
        "container-memory-full",
        "container.memory.utilization",
        "max",
        False,
        95,
        10,
        "Container memory near its limit",
        "A container uses nearly all the memory that it may. At the limit the kernel kills a process in it. Look "
        "for what grows (data loaders, caches), or raise the limit.",
        severe=True,
    ),
    Rule(
        "gpu-ecc-uncorrected",
        "gpu.ecc.uncorrected",
        "sum",
        False,
        0,
        1,
        "GPU memory error that was not corrected",
        "A GPU met a memory error that ECC could not correct; the process that used it has ended or its results "
        "are in doubt. Drain the machine, reset the GPU (nvidia-smi --gpu-reset), and have it replaced if it "
        "happens again.",
        severe=True,
    ),
    Rule(
        "gpu-idle",
        "gpu.utilization",
        "mean",
        True,
        5,
        60,
        "GPU idle",
        "A GPU that is paid for does next to nothing. See whether the job has ended, hangs or waits for data "
        "(CPU, disk and network are on the dashboard); stop the machine if nobody needs it.",
    ),
    Rule(
        "gpu-lost",
        "gpu.state",
        "min",
        True,
        1,
        2,
        "GPU lost or in need of a reset",
        "A GPU has fallen off the bus or asks for a reset; jobs on this machine fail or hang. Drain the machine, "
        "see dmesg for XID messages, reset the GPU or reboot; have it replaced if it comes back.",
        severe=True,
    ),
    Rule(
        "gpu-memory-full",
        "gpu.memory.utilization",
        "max",
        False,
        98,
        15,
        "GPU memory near its limit",
        "A GPU's memory is nearly full: the next allocation may end the job. Make batches smaller, or shard the "
        "model. Frameworks that take all memory at the start (JAX, TensorFlow) always look so: raise this "
        "threshold for them.",
    ),
    Rule(
        "gpu-throttled",
        "gpu.throttled",
        "rate",
        False,
        0.2,
        15,
        "GPU held back",
        "A GPU's clocks are held down for a good part of the time by heat, the board's limits or its voltage. "
        "Look at temperatures and fans on the dashboard, then at the cooling of the machine; on a cloud, move to "
        "another one.",
        but=(("reason", "low_utilization"), ("reason", "power"), ("reason", "sync_boost")),
    ),
    Rule(
        "gpu-xid",
        "gpu.xid",
        "sum",
        False,
        0,
        1,
        "GPU error (XID)",
        "The driver reported an error of a GPU. The dimension xid is its number: NVIDIA's list of XID errors says "
        "whether the application is at fault (13, 31, 43, 45) or the hardware (48, 63, 64, 74, 79, 94, 95): drain "
        "it then.",
        severe=True,
    ),
    Rule(
        "memory-full",
        "memory.utilization",
        "max",
        False,
        95,
        10,
        "Memory near its limit",
        "A machine has next to no memory left; soon the kernel ends the largest process, which is the training. "
        "Look for what grows: data loader workers, caches, pinned buffers.",
    ),
    Rule(
        "neuron-core-busy",
        "neuron.core.utilization",
        "mean",
        False,
        95,
        30,
        "Neuron core busy",
        "A Neuron core has been busy without a break. For training that is what you want: raise the threshold. "
        "For serving there is no headroom left: add replicas, or spread the runtimes over more cores. With the "
        "dimension neuron_runtime_tag the alarm names the runtime.",
    ),
    Rule(
        "neuron-core-idle",
        "neuron.core.utilization",
        "mean",
        True,
        5,
        60,
        "Neuron core idle",
        "A Neuron core that a runtime holds does next to nothing. See whether the job hangs, waits for data or "
        "has ended without letting go; stop the machine if nobody needs it.",
    ),
    Rule(
        "neuron-ecc-uncorrected",
        "neuron.ecc.events",
        "sum",
        False,
        0,
        1,
        "Neuron memory error that was not corrected",
        "A Neuron device met a memory error that ECC could not correct; results are in doubt. Stop and start the "
        "instance, which moves it to other hardware, and tell AWS.",
        but=(("corrected", "yes"),),
        severe=True,
    ),
    Rule(
        "tpu-idle",
        "tpu.duty_cycle",
        "mean",
        True,
        5,
        60,
        "TPU idle",
        "A TPU that is paid for does next to nothing. See whether the job has ended, hangs or waits for data; "
        "delete the node if nobody needs it.",
    ),
    Rule(
        "tpu-memory-full",
        "tpu.memory.utilization",
        "max",
        False,
        98,
        15,
        "TPU memory near its limit",
        "A TPU's memory is nearly full: the next allocation may end the job. Make batches smaller, or shard the model.",
    ),
)
SILENT: Final = (
    Rule(
        "agent-silent",
        "",
        "absent",
        True,
        1,
        10,
        "A machine is silent",
        "Fewer machines send metrics than there are. The alarm lasts until all of them send again, or until fewer "
        "are expected. The dashboard shows whose graphs have ended: see whether that machine is up; then "
        "`agent health` and `agent check` on it, and the log of the agent say what is wrong.",
    ),
    Rule(
        "fleet-silent",
        "",
        "absent",
        True,
        1,
        10,
        "No machine sends metrics",
        "Nothing sends metrics any more. If machines should be up, look at what they share: the role's right to "
        "send, the network's way out, the last change to the agent's configuration. Points wait in the spools "
        "meanwhile.",
        severe=True,
    ),
)
SIGNS: Final = ("cpu.utilization", "memory.utilization", "memory.used", "neuron.runtimes")
"""Metrics whose absence tells that nobody sends, the best first; if none is sent, any other will do. Of Neuron, most
others end with the job."""
TALLIES: Final = ("network.sent", "network.received", "disk.read", "disk.written")
"""Counters by which machines are counted, the best first: a counter is one value a window, however many its samples."""
KEYS: Final = tuple(sorted(rule.key for rule in (*RULES, *SILENT)))


class Alarm(NamedTuple):
    """An alarm about a metric as it is sent."""

    name: str
    rule: Rule
    sent: Sent
    threshold: float
    """In the unit that is sent."""
    minutes: float


def alarms(found: Found, wishes: Wishes) -> tuple[list[Alarm], list[str]]:
    """Return the alarms, sorted by name, and which ones are left out; raise ConfigError for an unknown name."""
    for key in (*wishes.thresholds, *wishes.minutes):
        if key not in KEYS:
            raise ConfigError(f"no such alarm {key!r}{nearest(key, KEYS)}")
    made: list[Alarm] = []
    notes: list[str] = []
    for rule in RULES:
        about = [sent for sent in found.sent if sent.metric.name == rule.metric]
        fit = [sent for sent in about if _can_tell(rule, sent)]
        made += _about(rule, fit, wishes)
        family = rule.metric.partition(".")[0]
        if not fit and any(sent.metric.name.startswith(f"{family}.") for sent in found.sent):
            notes.append(f"no alarm {rule.key}: {rule.metric} is not sent{' so that it can be told' if about else ''}")
    for rule in SILENT:
        counts = rule.key == "agent-silent" and wishes.cloud == "cloudwatch"
        sign = _tally(found.sent, wishes, notes) if counts else _sign(found.sent)
        made += _about(rule, [sign] if sign else [], wishes)
    return sorted(made, key=lambda alarm: alarm.name), notes


def _about(rule: Rule, sent: Sequence[Sent], wishes: Wishes) -> Iterator[Alarm]:
    """Yield an alarm for each way in which the metric is sent, under a name that says what is its own."""
    threshold = wishes.thresholds.get(rule.key, rule.threshold)
    minutes = wishes.minutes.get(rule.key, rule.minutes)
    shared = frozenset[tuple[str, str]].intersection(*(_marks(one) for one in sent)) if sent else frozenset()
    for one in sent:
        own = [part for mark in sorted(_marks(one) - shared) for part in mark if part]
        name = "-".join((wishes.prefix, rule.key, *own))
        factor = 1.0 if rule.statistic == "absent" else one.factor
        yield Alarm(name, rule, one, round(threshold * factor, 12), minutes)


def _marks(sent: Sent) -> frozenset[tuple[str, str]]:
    """Return what may tell one way of sending a metric from another: what the name holds, and the dimensions."""
    return frozenset({*sent.held, *((key, "") for key in sent.dims)})


def _can_tell(rule: Rule, sent: Sent) -> bool:
    """Tell whether series that are of no interest can be told from the others, and this name holds none of them."""
    return all(
        key in sent.dims or (key in dict(sent.held) and (key, value) not in sent.held) for key, value in rule.but
    )


def but(alarm: Alarm) -> list[tuple[str, str]]:
    """Return dimensions and values, as they are sent, of series that are of no interest."""
    return [(key, value) for key, value in alarm.rule.but if key in alarm.sent.dims]


def _sign(sent: Iterable[Sent]) -> Sent | None:
    gauges = [one for one in sent if one.metric.kind is Kind.GAUGE]
    best = {name: place for place, name in enumerate(SIGNS)}
    return min(
        gauges,
        key=lambda one: (
            best.get(one.metric.name, len(best)),
            one.metric.level,
            len(one.dims),
            one.metric.name,
            one.name,
        ),
        default=None,
    )


def _tally(sent: Iterable[Sent], wishes: Wishes, notes: list[str]) -> Sent | None:
    each = {one.metric.name: one for one in sent if not one.dims}
    if not (wishes.hosts or wishes.groups):
        notes.append("no alarm agent-silent: --hosts or --autoscaling-group says how many machines should send")
        return None
    if not each.keys() & set(TALLIES):
        notes.append(f"no alarm agent-silent: {TALLIES[0]}, which counts machines, is not sent; add host to --for")
    return next((each[name] for name in TALLIES if name in each), None)
