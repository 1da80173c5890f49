"""Calls plugins safely: they may raise anything, fork, or yield malformed points."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.collector import MOST_POINTS, Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric, is_utf8
from chipwatch.contract.errors import PartlyCollected, text_of
from chipwatch.contract.processor import Processor
from chipwatch.contract.sink import Sink
from chipwatch.engine.notices import Notices

log = logging.getLogger(__name__)
T = TypeVar("T")

MOST_METRICS: Final = 10_000
"""Most metrics that are remembered as checked."""
LATEST: Final = 2**63 - 1
"""The latest time in nanoseconds that SQLite can hold."""
LARGE: Final = 9e18
"""A number between -LARGE and LARGE is finite and fits into 64 bits, so it can be kept as it is."""
NO_NUMBER: Final = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions that `float` may raise for a number of another library, such as an array."""
COPY: Final = 113
"""Exit code of a forked copy of the agent; other child processes are unlikely to use it."""


class Malformed(Exception):
    """A point does not keep the contract; `part` is the part of it that is at fault."""

    def __init__(self, part: str, text: str) -> None:
        """Take the part, such as `value`, and what is wrong with it."""
        super().__init__(f"{part}: {text}")
        self.part = part


class Validation:
    """Validates the points of one collector or processor; used by one thread."""

    def __init__(
        self,
        level: Level,
        notices: Notices,
        always: frozenset[str] = frozenset(),
        declared: Callable[[], Collection[Metric] | None] = lambda: None,
    ) -> None:
        """
        Keep points of at most `level`, and of the metrics in `always`.

        Malformed points are left out, and reported to `notices`. `declared` returns the metrics that the plugin
        declares, or None if it cannot list them.
        """
        self._level, self._notices, self._always, self._declared = level, notices, always, declared
        self._wanted: dict[int, bool] = {}  # by id(metric), since the hash of a metric is slow
        self._metrics: list[Metric] = []  # keeps the metrics alive, so that no other object gets the same id
        self.problems: dict[str, str] = {}
        """The faults in the points of this reading: an example for each part."""
        self.breaches: dict[str, str] = {}
        """The faults of metrics whose points are kept anyway: an example for each kind."""

    def take(self, yielded: Iterable[Datapoint], now: int, points: list[Datapoint]) -> None:
        """Add the valid points of a reading at `now` to `points`; raise PartlyCollected if there are too many."""
        wanted, add, source = self._wanted.get, points.append, iter(yielded)
        small, large, latest = -LARGE, LARGE, LATEST
        for point in islice(source, MOST_POINTS):
            if point.__class__ is Datapoint:  # the fast path; `type(point)` takes twice as long
                metric, value, dims, at, start_time, start, summary, increase = point
                is_wanted = wanted(id(metric))
                if is_wanted is False:
                    continue
                kind = value.__class__
                if (
                    is_wanted
                    and (kind is float or kind is int)
                    and small < value < large
                    and dims.__class__ is Dimensions
                    and dims.is_text
                    and at is now
                    and (start_time is None or (start_time.__class__ is int and 0 <= start_time <= latest))
                    and start is None
                    and summary is None
                    and increase is None
                ):
                    add(point)
                    continue
            try:
                if (good := self._checked(point)) is not None:
                    add(good)
            except Malformed as problem:
                self._leave_out(point, problem)
        for _ in source:
            raise PartlyCollected([f"more than {MOST_POINTS} points in one reading; the rest is left out"])

    def wants_none(self) -> bool:
        """Return whether the plugin declares metrics, and no sink wants one of them."""
        declared = self._declared() or ()
        return bool(declared) and all(
            metric.level > self._level and metric.name not in self._always for metric in declared
        )

    def _leave_out(self, point: object, problem: Malformed) -> None:
        part, named = problem.part, ""
        if part not in {"point", "metric"} and isinstance(point, Datapoint):
            named = f"{point.metric.name}: "
        text = f"malformed points are left out: {named}{problem}"
        self.problems.setdefault(part, text)
        self._notices.tell("malformed", text, cause=f"malformed {part}", detail=part)

    def _breach(self, kind: str, text: str) -> None:
        self.breaches.setdefault(kind, text)
        self._notices.tell("breach", text, cause=kind)

    def _checked(self, point: Datapoint) -> Datapoint | None:
        """Return `point` with plain numbers and texts, or None if it is not wanted; raise Malformed."""
        if type(point) is not Datapoint:
            raise Malformed("point", f"expected a Datapoint, got {_kind(point)}")
        metric, value, dims, at, start_time, *rest = point
        if not self._wants(metric):
            return None
        if metric.kind is Kind.COUNTER and start_time is None:
            self._breach(
                "start_time", f"the counter {metric.name} has no start_time: nobody knows since when it counts"
            )
        number = _number(value)
        if not math.isfinite(number):
            text = self.problems["not finite"] = f"{metric.name} is {number}: what is not finite is left out"
            self._notices.tell("not finite", text)
            return None
        if type(dims) is not Dimensions:
            raise Malformed("dims", f"expected Dimensions, got {_kind(dims)}")
        if not dims.is_text:
            dims = Dimensions({_text("dims", key): _text("dims", text) for key, text in dims.items_sorted})
        _check_moment("at", at)
        if start_time is not None:
            _check_moment("start_time", start_time)
        if any(part is not None for part in rest):  # not `any(rest)`: an array has no truth value
            raise Malformed("point", "start, summary and increase are set by the agent; leave them out")
        return Datapoint(metric, number, dims, at, start_time)

    def _wants(self, metric: Metric) -> bool:
        """Return whether points of `metric` are kept; raise Malformed if it is not a sound metric."""
        if (is_wanted := self._wanted.get(id(metric))) is None:
            if type(metric) is not Metric:
                raise Malformed("metric", f"expected a Metric, got {_kind(metric)}")
            texts = (metric.name, metric.unit, metric.help)
            if not (type(metric.kind) is Kind and type(metric.dims) is tuple):
                raise Malformed("metric", "expected a Kind and a tuple as kind and dims")
            if any(_text("metric", text) is not text for text in (*texts, *metric.dims)):
                raise Malformed("metric", "expected plain str, got a subclass of it")
            if (declared := self._declared()) is not None and metric not in declared:
                self._breach(
                    "metrics", f"`metrics` does not declare {metric.name} so: `list` and `plan` do not know it"
                )
            if len(self._metrics) >= MOST_METRICS:
                self._wanted.clear()
                self._metrics.clear()
            self._metrics.append(metric)
            is_wanted = self._wanted[id(metric)] = metric.level <= self._level or metric.name in self._always
        return is_wanted


