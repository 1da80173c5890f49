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

from agent.identity.dmi import Hardware
from agent.identity.ec2 import describe
from agent.identity.imds import DOMAIN, TAGS, Imds, modify
from agent.identity.metadata import MAX_BYTES, NoAnswer, NoService
from agent.identity.source import Answer, Source, fit

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
EXTRA: Final = "install chipwatch with the extra 'cloudwatch'"


class AutoScaling(Source):
    """The name of the Auto Scaling group of this instance."""

    name = "Auto Scaling"
    words = ("autoscaling_group",)

    def __init__(self, env: Mapping[str, str], hardware: Hardware) -> None:
        self._env, self._hardware = env, hardware
        self.remote = not hardware.is_fargate

    def is_here(self) -> bool:
        """Return whether the hardware is an EC2 instance."""
        return self._hardware.is_ec2

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return the group, or a message that says how to make it available."""
        del wanted
        if self._hardware.is_fargate or self._hardware.is_google:
            return Answer(trouble=self._hardware.why)
        known = {word: found.value for word, found in self._hardware.words.items()}
        known["region"] = self._env.get("AWS_REGION") or self._env.get("AWS_DEFAULT_REGION", "")
        service, trouble = None, "neither metadata nor environment name the instance and the region"
        try:
            service = Imds(self._env, self._hardware)
            if answer := _from_tags(service):
                return answer
            known |= {word: found.value for word, found in describe(service).items()}
            known["domain"] = (service.get(DOMAIN) or b"").decode()
        except (NoService, NoAnswer, UnicodeDecodeError) as problem:
            trouble = str(problem)
        is_ec2 = self.is_here() or (service is not None and service.has_token)
        if not is_ec2 or not (known["region"] and "instance_id" in known):
            return Answer(trouble=trouble, retry=is_ec2)
        return self._from_api(known)

    def _from_api(self, known: Mapping[str, str]) -> Answer:
        try:
            group = describe_tags(known["instance_id"], _address(known, self._env), known["region"])
        except NoAnswer as problem:
            command = modify(self._hardware, "--instance-metadata-tags enabled")
            return Answer(trouble=f"{problem}; or run `{command}` to show the tags in the metadata", retry=True)
        found = fit({"autoscaling_group": group}, "EC2's DescribeTags")
        return Answer(found, "" if found else f"the instance has no tag {TAG}", retry=True)


def _from_tags(service: Imds) -> Answer | None:
    """Return the answer of the metadata, or None if it does not show the tags."""
    if value := service.get(f"{TAGS}/{TAG}"):
        return Answer(fit({"autoscaling_group": value.decode(errors="replace")}, f"{service.url}{TAGS}/{TAG}"))
    if service.get(TAGS) is not None:
        return Answer(trouble=f"the instance has no tag {TAG}", retry=True)
    return None


def _address(known: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Return the address of EC2's API, or the one that the SDKs' variables give."""
    if given := env.get("AWS_ENDPOINT_URL_EC2") or env.get("AWS_ENDPOINT_URL"):
        return given
    domain = known.get("domain") or ("amazonaws.com.cn" if known["region"].startswith("cn-") else "amazonaws.com")
    return f"https://ec2.{known['region']}.{domain}"


def describe_tags(instance: str, address: str, region: str) -> str | None:
    """Return the instance's group, None if it has none; raise NoAnswer. Action: ec2:DescribeTags."""
    try:
        auth, awsrequest, errors, http, session, utils, wire_errors = map(importlib.import_module, MODULES)
    except ImportError:
        raise NoAnswer(f"asking EC2 needs botocore: {EXTRA}") from None
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
            raise NoAnswer("asking EC2 needs credentials, and none are found")
        auth.SigV4Auth(credentials.get_frozen_credentials(), "ec2", region).add_auth(request)
        proxies, bundle = utils.get_environ_proxies(address), own.get_config_variable("ca_bundle")
        wire = http.URLLib3Session(verify=bundle or True, proxies=proxies, timeout=TIMEOUT, max_pool_connections=1)
        try:
            return _group(wire.send(request.prepare()))
        finally:
            wire.close()
    except (errors.BotoCoreError, errors.ClientError, wire_errors.HTTPError, OSError, ValueError) as problem:
        raise NoAnswer(f"EC2 cannot be asked: {type(problem).__name__}") from None


def _group(response: Any) -> str | None:
    """Return the group in a DescribeTags response (EC2's API reference; elements of an item may have any order)."""
    import html  # noqa: PLC0415  # half a MB, needed only here

    body = response.raw.read(MAX_BYTES).decode(errors="replace")
    if response.status_code != 200:
        code = found[1] if (found := CODE.search(body)) else response.status_code
        hint = ": the role lacks ec2:DescribeTags" if code == "UnauthorizedOperation" else ""
        raise NoAnswer(f"EC2 refuses DescribeTags ({code}){hint}")
    values = [VALUE.search(item) for item in ITEM.findall(body) if f"<key>{TAG}</key>" in item]
    return html.unescape(values[0][1]) if values and values[0] else None
