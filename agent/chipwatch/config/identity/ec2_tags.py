"""Asks EC2's API for the tags of an instance."""

from __future__ import annotations

import html
import re
from contextlib import closing
from typing import Final
from urllib.parse import urlencode

from chipwatch.config.identity.autoscaling import TAG
from chipwatch.contract.errors import Refused, Retryable
from chipwatch.net.aws_signer import Login, Signer
from chipwatch.net.http_client import ClientTls, HttpClient
from chipwatch.net.metadata_service import MAX_BYTES, NoMetadata

ITEM: Final = re.compile("<item>(.*?)</item>", re.DOTALL)
VALUE: Final = re.compile("<value>([^<]+)</value>")
CODE: Final = re.compile(r"<Code>(\w+(?:\.\w+)*)</Code>")
TIMEOUT: Final = 10.0
"""Seconds for the request and its answer."""


def describe_tags(instance: str, address: str, region: str) -> str | None:
    """
    Return an instance's group, or None if it has none. The role needs ec2:DescribeTags.

    Raise NoMetadata, or ImportError without botocore, which finds the credentials.
    """
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
    signer = Signer(Login(region, address), "ec2")
    try:
        tls = ClientTls(ca_file=signer.open().ca_bundle, ca_option="AWS_CA_BUNDLE")
        with closing(HttpClient(address, timeout=TIMEOUT, max_bytes=MAX_BYTES, tls=tls)) as client:
            return _group(*client.post(body, signer.sign(address, body, headers))[::2])
    except (Refused, Retryable) as problem:
        raise NoMetadata(f"EC2 cannot be asked: {problem}") from None


def _group(status: int, content: bytes) -> str | None:
    """Return the group in an answer to DescribeTags, in which the elements of an item may have any order."""
    body = content.decode(errors="replace")
    if status != 200:
        named = CODE.search(body)
        code = named[1] if named else status
        hint = ": the role lacks ec2:DescribeTags" if code == "UnauthorizedOperation" else ""
        raise NoMetadata(f"EC2 refuses DescribeTags ({code}){hint}")
    values = [VALUE.search(item) for item in ITEM.findall(body) if f"<key>{TAG}</key>" in item]
    return html.unescape(values[0][1]) if values and values[0] else None
