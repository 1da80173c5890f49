"""Sources of dimensions that ask the metadata service of a platform."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping

from chipwatch.identity.source import IdentityAnswer, IdentitySource, Word
from chipwatch.net.metadata_service import NoMetadata, NoService


class RemoteSource(IdentitySource):
    """A source that reads a service of its platform."""

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        try:
            words, origin = self.read(wanted)
        except NoService as problem:
            return IdentityAnswer(trouble=str(problem))
        except NoMetadata as problem:
            return IdentityAnswer(trouble=str(problem), retry=problem.retry or self.is_here())
        missing = [word for word in self.words if word in wanted and word not in words]
        return IdentityAnswer(words, f"{origin} lacks {', '.join(missing)}" if missing else "")

    @abstractmethod
    def read(self, wanted: Collection[str]) -> tuple[Mapping[str, Word], str]:
        """Return the values and, for messages, their origin; raise NoService or NoAnswer."""
