"""Finds the identity of this machine: asks all sources for the values of `--common-dims`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.config.identity.autoscaling import AutoScaling
from chipwatch.config.identity.dmi import DmiTables
from chipwatch.config.identity.local import Kubernetes, Slurm, Static, WatchedProcess
from chipwatch.config.identity.names import LATE, OF_POINTS
from chipwatch.config.identity.platforms import Ec2, Ecs, Gce
from chipwatch.config.identity.source import IdentityAnswer, IdentitySource, Word, fit
from chipwatch.contract.datapoint import Dimensions
from chipwatch.contract.errors import CommandError
from chipwatch.contract.owner import Owner

log = logging.getLogger(__name__)

LATE_TIMEOUT: Final = 5.0
HINT_TIMEOUT: Final = 30.0
"""
Seconds for which points wait for optional dimensions once all others are known: LATE ones, and hints.

The first is shorter than a sink's flush. The second is enough for GKE's metadata server, which starts with a new pod.
"""
START_TIMEOUT: Final = 1.0
"""Seconds for which the start waits for a platform that was detected."""
DETECTION_TIMEOUT: Final = 3.0
"""Further seconds for which the start waits for platforms that were not detected."""
RETRY: Final = (0.5, 30.0)
"""First and longest delay, in seconds, between requests to a platform that does not answer."""
RETRY_LATE: Final = (1.0, 600.0)
"""The same for sources of LATE dimensions, whose API may throttle a whole fleet."""

NO_ANSWER: Final = IdentityAnswer(trouble="no answer")


class UnknownIdentity(CommandError):
    """A dimension that the user named cannot be found; the message says what to do."""


class Entry(NamedTuple):
    """A dimension, its value or None, and a remark: the value's origin, or the reason why it is missing."""

    word: str
    value: str | None
    remark: str


def sources(env: Mapping[str, str], sys: Path = Path("/sys"), owner: Owner | None = None) -> tuple[IdentitySource, ...]:
    """Return all sources, first the ones without network requests; `owner` is the watched process's."""
    hardware = DmiTables(sys, env)
    return (
        Static(), WatchedProcess(owner), Slurm(env), Kubernetes(env), hardware,
        Ecs(env), Ec2(env, hardware), Gce(env, hardware), AutoScaling(env, hardware),
    )  # fmt: skip


class SourceAnswers:
    """The sources that may have wanted dimensions, and the last answer of each."""

    def __init__(self, sources: Iterable[IdentitySource]) -> None:
        self.sources = [*sources]
        self.last: dict[str, IdentityAnswer] = {}
        """Name of a source -> its last answer."""

    def may_give(self, word: str, *, wait: bool, remote: bool = False) -> bool:
        """Return whether a source may still find the value of `word`; with `remote`, a source that makes requests."""
        among = [source for source in self.sources if word in source.words and (source.remote or not remote)]
        return any(self._may_answer(source, wait=wait) for source in among)

    def reasons(self, words: Sequence[str]) -> str:
        """Return why `words` are missing: the messages of sources that may still find them; if none may, of all."""
        asked = [source for source in self.sources if set(source.words) & set(words)]
        relevant = [source for source in asked if self._may_answer(source, wait=True)] or asked
        answers = {source.name: self.last.get(source.name, NO_ANSWER) for source in relevant}
        return "; ".join(f"{name}: {answer.trouble}" for name, answer in answers.items() if answer.trouble)

    def _may_answer(self, source: IdentitySource, *, wait: bool) -> bool:
        """Return whether a source may still find values. One that has not answered may, if detected or if `wait`."""
        answer = self.last.get(source.name)
        return answer.retry if answer else wait or source.is_here()


