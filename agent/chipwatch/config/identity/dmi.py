"""Detects the cloud by the DMI tables, which the hypervisor fills. They need no network, and containers see them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from chipwatch.config.identity.names import places
from chipwatch.config.identity.source import IdentityAnswer, IdentitySource, Word, fit, read_text

PATTERNS: Final = {
    "instance_id": re.compile("i-[0-9a-f]{8,17}"), "instance_type": re.compile("[a-z][a-z0-9-]*[.][a-z0-9-]+"),
}  # fmt: skip
MAX_BYTES: Final = 4096


class DmiTables(IdentitySource):
    """
    The source of an instance's id and type in the DMI tables; others ask it for the platform.

    It detects EC2 (AWS, "Detect whether a host is an EC2 instance") and Google Cloud by files below /sys.

    On Nitro the vendor is Amazon EC2 and the board's asset tag is the instance id. On Xen the UUID begins with ec2, in
    either byte order; a random UUID may do so too, so Xen itself must be detected as well. On Google Cloud, also in
    pods and in gVisor, the product name begins with Google (google.auth.compute_engine._metadata).
    """

    name = "DMI"

    def __init__(self, sys: Path, env: Mapping[str, str]) -> None:
        self._sys, self.folder = sys, sys / "class" / "dmi" / "id"
        self.is_fargate = env.get("AWS_EXECUTION_ENV") == "AWS_ECS_FARGATE"
        """True in a Fargate task, whose instance belongs to another account."""

    @cached_property
    def is_ec2(self) -> bool:
        """True if this machine is an EC2 instance."""
        vendor = self._dmi("sys_vendor")
        if self.is_fargate or vendor == "Amazon EC2":
            return not self.is_fargate
        hypervisor = read_text(self._sys / "hypervisor" / "uuid", MAX_BYTES)
        uuids = hypervisor.lower(), self._dmi("product_uuid").lower()
        starts = {start for uuid in uuids for start in (uuid[:3], uuid[6:8] + uuid[4:5])}
        is_amazon = "ec2" in starts or "amazon" in self._dmi("bios_version").lower()
        return is_amazon and (vendor == "Xen" or hypervisor != "")

    @cached_property
    def is_google(self) -> bool:
        """True if this machine is a Google Cloud instance."""
        return not (self.is_fargate or self.is_ec2) and self._dmi("product_name").startswith("Google")

    @cached_property
    def is_hidden(self) -> bool:
        """True if the tables are empty or not readable, so that they do not tell the platform."""
        return not (self._dmi("sys_vendor") or self._dmi("product_name") or self.is_ec2)

    @cached_property
    def found(self) -> Mapping[str, Word]:
        """The id and type of an EC2 instance, if the tables have them."""
        words: dict[str, Word] = {}
        for word, file in places("DMI").items():
            if self.is_ec2 and PATTERNS[word].fullmatch(value := self._dmi(file)):
                words |= fit({word: value}, str(self.folder / file))
        return words

    @property
    def why(self) -> str:
        """The reason why this is not an EC2 instance, for messages."""
        if self.is_fargate:
            return "a Fargate task does not own an instance"
        return f"{self.folder / 'sys_vendor'} says {self._dmi('sys_vendor') or 'nothing'}, not Amazon EC2"

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        """Return the id and the type on an instance with Nitro; on other machines, the reason why there are none."""
        return IdentityAnswer(self.found, "" if self.is_ec2 else self.why)

    def _dmi(self, name: str) -> str:
        return read_text(self.folder / name, MAX_BYTES)
