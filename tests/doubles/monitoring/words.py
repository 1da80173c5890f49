"""Cloud Monitoring's words for a partial refusal."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

from google.rpc import code_pb2

MOST_WORDS = 3_000
PACIFIC = timezone(timedelta(hours=-8))
"""The service tells times as its engineers' watches do."""


class Fault(NamedTuple):
    """Why a series was refused; `late` if the store said so, after the request's own checks."""

    text: str
    code: int = code_pb2.INVALID_ARGUMENT
    late: bool = False


def tell(series: list[Any], faults: dict[int, Fault], wording: str) -> str:
    """
    Return the message of a partial refusal; `faults` are by index.

    `new`: as in 2025, indices first; `old`: as before 2024, indices last. The order is not a promise,
    and the end is cut where the text would take more than 3,000 bytes as a header: it travels in two of 8 KiB in all.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for index, fault in sorted(faults.items()):
        alike = resource(series[index]) if fault.late else "" if wording == "old" else str(index)
        groups.setdefault((alike, fault.text.partition(" {")[0]), []).append(index)
    lines = []
    for members in reversed(groups.values()):
        fault, example = faults[members[0]], series[members[0]]
        listed = f"timeSeries[{indices(members)}]"
        if wording == "old":
            lines.append(f"{fault.text}: {listed}")
        elif fault.late:
            where = f"{listed} ({_example(example)}): write for resource={resource(example)}"
            lines.append(f"{where} failed with: {fault.text}")
        else:
            lines.append(fault.text if fault.text.startswith("Field timeSeries[") else f"{listed}: {fault.text}")
    return _cut(f"One or more TimeSeries could not be written: {'; '.join(lines)}")


def indices(numbers: list[int]) -> str:
    """Return numbers as the service lists them: 3,8-12,43,44 (two in a row do not make a range)."""
    parts: list[str] = []
    rest = sorted(numbers)
    while rest:
        run = next((n for n in range(1, len(rest)) if rest[n] != rest[0] + n), len(rest))
        parts += [f"{rest[0]}-{rest[run - 1]}"] if run > 2 else map(str, rest[:run])
        del rest[:run]
    return ",".join(parts)


def resource(series: Any) -> str:
    """Return a monitored resource as messages show it."""
    labels = (f"{name}:{value}" for name, value in sorted(series.resource.labels.items()) if name != "project_id")
    return f"{series.resource.type}{{{','.join(labels)}}}"


def iso(at: int) -> str:
    """Return a time (ns) as `Field ... had an invalid value` tells it."""
    return _local(at).isoformat()


def slashed(at: int) -> str:
    """Return a time (ns) as the store tells it."""
    return f"{_local(at):%Y/%m/%d-%H:%M:%S}.{at // 10**6 % 1000:03}"


def _example(series: Any) -> str:
    labels = ", ".join(f'"{name}": "{value}"' for name, value in sorted(series.metric.labels.items()))
    return f'example metric.type="{series.metric.type}", metric.labels={{{labels}}}'


def _local(at: int) -> datetime:
    try:
        return datetime.fromtimestamp(at / 10**9, PACIFIC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _cut(text: str) -> str:
    left = MOST_WORDS
    for position, character in enumerate(text):
        left -= 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if left < 0:
            return f"{text[:position]}..."
    return text
