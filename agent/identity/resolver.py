"""Who this machine is: the words of `--common-dims`, and the sources that know them."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from agent.datapoint import Dimensions
from agent.identity.autoscaling import AutoScaling
from agent.identity.dmi import Dmi, Hardware
from agent.identity.ec2 import Ec2
from agent.identity.ecs import Ecs
from agent.identity.gce import Gce
from agent.identity.kubernetes import Kubernetes
from agent.identity.names import LATE, OF_POINTS
from agent.identity.slurm import Slurm
from agent.identity.source import Answer, Source, Word, fit
from agent.identity.static import Static
from agent.logs.throttled import ThrottledLogger

log = logging.getLogger(__name__)

GRACE: Final = 5.0
"""Seconds that points are kept for a LATE word once all others are known: less than a sink's flush."""
PATIENCE: Final = 30.0
"""Seconds that points are kept for a hint whose platform is there but silent; GKE's is, when a pod is new."""
AT_FIRST: Final = 1.0
"""Seconds that the start waits for a platform that is there."""
VERDICT: Final = 3.0
"""Seconds more for a platform of which there is no sign, before it counts as not there."""
RETRY: Final = (0.5, 30.0)
"""Seconds between two questions to a silent platform: at first, at most."""
RETRY_LATE: Final = (1.0, 600.0)
"""The same for a LATE word: an API that a fleet asks too often refuses all of it."""

NO_ANSWER: Final = Answer(trouble="no answer")


class UnknownIdentity(Exception):
    """A word was asked for that nothing on this machine knows; the message says what to do."""


class Entry(NamedTuple):
    """A word, its value or None, and where that is from or what is missing."""

    word: str
    value: str | None
    remark: str


def sources(env: Mapping[str, str], sys: Path = Path("/sys")) -> tuple[Source, ...]:
    """Return all sources, the ones that need no network first; `sys` is where the host's /sys is mounted."""
    hardware = Hardware(sys, env)
    return (
        Static(), Slurm(env), Kubernetes(env), Dmi(hardware),
        Ecs(env), Ec2(env, hardware), Gce(env, hardware), AutoScaling(env, hardware),
    )  # fmt: skip