def _kind(thing: object) -> str:
    return type(thing).__name__


def _text(part: str, text: object) -> str:
    """Return `text` as a str; raise Malformed if it has another type, or UTF-8 cannot encode it."""
    if not isinstance(text, str):
        raise Malformed(part, f"expected str, got {_kind(text)}")
    plain = str.__str__(text)
    if not is_utf8(plain):
        raise Malformed(part, f"expected UTF-8, got {plain[:80]!a}")
    return plain


def _number(value: object) -> float:
    """Return `value` as a float; raise Malformed if it is not a number."""
    if not hasattr(type(value), "__float__"):
        raise Malformed("value", f"expected a number, got {_kind(value)}")
    try:
        return float(value)  # type: ignore[arg-type]  # it has __float__
    except NO_NUMBER as problem:
        raise Malformed("value", f"expected a number, got {_kind(value)} ({_kind(problem)})") from None


def _check_moment(part: str, moment: object) -> None:
    if type(moment) is not int:
        raise Malformed(part, f"expected nanoseconds since the epoch as an int, got {_kind(moment)}")
    if not 0 <= moment <= LATEST:
        raise Malformed(part, f"expected 0 to 2**63 - 1 ns, got {'less' if moment < 0 else 'more'}")


class _Forks(threading.local):
    """Counts for one thread the child processes that it forked, and how often it was itself copied into one."""

    children = copies = 0

    def count(self, *, is_copy: bool) -> None:
        self.children, self.copies = self.children + 1, self.copies + is_copy


_forks: Final = _Forks()
os.register_at_fork(after_in_parent=partial(_forks.count, is_copy=False))
os.register_at_fork(after_in_child=partial(_forks.count, is_copy=True))


