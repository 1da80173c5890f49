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
from typing import Any, Final
from urllib.parse import urlencode

from chipwatch.identity.platforms import Ec2, Imds, describe, modify
from chipwatch.identity.source import Word, fit
from chipwatch.net.metadata_service import MAX_BYTES, NoMetadata, NoService

TAGS: Final = "/latest/meta-data/tags/instance"
DOMAIN: Final = "/latest/meta-data/services/domain"
TAG: Final = "aws:autoscaling:groupName"
ITEM: Final = re.compile("<item>(.*?)</item>", re.DOTALL)
VALUE: Final = re.compile("<value>([^<]+)</value>")
CODE: Final = re.compile(r"<Code>(\w+(?:\.\w+)*)</Code>")
TIMEOUT: Final = (3, 10)
"""Seconds to connect to the API, and for each part of its answer."""
MODULES: Final = (
    "botocore.auth", "botocore.awsrequest", "botocore.exceptions", "botocore.httpsession", "botocore.session",
    "botocore.utils", "urllib3.exceptions",
)  # fmt: skip
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
        auth, awsrequest, errors, http, session, utils, wire_errors = map(importlib.import_module, MODULES)
    except ImportError:
        raise NoMetadata("a request to EC2 needs botocore: install chipwatch with the extra 'cloudwatch'") from None
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
    request = awsrequest.AWSRequest("POST", address, headers, urlencode(query), stream_output=True)
    try:
        own = session.get_session()
        if (credentials := own.get_credentials()) is None:
            raise NoMetadata("a request to EC2 needs credentials, and none are found")
        auth.SigV4Auth(credentials.get_frozen_credentials(), "ec2", region).add_auth(request)
        proxies, bundle = utils.get_environ_proxies(address), own.get_config_variable("ca_bundle")
        wire = http.URLLib3Session(verify=bundle or True, proxies=proxies, timeout=TIMEOUT, max_pool_connections=1)
        try:
            return _group(wire.send(request.prepare()))
        finally:
            wire.close()
    except (errors.BotoCoreError, errors.ClientError, wire_errors.HTTPError, OSError, ValueError) as problem:
        raise NoMetadata(f"EC2 cannot be asked: {type(problem).__name__}") from None


def _group(response: Any) -> str | None:
    """Return the group in a DescribeTags response (EC2's API reference; elements of an item may have any order)."""
    import html  # noqa: PLC0415  # half a MB, needed only here

    body = response.raw.read(MAX_BYTES).decode(errors="replace")
    if response.status_code != 200:
        code = found[1] if (found := CODE.search(body)) else response.status_code
        hint = ": the role lacks ec2:DescribeTags" if code == "UnauthorizedOperation" else ""
        raise NoMetadata(f"EC2 refuses DescribeTags ({code}){hint}")
    values = [VALUE.search(item) for item in ITEM.findall(body) if f"<key>{TAG}</key>" in item]
    return html.unescape(values[0][1]) if values and values[0] else None
