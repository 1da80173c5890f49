"""Points and problems of one reading of a collector, and its facts by kind."""

from collections.abc import Mapping, Sequence
from typing import Any

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import PartlyCollected
from chipwatch.contract.facts import Device, DeviceActivity, DeviceProcess, MachineIdentity, Unlisted


def reading(collector: Collector, at: int = 7) -> tuple[list[Datapoint], Sequence[str]]:
    """Return the points of one reading, and its problems."""
    points = []
    try:
        for point in collector.collect(at):
            points.append(point)  # noqa: PERF402  # what came before the exception stays
    except PartlyCollected as partly:
        return points, [*partly.problems]
    return points, []


def facts(collector: Collector, kind: type) -> list[Any]:
    """Return the facts of one kind."""
    return [fact for fact in collector.facts() if type(fact) is kind]


def devices(collector: Collector) -> list[Device]:
    """Return the devices."""
    return facts(collector, Device)


def processes(collector: Collector) -> list[DeviceProcess] | None:
    """Return the processes, None if the driver does not list them."""
    told = [*collector.facts()]
    return None if any(type(fact) is Unlisted for fact in told) else [f for f in told if type(f) is DeviceProcess]


def activity(collector: Collector) -> list[DeviceActivity]:
    """Return the activity of the devices."""
    return facts(collector, DeviceActivity)


def identity(collector: Collector) -> Mapping[str, str]:
    """Return the words that identify the machine."""
    return {word: value for fact in facts(collector, MachineIdentity) for word, value in fact.words.items()}
