"""Compares a machine with what it should have: `--expect gpus=8,rdma=8x400`, or what its type has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.base.text import nearest
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.rules import RULES
from chipwatch.jobs.verdict.callers import DEGRADED, NOT_FIT
from chipwatch.jobs.verdict.rules import Reason, Seen

COUNTS: Final = {
    "gpus": (("gpu.state", "gpu.utilization"), ("gpu",)),
    "neuron": (("neuron.core.utilization", "neuron.ecc.events"), ("neuron_device",)),
    "tpus": (("tpu.duty_cycle",), ("tpu",)),
    "rdma": (("rdma.state", "rdma.rate"), ("device", "port")),
    "nvme": (("disk.nvme.state",), ("device",)),
}
"""Thing that `--expect` counts -> metrics that show it, and dimensions that identify each one."""
STATES: Final = frozenset({"gpu.state", "rdma.state", "disk.nvme.state"})
"""Metrics that are 0 if a thing does not work."""
ThingKey = tuple[str | None, ...]
"""Values of the dimensions that identify a thing."""
VENDORS: Final = ("0x10de", "0x1002", "0x1da3")
"""PCI vendors whose GPUs are counted on the bus: NVIDIA, AMD, Habana (https://pci-ids.ucw.cz)."""
CLASSES: Final = ("0x03", "0x12")
"""PCI classes: display controllers, processing accelerators."""


def known_instances() -> dict[str, str]:
    """Return, for each type of machine in instances.toml, the text of `--expect` that fits it."""
    from tomllib import loads  # noqa: PLC0415  # 0.2 MB, which a run does without

    return loads(Path(__file__).with_name("instances.toml").read_text(encoding="utf-8"))


class Expected(NamedTuple):
    """A number of things of one kind, each with at least `rate` Gbit/s; 0 for any rate."""

    thing: str
    number: int
    rate: float = 0.0


def parse(text: str) -> list[Expected]:
    """Parse the text of `--expect`; raise ConfigError if it is invalid."""
    expected: dict[str, Expected] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        thing, _, amount = map(str.strip, word.partition("="))
        if thing not in COUNTS:
            raise ConfigError(f"--expect {word}: no such thing to expect{nearest(thing, COUNTS)}")
        match = re.fullmatch(r"(\d{1,4})(?:x(\d{1,5}))?", amount, re.ASCII)
        if not match or (match[2] and thing != "rdma"):
            form = "NUMBER, or NUMBERxGBIT such as 8x400" if thing == "rdma" else "NUMBER"
            raise ConfigError(f"--expect {word}: expected {thing}={form}")
        if thing in expected:
            raise ConfigError(f"--expect {word}: {thing} was given before; give it once")
        expected[thing] = Expected(thing, int(match[1]), float(match[2] or 0))
    if not expected:
        raise ConfigError(f"--expect: expected THING=NUMBER, ..., of: {', '.join(COUNTS)}")
    return [*expected.values()]


def gpus_on_bus(sys: Path) -> tuple[int, int] | None:
    """Return the number of GPUs on the PCI bus, and how many of them have a driver; None if that cannot be read."""
    try:
        devices = [*(sys / "bus/pci/devices").iterdir()]
        gpus = [
            device for device in devices
            if (device / "class").read_text().startswith(CLASSES) and (device / "vendor").read_text().strip() in VENDORS
        ]  # fmt: skip
    except OSError:
        return None
    return (len(gpus), sum((gpu / "driver").exists() for gpu in gpus)) if devices else None


def compare(
    expected: Iterable[Expected], series: Sequence[Seen], collectors: Mapping[str, Mapping[str, Any]], sys: Path
) -> tuple[list[Reason], list[tuple[str, str]]]:
    """
    Return a reason for each missing thing, and a pair for each thing that cannot be counted: the thing, and why.

    A thing is missing only if a collector or a driver has counted, or if the PCI bus shows too few GPUs.
    """
    reasons: list[Reason] = []
    unknown: list[tuple[str, str]] = []
    for each in (each for each in expected if each.number):
        thing, number, _ = each
        metrics, keys = COUNTS[thing]
        sources = {name: source for name, source in collectors.items() if {*metrics} & {*source["metrics"]}}
        seen: dict[ThingKey, dict[str, float]] = {}
        for item in series:
            if item.metric in metrics:
                seen.setdefault(tuple(map(item.dims.get, keys)), {})[item.metric] = item.value
        silent = [tuple(map(dims.get, keys)) for source in sources.values() for dims, _ in source.get("silent", ())]
        troubles, absent, partly = (
            [f"{name}: {source['error']}" for name, source in sources.items()
             if source["state"] == state and source["error"] and (state != "ok" or "silent" not in source)]
            for state in ("failing", "absent", "ok")
        )  # fmt: skip
        bus = gpus_on_bus(sys) if thing == "gpus" and not seen and not silent else None
        none = next((source["error"] for source in sources.values() if not seen and source.get("is_counted")), None)
        if (bus and bus[1] < number and (bus[1] or not troubles)) or none:
            shown = f"{bus[0]} on the PCI bus, {bus[1]} with a driver" if bus else None
            says = f"{number} expected, {', '.join(filter(None, (shown, none)))}"
            reasons.append(Reason(thing, NOT_FIT, says, "Drain this node; see dmesg for the driver's reason."))
        elif troubles or not (seen or silent):
            silent_drivers = [f"{name}: {one['error']}" for name, one in sources.items() if one.get("is_silent")]
            why = "; ".join(troubles or silent_drivers or absent) or "nothing that is running reads them"
            unknown.append((thing, f"{number} expected: {why}"))
        else:
            wrong, unclear = _count(each, seen, silent, "; ".join(partly))
            reasons += wrong
            unknown += [(thing, unclear)] if unclear else []
    return reasons, unknown


def _count(
    expected: Expected, seen: Mapping[ThingKey, Mapping[str, float]], silent: Iterable[ThingKey], partly: str
) -> tuple[list[Reason], str]:
    """
    Return faults in the number and the rates of things, and a sentence on what cannot be counted.

    A thing counts only if its state was read. `silent`: things that are there but do not answer; `partly`: why there
    may be more things than were read.
    """
    thing, number, rate = expected
    needed = COUNTS[thing][0][0] if thing == "rdma" else None
    unclear = {*silent, *(key for key, values in seen.items() if needed and needed not in values)}
    broken = {key for key, values in seen.items() if any(values.get(state, 1) < 1 for state in STATES)}
    works = seen.keys() - unclear - broken
    if len(works) < number:
        counted = f"{number} expected, {len(works)} work{f'; down: {_names(broken)}' if broken else ''}"
        if len(works) + len(unclear) >= number or (partly and len(seen) < number):
            reason = "; ".join(filter(None, (f"{_names(unclear)} cannot be read" if unclear else "", partly)))
            return [], f"{counted}; {reason}"
        return [Reason(thing, NOT_FIT, counted, "Drain this node; look for them in dmesg and on the PCI bus.")], ""
    rates = {key: seen[key].get("rdma.rate") for key in works} if rate else {}
    unrated = {key for key, actual in rates.items() if actual is None}
    slow = {key: actual for key, actual in sorted(rates.items(), key=str) if actual is not None and actual < rate}
    if len(works) - len(slow) - len(unrated) >= number:
        return [], ""
    speed, advice = f"{rate:g} Gbit/s", RULES["do"]["cable, switch"]
    wrong = [Reason(_name(key), DEGRADED, f"runs at {actual:g} of {speed}", advice) for key, actual in slow.items()]
    return wrong, f"{number} of {speed} expected; the rate of {_names(unrated)} cannot be read" if unrated else ""


def _names(keys: Iterable[ThingKey]) -> str:
    return ", ".join(map(_name, sorted(keys, key=str)))


def _name(key: ThingKey) -> str:
    """Return the name of a thing: a number or a device; with the port, unless that is 1."""
    return " port ".join(str(word) for n, word in enumerate(key) if not (n and word == "1"))
