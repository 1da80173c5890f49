"""
The Auto Scaling group of an instance, which only its tags tell.

The metadata service has the tags if that was allowed; else EC2's API does, asked by one signed request. A client of
EC2 would do the same for 20 MB of memory.
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
from agent.identity.metadata import MOST, NoService, Silent
from agent.identity.names import known_by
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
"""Imported when there is nobody else to ask: they are not installed everywhere, and take 10 MB."""
EXTRA: Final = "install chipwatch with the extra 'cloudwatch'"


class AutoScaling(Source):
    """The name of the group that launched this instance."""

    name = "Auto Scaling"
    words = known_by(name)

    def __init__(self, env: Mapping[str, str], hardware: Hardware) -> None:
        """Ask the metadata service that `env` names, then EC2's API with the credentials that the AWS SDK finds."""
        self._env, self._hardware = env, hardware
        self.remote = not hardware.is_fargate

    def is_here(self) -> bool:
        """Tell whether the hardware says EC2."""
        return self._hardware.is_ec2

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return the group, or what to do for it to be found."""
        del wanted
        if self._hardware.is_fargate or self._hardware.is_google:
            return Answer(trouble=self._hardware.why)
        known = {word: found.value for word, found in self._hardware.words.items()}
        known["region"] = self._env.get("AWS_REGION") or self._env.get("AWS_DEFAULT_REGION", "")
        service, trouble = None, "neither the metadata nor the environment name instance and region"
        try:
            service = Imds(self._env, self._hardware)
            if answer := _from_tags(service):
                return answer
            known |= {word: found.value for word, found in describe(service).items()}
            known["domain"] = (service.get(DOMAIN) or b"").decode()
        except (NoService, Silent, UnicodeDecodeError) as problem:
            trouble = str(problem)
        there = self.is_here() or (service is not None and service.spoke)
        if not there or not (known["region"] and "instance_id" in known):
            return Answer(trouble=trouble, retry=there)
        return self._from_api(known)

    def _from_api(self, known: Mapping[str, str]) -> Answer:
        try:
            group = describe_tags(known["instance_id"], _address(known, self._env), known["region"])
        except Silent as problem:
            mend = modify(self._hardware, "--instance-metadata-tags enabled")
            return Answer(trouble=f"{problem}; `{mend}` shows the tags without that", retry=True)
        found = fit({"autoscaling_group": group}, "EC2's DescribeTags")
        return Answer(found, "" if found else f"the instance has no tag {TAG}", retry=True)


def _from_tags(service: Imds) -> Answer | None:
    """Return what the tags in the metadata say, or None where they are not shown."""
    if value := service.get(f"{TAGS}/{TAG}"):
        return Answer(fit({"autoscaling_group": value.decode(errors="replace")}, f"{service.url}{TAGS}/{TAG}"))
    if service.get(TAGS) is not None:
        return Answer(trouble=f"the instance has no tag {TAG}", retry=True)
    return None


def _address(known: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Return the address of EC2's API, or what stands in for it, as the SDKs have it."""
    if given := env.get("AWS_ENDPOINT_URL_EC2") or env.get("AWS_ENDPOINT_URL"):
        return given
    domain = known.get("domain") or ("amazonaws.com.cn" if known["region"].startswith("cn-") else "amazonaws.com")
    return f"https://ec2.{known['region']}.{domain}"


def describe_tags(instance: str, address: str, region: str) -> str | None:
    """Return the instance's group, None if it has none; raise Silent. Action: ec2:DescribeTags."""
    try:
        auth, awsrequest, errors, http, session, utils, wire_errors = map(importlib.import_module, MODULES)
    except ImportError:
        raise Silent(f"to ask EC2 for it takes botocore: {EXTRA}") from None
    logging.getLogger("botocore").setLevel(logging.WARNING)  # below that, it logs what it signs, tokens and all
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
            raise Silent("to ask EC2 for it takes credentials, and none are found")
        auth.SigV4Auth(credentials.get_frozen_credentials(), "ec2", region).add_auth(request)
        proxies, bundle = utils.get_environ_proxies(address), own.get_config_variable("ca_bundle")
        wire = http.URLLib3Session(verify=bundle or True, proxies=proxies, timeout=TIMEOUT, max_pool_connections=1)
        try:
            return _group(wire.send(request.prepare()))
        finally:
            wire.close()
    except (errors.BotoCoreError, errors.ClientError, wire_errors.HTTPError, OSError, ValueError) as problem:
        raise Silent(f"EC2 cannot be asked for it: {type(problem).__name__}") from None


def _group(response: Any) -> str | None:
    """Return the group that a DescribeTags response names (EC2's API reference; the order in an item is not said)."""
    import html  # noqa: PLC0415  # half a MB, and only for this

    body = response.raw.read(MOST).decode(errors="replace")
    if response.status_code != 200:
        code = found[1] if (found := CODE.search(body)) else response.status_code
        hint = ": the role lacks ec2:DescribeTags" if code == "UnauthorizedOperation" else ""
        raise Silent(f"EC2 refuses DescribeTags ({code}){hint}")
    values = [VALUE.search(item) for item in ITEM.findall(body) if f"<key>{TAG}</key>" in item]
    return html.unescape(values[0][1]) if values and values[0] else None
