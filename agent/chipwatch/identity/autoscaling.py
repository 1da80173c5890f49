"""
The Auto Scaling group of an EC2 instance, read from its tags.

The tags come from the metadata service if it shows them, else from one signed request to EC2's API. A botocore client
of EC2 would take 20 MB of memory.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlencode

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.identity.platforms import Ec2, Imds, describe, modify
from chipwatch.identity.source import Word, fit
from chipwatch.net.metadata_service import MAX_BYTES, NoMetadata, NoService

TAGS: Final = "/latest/meta-data/tags/instance"
DOMAIN: Final = "/latest/meta-data/services/domain"
TAG: Final = "aws:autoscaling:groupName"
ITEM: Final = re.compile("<item>(.*?)</item>", re.DOTALL)
VALUE: Final = re.compile("<value>([^<]+)</value>")
CODE: Final = re.compile(r"<Code>(\w+(?:\.\w+)*)</Code>")
TIMEOUT: Final = 10.0
"""Seconds for a request to the API and its answer."""
MODULES: Final = "botocore.auth", "botocore.awsrequest", "botocore.exceptions", "botocore.session"
"""Imported only for a request to EC2's API: they take 10 MB, and may not be installed."""


class AutoScaling(Ec2):
    """The name of the Auto Scaling group of this instance."""

    name = "Auto Scaling"

    def read(self, wanted: Collection[str]) -> tuple[Mapping[str, Word], str]:
        """Return the group; if there is none, raise NoMetadata with a message that says how to make it available."""
        facts = {word: fact.value for word, fact in self._hardware.words.items()}
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

    def _from_api(self, known: Mapping[str, str]) -> str | None:
        try:
            return describe_tags(known["instance_id"], _address(known, self._env), known["region"])
        except NoMetadata as problem:
            command = modify(self._hardware, "--instance-metadata-tags enabled")
            raise NoMetadata(f"{problem}; or run `{command}` to show the tags in the metadata", retry=True) from None


def _from_tags(service: Imds) -> str | None:
    """Return the group in the tags of the metadata, "" if they name none, None if the metadata does not show them."""
    if value := service.get(f"{TAGS}/{TAG}"):
        return value.decode(errors="replace")
    return None if service.get(TAGS) is None else ""


def _address(facts: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Return the address of EC2's API, or the one that the SDKs' variables give."""
    if given := env.get("AWS_ENDPOINT_URL_EC2") or env.get("AWS_ENDPOINT_URL"):
        return given
    domain = facts.get("domain") or ("amazonaws.com.cn" if facts["region"].startswith("cn-") else "amazonaws.com")
    return f"https://ec2.{facts['region']}.{domain}"


def describe_tags(instance: str, address: str, region: str) -> str | None:
    """Return the instance's group, None if it has none; raise NoMetadata. Action: ec2:DescribeTags."""
    try:
        auth, awsrequest, errors, session = map(importlib.import_module, MODULES)
    except ImportError:
        raise NoMetadata("a request to EC2 needs botocore: install chipwatch with the extra 'cloudwatch'") from None
    from chipwatch.net.faults import UNEXPECTED  # noqa: PLC0415  # only for a request, as the next
    from chipwatch.net.http_client import ClientTls, HttpClient  # noqa: PLC0415  # 4 MB

    logging.getLogger("botocore").setLevel(logging.WARNING)  # at DEBUG it logs session tokens
    query = {
        "Action": "DescribeTags",
        "Version": "2016-11-15",
        "Filter.1.Name": "resource-id",
        "Filter.1.Value.1": instance,
        "Filter.2.Name": "key",
        "Filter.2.Value.1": TAG,
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    body = urlencode(query).encode()
    request = awsrequest.AWSRequest("POST", address, headers, body)
    try:
        own = session.get_session()
        if (credentials := own.get_credentials()) is None:
            raise NoMetadata("a request to EC2 needs credentials, and none are found")
        auth.SigV4Auth(credentials.get_frozen_credentials(), "ec2", region).add_auth(request)
        tls = ClientTls(ca_file=own.get_config_variable("ca_bundle"), ca_option="AWS_CA_BUNDLE")
        client = HttpClient(address, timeout=TIMEOUT, max_bytes=MAX_BYTES, tls=tls)
    except (errors.BotoCoreError, errors.ClientError, *UNEXPECTED) as problem:
        raise NoMetadata(f"EC2 cannot be asked: {type(problem).__name__}") from None
    try:
        return _group(*client.post(body, dict(request.headers.items()))[::2])
    except (Refused, Retryable) as problem:
        raise NoMetadata(f"EC2 cannot be asked: {problem}") from None
    finally:
        client.close()


def _group(status: int, content: bytes) -> str | None:
    """Return the group in an answer to DescribeTags (EC2's API reference; elements of an item may have any order)."""
    import html  # noqa: PLC0415  # half a MB, needed only here

    body = content.decode(errors="replace")
    if status != 200:
        code = found[1] if (found := CODE.search(body)) else status
        hint = ": the role lacks ec2:DescribeTags" if code == "UnauthorizedOperation" else ""
        raise NoMetadata(f"EC2 refuses DescribeTags ({code}){hint}")
    values = [VALUE.search(item) for item in ITEM.findall(body) if f"<key>{TAG}</key>" in item]
    return html.unescape(values[0][1]) if values and values[0] else None
