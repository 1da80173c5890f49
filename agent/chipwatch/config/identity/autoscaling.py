"""
Finds the Auto Scaling group of an EC2 instance, by its tags.

The metadata service has the tags if the instance allows it; else one signed request to EC2's API gets them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from chipwatch.config.identity.platforms import Ec2, Imds, describe, modify
from chipwatch.config.identity.source import Word, fit
from chipwatch.net.metadata_service import NoMetadata, NoService

TAGS: Final = "/latest/meta-data/tags/instance"
DOMAIN: Final = "/latest/meta-data/services/domain"
TAG: Final = "aws:autoscaling:groupName"


class AutoScaling(Ec2):
    """The source of the name of this instance's Auto Scaling group."""

    name = "Auto Scaling"

    def read(self, wanted: Collection[str]) -> tuple[Mapping[str, Word], str]:
        """Return the group; raise NoMetadata if it is unknown, with what to do about it."""
        facts = {word: fact.value for word, fact in self._hardware.found.items()}
        facts["region"] = self._env.get("AWS_REGION") or self._env.get("AWS_DEFAULT_REGION", "")
        group, origin, why = None, "", "neither metadata nor environment name the instance and the region"
        try:
            service = self.connect()
            group, origin = _from_tags(service), f"{service.url}{TAGS}/{TAG}"
            if group is None:
                facts |= {word: fact.value for word, fact in describe(service).items()}
                facts["domain"] = (service.get(DOMAIN) or b"").decode(errors="replace")
        except (NoService, NoMetadata) as problem:
            why = str(problem)
        if group is None:
            if not self.is_here() or not (facts["region"] and "instance_id" in facts):
                raise NoMetadata(why)
            group, origin = self._from_api(facts), "EC2's DescribeTags"
        if not (words := fit({"autoscaling_group": group}, origin)):
            raise NoMetadata(f"the instance has no tag {TAG}", retry=True)
        return words, origin

    def _from_api(self, facts: Mapping[str, str]) -> str | None:
        try:
            from chipwatch.config.identity.ec2_tags import describe_tags

            return describe_tags(facts["instance_id"], _address(facts, self._env), facts["region"])
        except ImportError:
            why = "a request to EC2 needs botocore: install chipwatch with the extra 'cloudwatch'"
        except NoMetadata as problem:
            why = str(problem)
        command = modify(self._hardware, "--instance-metadata-tags enabled")
        raise NoMetadata(f"{why}; or run `{command}` to show the tags in the metadata", retry=True)


def _from_tags(service: Imds) -> str | None:
    """Return the group in the metadata's tags: "" if no tag names one, None if the metadata does not show tags."""
    if value := service.get(f"{TAGS}/{TAG}"):
        return value.decode(errors="replace")
    return None if service.get(TAGS) is None else ""


def _address(facts: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Return the address of EC2's API; the variables of the SDKs may set another one."""
    if given := env.get("AWS_ENDPOINT_URL_EC2") or env.get("AWS_ENDPOINT_URL"):
        return given
    domain = facts.get("domain") or ("amazonaws.com.cn" if facts["region"].startswith("cn-") else "amazonaws.com")
    return f"https://ec2.{facts['region']}.{domain}"