class ForkGuard:
    """
    Calls methods of a plugin that may fork.

    A child process that returns from the method would go on as a second agent, so it is ended there. A child that ends
    inside the plugin, as multiprocessing's do, is left alone.
    """

    def __init__(self, logger: ThrottledLogger) -> None:
        self._logger, self._has_forked = logger, False

    def call(self, method: Callable[..., T], *args: Any) -> T:
        """Return what `method` returns, or raise what it raises."""
        children, copies = _forks.children, _forks.copies
        try:
            return method(*args)
        finally:
            if _forks.children != children:
                if _forks.copies != copies:
                    os._exit(COPY)
                self._has_forked = sys.platform == "linux"
            if self._has_forked:
                self._reap()

    def survive(self, method: Callable[..., T], failure: str, *args: Any) -> T | None:
        """Return what `method` returns, or None after an exception, which is logged with `failure`."""
        try:
            return self.call(method, *args)
        except BaseException as bug:  # a plugin's SystemExit, too
            cause = f"{failure} {type(bug).__name__}"
            self._logger.log(logging.ERROR, cause, f"{failure}: {text_of(bug)}", traceback=True)
            return None

    def _reap(self) -> None:
        """Collect and log the copies of the agent that have ended; leave other children to the plugin."""
        try:
            while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and child.si_status == COPY:  # type: ignore[attr-defined,unused-ignore]
                os.waitpid(child.si_pid, 0)
                text = "forked a copy of the agent, which was ended; a child process has to end in the plugin"
                self._logger.log(logging.ERROR, "forked", text)
        except ChildProcessError:  # no child is left
            self._has_forked = False


class PluginRunner:
    """Calls one collector or processor and keeps how the last call went; one thread writes that, others read it."""

    def __init__(self, plugin: Collector | Processor, kind: str, name: str, level: Level) -> None:
        """Keep points of at most `level`, and of the metrics that a verdict needs."""
        self.name = name
        self._logger = Notices(log, kind, f"{kind} {name}")
        self.counts = self._logger.counts
        """Number of its notices, by name."""
        self.needs = needs = type(plugin).needs
        self.needs_devices = needs.devices is not None and level <= needs.devices
        """True if the plugin has nothing to do while no collector finds a device."""
        is_open_ended = isinstance(plugin, Collector) and plugin.yields_others()
        always = frozenset(needs.always)
        self.validation = Validation(level, self._logger, always, lambda: None if is_open_ended else plugin.metrics)
        self._guard = ForkGuard(self._logger)
        self._survive = self._guard.survive
        self.ok: bool | None = None
        """True if the last call succeeded in time; None before the first call, or if there is nothing to read."""
        self.trouble: str | None = None
        """The problem of the last call, or None."""
        self._wrong: list[str] = []
        """The problems of the call in progress."""
        self.earlier: str | None = None
        """The problem of the last call but one, or None."""
        self.yielded = 0
        """Number of points of the last call."""
        self.seconds = 0.0
        """Seconds that the last call took."""
        self.unavailable: str | None = None
        """Reason why there is nothing to read, or to derive from; or None."""

    def _attempt(self, read: Callable[..., None], *args: Any) -> list[Datapoint]:
        """
        Call `read` with `args` and a list; return the points that it adds to the list.

        An exception is logged and counted; the points from before it are returned.
        """
        begun = time.monotonic()
        points: list[Datapoint] = []
        self._wrong = wrong = []
        problems = self.validation.problems
        problems.clear()
        try:
            self._guard.call(read, *args, points)
        except BaseException as bug:  # a plugin's SystemExit, too
            self.ok = False
            kind, text = type(bug).__name__, text_of(bug)
            wrong.append(f"{kind}: {text}")
            is_bug = not isinstance(bug, OSError)  # an OSError is a fault of the host
            self._logger.tell("failed", f"failed: {text}", cause=kind, traceback=is_bug)
        self.earlier, self.trouble = self.trouble, "; ".join(filter(None, (*wrong, *problems.values()))) or None
        self.seconds, self.yielded = time.monotonic() - begun, len(points)
        return points


def state_of(plugin: Processor | Sink) -> bytes | None:
    """Return the state that a plugin wants to keep over a restart; raise TypeError unless it is bytes or None."""
    state: Any = plugin.saved()
    if state is not None and not isinstance(state, bytes):
        raise TypeError(f"expected bytes, got {type(state).__name__}")
    return state
