"""The base of the collectors for AMD and Intel: graphics cards in sysfs, and processes on the cards."""

from __future__ import annotations

import errno
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, Generic, TypeVar

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric
from chipwatch.contract.errors import PartlyCollected
from chipwatch.contract.facts import Device, DeviceProcess, Unlisted
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.drm_clients import TreeClients
from chipwatch.host.gpu_metrics import GpuPoints, Readings
from chipwatch.host.pace import SLOW, Pace
from chipwatch.host.procfs import KeptFile, close_all, count, open_kept, text
from chipwatch.host.rows import FileRow, RowFiles

CARD: Final = re.compile(r"card\d+")
STATUS: Final = "device/power/runtime_status"
GONE: Final = frozenset({errno.ENODEV, errno.ENOENT, errno.ENXIO})
"""Errors of the system that mean that the card is lost."""
SECOND: Final = 1_000_000_000
SEARCH_INTERVAL: Final = 300 * SECOND
"""Nanoseconds between two searches for new cards and for lost ones that came back."""


def cards(sys: Path, vendor: str) -> Iterator[tuple[str, Path]]:
    """Yield the kernel's number and the folder of each card of a PCI vendor, such as 0x1002; no card wakes up."""
    folder = sys / "class/drm"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    for index in sorted(int(name[4:]) for name in names if CARD.fullmatch(name)):
        if text(folder / f"card{index}/device/vendor") == vendor:
            yield str(index), folder / f"card{index}"


class CardFiles(RowFiles):
    """The files of one card in sysfs, which stay open."""

    expected: frozenset[int] | None = None
    """Errors that mean "no value now", by number, and are not reported; None: all of them."""

    def __init__(self, index: str, folder: Path) -> None:
        """Take the kernel's number of the card, and its folder /sys/class/drm/cardN."""
        super().__init__(folder)
        self.index, self.device, self.dims = index, folder / "device", Dimensions(gpu=index)
        slot = re.search(r"^PCI_SLOT_NAME=(.+)$", text(self.device / "uevent"), re.MULTILINE)
        self.points = GpuPoints(self.dims)
        self.slot = slot[1].lower() if slot else ""
        """PCI address."""
        self.problems: dict[str, str] = {}
        """Problems of the last reading, by file."""
        self.hwmon = next(iter(sorted(self.device.glob("hwmon/hwmon*"))), self.device / "hwmon/none")
        labels = self.hwmon.glob("temp*_label")
        self.places = {text(path): path.name.replace("_label", "_input") for path in labels}
        """Files in the hwmon folder by label, for paths of rows such as `{hwmon}/{edge}`."""
        self.suspended = False
        """True if the card slept at the last reading."""
        self.total: float | None = None
        """The card's bytes of memory at the last reading, or None."""
        self.is_apu = False
        """True if the card's VRAM is a part of the machine's memory, of which it also uses more (GTT)."""
        self._opened: dict[str, KeptFile] = {}
        self._sleeps = self.keep(STATUS)

    def identify(self) -> None:
        """Add the dimension `uuid`: ROCm's name of the card, by its chip's number; else its PCI address."""
        number = text(self.device / "unique_id")  # rocminfo prints GPU- and its 16 digits
        self.dims |= {"uuid": f"GPU-{number}" if number else self.slot or self.index}
        self.points = GpuPoints(self.dims)

    @property
    def lost(self) -> bool:
        """True if the kernel reported, in the last reading, that the card is gone."""
        return "lost" in self.problems

    def keep(self, path: str) -> bool:
        """Open a file and keep it open; return whether it can be opened."""
        if path not in self._opened and (file := open_kept(self.folder / path)):
            self._opened[path] = file
        return path in self._opened

    def keep_rows(self, rows: Iterable[FileRow]) -> list[FileRow]:
        """Open the files of rows, and return the rows; of rows for one series, only the first that has its files."""
        places = defaultdict(lambda: "none", self.places, hwmon=str(self.hwmon.relative_to(self.folder)))
        opened: dict[tuple[Metric, Dimensions], FileRow] = {}
        for row in rows:
            placed = row._replace(path=row.path.format_map(places))
            if (row.metric, row.dims) not in opened and all(map(self.keep, placed.path.split("+"))):
                opened[row.metric, row.dims] = placed
        return list(opened.values())

    def begin(self) -> bool:
        """Begin a reading; return whether the card is awake. If not, read nothing: a sensor or a tool would wake it."""
        self.problems = {}
        status = self.text(STATUS) if self._sleeps else b"active"
        self.suspended = not self.problems and not (status or b"").startswith(b"active")
        return not self.suspended

    def read_card(self, now: int, *, slow: bool) -> Readings | None:
        """Return the readings at `now` (monotonic ns), with `slow` also expensive ones; None while the card sleeps."""
        raise NotImplementedError

    def further(self, at: int) -> Iterable[Datapoint]:
        """Return more points of the last reading, which have further dimensions."""
        del at
        return ()

    def text(self, path: str) -> bytes | None:
        file = self._opened[path]
        try:
            return file.read()
        except OSError as error:
            if error.errno in GONE:
                self.problems["lost"] = f"gpu {self.index}: the card is lost"
            elif self.expected is not None and error.errno not in self.expected:
                self.problems[file.path.name] = f"gpu {self.index}: {file.path.name}: {error.strerror}"
            return None

    def number(self, path: str) -> int | None:
        """Return the whole number in a file that is kept open, or None."""
        return count(self.text(path) or b"")

    def reject(self, row: FileRow, content: bytes) -> None:
        if not row.pattern and content.strip().lower() not in {b"", b"n/a"}:
            name = row.path.rpartition("/")[2]
            self.problems[name] = f"gpu {self.index}: {name}: {content[:40]!r} is not understood"

    def close(self) -> None:
        """Close the files."""
        close_all(*self._opened.values())


