"""The identity document of an EC2 instance, from the instance metadata service."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from agent.identity.dmi import Hardware
from agent.identity.imds import DOCUMENT, Imds
from agent.identity.metadata import NoAnswer, NoService
from agent.identity.source import Answer, Source, Word, fit


class _Document(msgspec.Struct, rename="camel"):
    """The needed part of the instance identity document (AWS, "Instance identity documents")."""

    instance_id: str | None = None
    instance_type: str | None = None
    image_id: str | None = None
    region: str | None = None
    availability_zone: str | None = None
    account_id: str | None = None


class Ec2(Source):
    """Instance, type, image, location and account."""

    name = "EC2"
    words = ("instance_id", "instance_type", "ami_id", "region", "availability_zone", "account_id")

    def __init__(self, env: Mapping[str, str], hardware: Hardware) -> None:
        self._env, self._hardware = env, hardware
        self.remote = not hardware.is_fargate

    def is_here(self) -> bool:
        """Return whether the hardware is an EC2 instance."""
        return self._hardware.is_ec2

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return all values of the document; on Google Cloud no request is made."""
        del wanted
        if self._hardware.is_fargate or self._hardware.is_google:
            return Answer(trouble=self._hardware.why)
        service = None
        try:
            service = Imds(self._env, self._hardware)
            return Answer(describe(service))
        except NoService as problem:
            return Answer(trouble=str(problem))
        except NoAnswer as problem:
            is_ec2 = self.is_here() or (service is not None and service.has_token)
            return Answer(trouble=str(problem), retry=is_ec2)


def describe(service: Imds) -> dict[str, Word]:
    """Return the values of the identity document; raise NoAnswer."""
    origin = f"{service.url}{DOCUMENT}"
    try:
        document = msgspec.json.decode(service.get(DOCUMENT) or b"", type=_Document)
    except (ValueError, RecursionError):  # raised by msgspec for malformed and too deeply nested JSON
        raise NoAnswer(f"{origin} is not an identity document") from None
    values = msgspec.structs.asdict(document)
    values["ami_id"] = values.pop("image_id")
    return fit(values, origin)