class Identity:
    """
    The dimensions of this machine; what takes a network is found out on daemon threads, one a platform.

    No word that needs a network: no request, no thread. `known` is None until every word is known, so that no point
    goes out under half an identity. A value that was found stays: it is part of the name of every series.

    Hints are words that are of use and not necessary: `known` has those that were found, and waits only for a platform
    that is there but silent, and that not for ever. None of them ends the program.
    """

    def __init__(
        self, words: Sequence[str], given: Mapping[str, str], among: Sequence[Source], hints: Sequence[str] = ()
    ) -> None:
        """Look for words and hints among the sources, in their order; what is `given` is laid over, not looked for."""
        self._words, self._given = tuple(dict.fromkeys(words)), dict(given)
        self._needed = [word for word in self._words if word not in given and word not in OF_POINTS]
        self._hints = [word for word in dict.fromkeys(hints) if word not in {*given, *OF_POINTS, *self._words}]
        self._wanted = [*self._needed, *self._hints]
        self._sources = [source for source in among if set(source.words) & set(self._wanted)]
        self._answers: dict[str, Answer] = {}
        self._found: dict[str, Word] = {}
        self._known: Dimensions | None = None
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._timers: dict[frozenset[str], threading.Timer] = {}
        self._waived: set[str] = set()
        self._running = False
        self._sayer = ThrottledLogger(log, "identity")

    def known(self) -> Dimensions | None:
        """Return the dimensions of this machine, and the hints, None while they are not known; costs nothing."""
        return self._known

    def start(self) -> None:
        """
        Look; return when all is known, or soon, and go on in the background where a platform is there but silent.

        Raise UnknownIdentity, within AT_FIRST + VERDICT seconds, if a word can never be known here.
        """
        for source in self._sources:
            if not source.remote:
                self._learn(source, source.ask(self._missing(source)))
        with self._changed:
            self._publish()
        for source in self._sources:
            if source.remote and self._missing(source):
                threading.Thread(
                    target=self._pursue, args=(source,), name=f"identity-{source.name}", daemon=True
                ).start()
        with self._changed:
            self._changed.wait_for(self._is_decided, AT_FIRST)
            self._changed.wait_for(lambda: self._is_decided() or not self._is_in_doubt(), VERDICT)
            self._running = not self._lost(patient=False)
            self._publish()
        if not self._running:
            self.close()
            raise self.unknown()

    def wait(self, seconds: float) -> bool:
        """Wait until the dimensions are known, for hints no longer than that; tell whether they are."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._known is not None, seconds) and self._hints:
                self._waive(self._hints)
            return self._known is not None

    def offer(self, words: Mapping[str, str], origin: str = "its records") -> None:
        """Take words from somebody who came across them: they fill what is missing, and change nothing."""
        with self._changed:
            self._take(fit(words, origin))
            self._publish()

    def close(self) -> None:
        """End the looking; safe to call twice."""
        self._closed.set()
        with self._changed:
            for timer in self._timers.values():
                timer.cancel()

    # -- for people ---------------------------------------------------------------------------------------------

    def unknown(self) -> UnknownIdentity:
        """Return the error that says which words are not known, why, and what to do."""
        with self._changed:
            missing = self._lost(patient=False) or self._lacking()
            reasons = self._reasons(missing or self._awaited())
            why = f" ({reasons})" if reasons else ""
            if not missing:
                return UnknownIdentity(f"the platform of this machine has not answered yet{why}")
            return UnknownIdentity(
                f"--common-dims: nothing here knows {', '.join(missing)}{why};"
                f" give it with --dim {missing[0]}=VALUE, or leave it out"
            )

    def entries(self) -> Iterator[Entry]:
        """Yield every word that was asked for, every hint but those that nobody has, and every dimension given."""
        with self._changed:
            for word in self._words:
                if word in self._given:
                    continue
                if word in self._found:
                    yield Entry(word, *self._found[word])
                elif word in OF_POINTS:
                    yield Entry(word, "of each point", "the collector that knows it")
                else:
                    yield Entry(word, None, self._reasons([word]) or "no source here has that word")
            for word in self._hints:
                if word in self._found:
                    yield Entry(word, *self._found[word])
                elif word in self._awaited():
                    yield Entry(word, None, self._reasons([word]))
            for word, value in self._given.items():
                yield Entry(word, value, "the configuration")

    def _reasons(self, words: Sequence[str]) -> str:
        """Say what the sources of `words` say: those that may know more later, else all."""
        asked = [source for source in self._sources if set(source.words) & set(words)]
        telling = [source for source in asked if self._is_hopeful(source, patient=True)] or asked
        answers = {source.name: self._answers.get(source.name, NO_ANSWER) for source in telling}
        return "; ".join(f"{name}: {answer.trouble}" for name, answer in answers.items() if answer.trouble)

    # -- the search; all but `_pursue`, `_learn` and `_waive` need the lock -------------------------------------

    def _pursue(self, source: Source) -> None:
        """Ask until there is nothing more to learn from `source`; runs on a thread."""
        delay, longest = RETRY_LATE if set(source.words) <= LATE else RETRY
        while (wanted := self._missing(source)) and not self._closed.is_set():
            answer = source.ask(wanted)
            self._learn(source, answer)
            if not answer.retry:
                break
            self._closed.wait(random.uniform(delay / 2, delay))  # noqa: S311  # not a secret
            delay = min(2 * delay, longest)

    def _learn(self, source: Source, answer: Answer) -> None:
        with self._changed:
            self._answers[source.name] = answer
            self._take(answer.words)
            self._publish()
            if self._running:
                self._complain()
            self._changed.notify_all()

    def _take(self, words: Mapping[str, Word]) -> None:
        self._found |= {word: words[word] for word in self._missing() if word in words}

    def _publish(self) -> None:
        """Let the dimensions be known, if there are enough of them."""
        held = self._held()
        if held and held <= LATE:
            self._waive_in(GRACE, LATE)
        elif self._running and not held.isdisjoint(self._hints):
            self._waive_in(PATIENCE, frozenset(self._hints))
        found = {word: self._found[word].value for word in self._wanted if word in self._found}
        if not held and (dims := Dimensions(found, **self._given)) != self._known:
            self._known = dims
            self._sayer.over("missing", f"known: {dict(dims)}")

    def _waive_in(self, seconds: float, words: frozenset[str]) -> None:
        """Wait so long, and no more, for `words`, from the first time on that this is asked for."""
        if words not in self._timers:
            timer = self._timers[words] = threading.Timer(seconds, self._waive, (words,))
            timer.daemon = True
            timer.start()

    def _waive(self, words: Collection[str]) -> None:
        """Wait no more for `words`, though they are still looked for; runs on a timer's thread, too."""
        with self._changed:
            self._waived.update(words)
            self._publish()
            self._complain()
            self._changed.notify_all()

    def _complain(self) -> None:
        if not (missing := self._lacking() + self._awaited()):
            return
        words, why = ", ".join(missing), self._reasons(missing)
        if self._known is not None:
            self._sayer.say(logging.WARNING, "without", f"left out until it is known: {words} ({why})")
        elif set(missing) <= LATE:
            return  # still within its grace
        elif self._lost(patient=True):
            self._sayer.say(logging.ERROR, "lost", f"points are kept, and none is sent: {self.unknown()}")
        else:
            self._sayer.say(
                logging.WARNING, "missing", f"not known yet: {words} ({why}); points are kept and sent when it is"
            )

    def _missing(self, source: Source | None = None) -> list[str]:
        return [w for w in self._wanted if w not in self._found and (source is None or w in source.words)]

    def _lacking(self) -> list[str]:
        return [word for word in self._needed if word not in self._found]

    def _awaited(self, *, patient: bool | None = None) -> list[str]:
        """
        Return the missing hints that a platform may still answer with.

        It has the time of the start for its first answer; then, or without patience, it must show a sign.
        """
        patient = not self._running if patient is None else patient
        able = [source for source in self._sources if source.remote and self._is_hopeful(source, patient=patient)]
        return [w for w in self._hints if w not in self._found and any(w in source.words for source in able)]

    def _held(self, *, patient: bool | None = None) -> set[str]:
        """Return the missing words that points wait for."""
        return {*self._lacking(), *self._awaited(patient=patient)} - self._waived

    def _is_decided(self) -> bool:
        return self._known is not None or bool(self._lost(patient=True))

    def _is_in_doubt(self) -> bool:
        """Tell whether all hangs on platforms that show no sign and have not answered."""
        hints_do = not self._held(patient=True) <= LATE and self._held(patient=False) <= LATE
        return hints_do or bool(self._lost(patient=False))

    def _lost(self, *, patient: bool) -> list[str]:
        """Return the missing words that no source will give; without patience, no answer and no sign is a no."""
        able = [source for source in self._sources if self._is_hopeful(source, patient=patient)]
        return [word for word in self._lacking() if not any(word in source.words for source in able)]

    def _is_hopeful(self, source: Source, *, patient: bool) -> bool:
        answer = self._answers.get(source.name)
        return answer.retry if answer else patient or source.is_here()
