"""What EC2's metadata service knows of an instance: one document has it all."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from agent.identity.dmi import Hardware
from agent.identity.imds import DOCUMENT, Imds
from agent.identity.metadata import NoService, Silent
from agent.identity.names import known_by
from agent.identity.source import Answer, Source, Word, fit


class _Document(msgspec.Struct, rename="camel"):
    """The instance identity document (AWS, "Instance identity documents"), as far as it is of use."""

    instance_id: str | None = None
    instance_type: str | None = None
    image_id: str | None = None
    region: str | None = None
    availability_zone: str | None = None
    account_id: str | None = None


class Ec2(Source):
    """Instance, type, image, place and account, from the instance metadata service."""

    name = "EC2"
    words = known_by(name)

    def __init__(self, env: Mapping[str, str], hardware: Hardware) -> None:
        """Ask the service that `env` names; `hardware` shows whether there should be one."""
        self._env, self._hardware = env, hardware
        self.remote = not hardware.is_fargate

    def is_here(self) -> bool:
        """Tell whether the hardware says EC2."""
        return self._hardware.is_ec2

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return all that the document says; a machine of Google's is not asked for it."""
        del wanted
        if self._hardware.is_fargate or self._hardware.is_google:
            return Answer(trouble=self._hardware.why)
        service = None
        try:
            service = Imds(self._env, self._hardware)
            return Answer(describe(service))
        except NoService as problem:
            return Answer(trouble=str(problem))
        except Silent as problem:
            there = self.is_here() or (service is not None and service.spoke)
            return Answer(trouble=str(problem), retry=there)


def describe(service: Imds) -> dict[str, Word]:
    """Return the words of the identity document; raise Silent."""
    origin = f"{service.url}{DOCUMENT}"
    try:
        document = msgspec.json.decode(service.get(DOCUMENT) or b"", type=_Document)
    except (ValueError, RecursionError):  # of msgspec, for what is malformed and for what is nested without end
        raise Silent(f"{origin} is no identity document") from None
    values = msgspec.structs.asdict(document)
    values["ami_id"] = values.pop("image_id")
    return fit(values, origin)