class Identity:
    """
    The dimensions of this machine, which it finds by asking sources.

    `known` returns None until all wanted values are known, so that no point is sent with a part of them. A value never
    changes once it is found, since it is a part of every series. Each source that makes requests has a daemon thread,
    which starts only if its values are wanted.

    LATE dimensions and hints are optional: once all others are known, points wait for them for some seconds, then are
    sent without. Hints are dimensions that sinks need for themselves. Points wait for a hint only while a platform may
    still answer, and a missing hint is never an error.
    """

    def __init__(
        self, words: Sequence[str], given: Mapping[str, str], among: Sequence[IdentitySource], hints: Sequence[str] = ()
    ) -> None:
        """Ask the sources `among`, in order, for `words` and `hints`, except words whose value is `given`."""
        self._words, self._given = tuple(dict.fromkeys(words)), dict(given)
        self._needed = [word for word in self._words if word not in given and word not in OF_POINTS]
        self._hints = [word for word in dict.fromkeys(hints) if word not in {*given, *OF_POINTS, *self._words}]
        self._wanted = [*self._needed, *self._hints]
        self._answers = SourceAnswers(source for source in among if set(source.words) & set(self._wanted))
        self._found: dict[str, Word] = {}
        self._known: Dimensions | None = None
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._timer: threading.Timer | None = None
        self._waits = True  # whether points wait for optional dimensions
        self._running = False
        self._logger = ThrottledLogger(log, "identity")

    def known(self) -> Dimensions | None:
        """Return the machine's dimensions, also hints, or None while they are not known; never wait."""
        return self._known

    def start(self) -> None:
        """
        Ask the sources; return once all values are known, or after a timeout, and go on in the background.

        Raise UnknownIdentity, within START_TIMEOUT + DETECTION_TIMEOUT seconds, if a value cannot be found here.
        """
        for source in self._answers.sources:
            if not source.remote:
                self._add(source, source.ask(self._missing(source.words)))
        with self._changed:
            self._publish()
        for source in self._answers.sources:
            if source.remote and self._missing(source.words):
                threading.Thread(target=self._poll, args=(source,), name=f"identity-{source.name}", daemon=True).start()
        with self._changed:
            self._changed.wait_for(self._is_decided, START_TIMEOUT)
            self._changed.wait_for(lambda: self._is_decided() or not self._is_in_doubt(), DETECTION_TIMEOUT)
            self._running = not self._unavailable(wait=False)
            self._publish()
        if not self._running:
            self.close()
            raise self.unknown()

    def wait(self, seconds: float) -> bool:
        """
        Wait at most `seconds` for all values; return True if the dimensions are known.

        Hints, which are only useful, are left out if they are not known by then.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._known is not None, seconds) and self._hints:
                self._go_without()
            return self._known is not None

    def offer(self, words: Mapping[str, str], origin: str = "its records") -> None:
        """Add values that a collector has found; values that are known already do not change."""
        with self._changed:
            self._take(fit(words, origin))
            self._publish()

    def close(self) -> None:
        """Stop asking; safe to call twice."""
        self._closed.set()
        with self._changed:
            if self._timer is not None:
                self._timer.cancel()

    # -- messages -----------------------------------------------------------------------------------------------

    def unknown(self) -> UnknownIdentity:
        """Return an error that says which values are missing, why, and what to do."""
        with self._changed:
            missing = self._unavailable(wait=False) or self._missing(self._needed)
            reasons = self._answers.reasons(missing or self._missing_hints())
            why = f" ({reasons})" if reasons else ""
            if not missing:
                return UnknownIdentity(f"the platform of this machine has not answered yet{why}")
            return UnknownIdentity(
                f"--common-dims: no value found for {', '.join(missing)}{why};"
                f" set it with --dim {missing[0]}=VALUE, or leave it out"
            )

    def entries(self) -> Iterator[Entry]:
        """Yield all dimensions for people: wanted ones, hints that are known or expected, and given ones."""
        with self._changed:
            hints = [word for word in self._hints if word in self._found or word in self._missing_hints()]
            for word in [*(word for word in self._words if word not in self._given), *hints]:
                if word in self._found:
                    yield Entry(word, *self._found[word])
                elif word in OF_POINTS:
                    yield Entry(word, "of each point", "its collector")
                else:
                    yield Entry(word, None, self._answers.reasons([word]) or "no source has it")
            for word, value in self._given.items():
                yield Entry(word, value, "the configuration")

    # -- the search; callers hold the lock, but not for `_poll`, `_add` and `_go_without` -------------------------

    def _poll(self, source: IdentitySource) -> None:
        """Ask a source until it has no missing value, or until a retry is useless; runs on the source's thread."""
        delay, longest = RETRY_LATE if set(source.words) <= LATE else RETRY
        while (wanted := self._missing(source.words)) and not self._closed.is_set():
            answer = source.ask(wanted)
            self._add(source, answer)
            if not answer.retry:
                break
            from random import uniform

            self._closed.wait(uniform(delay / 2, delay))  # noqa: S311  # not a secret
            delay = min(2 * delay, longest)

    def _add(self, source: IdentitySource, answer: IdentityAnswer) -> None:
        with self._changed:
            self._answers.last[source.name] = answer
            self._take(answer.words)
            self._publish()
            if self._running:
                self._log_missing()
            self._changed.notify_all()

    def _take(self, words: Mapping[str, Word]) -> None:
        self._found |= {word: words[word] for word in self._missing(words)}

    def _publish(self) -> None:
        """Set the known dimensions, unless points must wait for more of them."""
        awaited = self._awaited()
        if self._timer is None and awaited and awaited <= {*LATE, *self._hints}:
            self._timer = threading.Timer(LATE_TIMEOUT if awaited <= LATE else HINT_TIMEOUT, self._go_without)
            self._timer.daemon = True
            self._timer.start()
        found = {word: self._found[word].value for word in self._wanted if word in self._found}
        dims = Dimensions(found, **self._given)
        if not awaited and dims != self._known:
            self._known = dims
            self._logger.resolved("missing", f"known: {dict(dims)}")

    def _go_without(self) -> None:
        """Let points be sent without optional dimensions, which may still come; also called on the timer's thread."""
        with self._changed:
            self._waits = False
            self._publish()
            self._log_missing()
            self._changed.notify_all()

    def _log_missing(self) -> None:
        if not (missing := self._missing(self._needed) + self._missing_hints()):
            return
        words = f"{', '.join(missing)} ({self._answers.reasons(missing)})"
        if self._known is not None:
            self._logger.log(logging.WARNING, "without", f"left out until it is known: {words}")
        elif set(missing) <= LATE:
            return  # points still wait for them
        elif self._unavailable(wait=True):
            self._logger.log(logging.ERROR, "lost", f"points are kept and not sent: {self.unknown()}")
        else:
            self._logger.log(logging.WARNING, "missing", f"not known yet: {words}; points are kept until it is known")

    def _missing(self, among: Collection[str]) -> list[str]:
        """Return the dimensions in `among` that are wanted and not known."""
        return [word for word in self._wanted if word in among and word not in self._found]

    def _missing_hints(self, *, wait: bool | None = None) -> list[str]:
        """Return the missing hints that a platform may still have; `wait` is as in `SourceAnswers.may_give`."""
        wait = not self._running if wait is None else wait
        return [word for word in self._missing(self._hints) if self._answers.may_give(word, wait=wait, remote=True)]

    def _awaited(self, *, wait: bool | None = None) -> set[str]:
        """Return the missing dimensions that points must wait for."""
        awaited = {*self._missing(self._needed), *self._missing_hints(wait=wait)}
        return awaited if self._waits else awaited - LATE - {*self._hints}

    def _is_decided(self) -> bool:
        return self._known is not None or bool(self._unavailable(wait=True))

    def _is_in_doubt(self) -> bool:
        """Return whether a dimension is missing that only a platform that was not detected could still have."""
        hints_in_doubt = not self._awaited(wait=True) <= LATE and self._awaited(wait=False) <= LATE
        return hints_in_doubt or bool(self._unavailable(wait=False))

    def _unavailable(self, *, wait: bool) -> list[str]:
        """Return the missing dimensions, except hints, that no source can still find."""
        return [word for word in self._missing(self._needed) if not self._answers.may_give(word, wait=wait)]