C = TypeVar("C", bound=CardFiles)


class CardCollector(Collector, Generic[C]):
    """Reads the cards of one vendor: their sensors, and the processes on them."""

    metrics: Sequence[Metric] = ()
    needs = Needs(level=True)
    knows = (Device, DeviceProcess)

    def __init__(self, dimensions: Sequence[str]) -> None:
        """Take further dimensions of the points: `uuid`, or none."""
        self._is_identified = bool(dimensions)
        if dimensions:
            self.metrics = tuple(map(_identified, self.metrics))
        self._cards: dict[str, C] = {}
        """The cards by the kernel's number."""
        self._clock, self._slow, self._next_search = time.monotonic_ns, Pace(SLOW), 0
        self._share: TreeClients | None = None
        self._level = Level.ALL

    def open(self, given: Given) -> None:
        self.close()
        self._level = given.level
        self._slow, self._next_search = Pace(SLOW), 0
        self._search(self._clock())

    def find_cards(self) -> Iterable[tuple[str, Path]]:
        """Yield the kernel's number and the folder of each card of the vendor."""
        raise NotImplementedError

    def make_card(self, index: str, folder: Path) -> C:
        """Open a card; raise LookupError if it has no readable sensor."""
        raise NotImplementedError

    def _search(self, now: int) -> None:
        """Every five minutes, add new cards, and open lost cards again; `now` in monotonic ns."""
        if now < self._next_search:
            return
        self._next_search = now + SEARCH_INTERVAL
        for index, folder in self.find_cards():
            card = self._cards.get(index)
            if card is None or card.lost:
                with suppress(LookupError):
                    new = self.make_card(index, folder)
                    if self._is_identified:
                        new.identify()
                    # A card may come back under another number.
                    cards = list(self._cards.values())
                    for old in [old for old in cards if old is card or (old.lost and old.slot == new.slot)]:
                        self._cards.pop(old.index).close()
                    self._cards[index] = new

    def collect(self, at: int) -> Iterable[Datapoint]:
        for point in self._read(at):
            yield point._replace(metric=_identified(point.metric)) if "uuid" in point.dims else point

    def _read(self, at: int) -> Iterator[Datapoint]:
        now = self._clock()
        self._search(now)
        slow, cards = self._slow.is_due(now), list(self._cards.values())
        problems: list[str] = []
        for card, readings in self._awake(now, slow=slow, problems=problems):
            points = card.points.make(at, readings)
            yield from (point for point in (*points, *card.further(at)) if point.metric.level <= self._level)
        if slow and self._share:
            yield from self._share.points(at, cards)
        if problems:
            raise PartlyCollected(problems)

    def facts(self) -> Iterator[Device | DeviceProcess | Unlisted]:
        """Yield the processes and the cards; a card's ids are its PCI address, its file, and its index."""
        yield from self._processes() if self._cards else [Unlisted("there is no card")]
        cards = enumerate(self._cards.values())
        yield from (Device(card.dims, ids=(card.slot, f"card{card.index}", str(n))) for n, card in cards)

    def _awake(self, now: int, *, slow: bool, problems: list[str]) -> list[tuple[C, Readings]]:
        """Return the readings of each card that does not sleep, as `read_card` does; add to `problems`."""
        read = [(card, card.read_card(now, slow=slow)) for card in self._cards.values()]
        awake = [(card, readings) for card, readings in read if readings is not None]
        problems += [problem for card, _ in awake for problem in card.problems.values()]
        return awake

    def _processes(self) -> Iterable[DeviceProcess | Unlisted]:
        """Return the processes on the cards."""
        raise NotImplementedError

    def close(self) -> None:
        close_all(*self._cards.values())
        self._cards, self._share = {}, None


@cache
def _identified(metric: Metric) -> Metric:
    """Return the metric with the dimension `uuid` added."""
    return replace(metric, dims=(*metric.dims, "uuid"))
