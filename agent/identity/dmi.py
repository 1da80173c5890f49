"""What the hypervisor wrote into the machine's own tables: it needs no network, and containers see it too."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from agent.identity.names import known_by
from agent.identity.source import Answer, Source, Word, fit

INSTANCE_ID: Final = re.compile("i-[0-9a-f]{8,17}")
INSTANCE_TYPE: Final = re.compile("[a-z][a-z0-9-]*[.][a-z0-9-]+")
MOST: Final = 4096


class Hardware:
    """
    Tells whether this is an EC2 instance (AWS, "Detect whether a host is an EC2 instance"), or one of Google's.

    Nitro names its maker, and the instance in the board's asset tag. Xen has a UUID that begins with ec2, in either
    byte order; a random one may do so as well, so Xen itself must be there too. Google names itself as the product,
    also in pods and in its sandbox (gVisor), and nothing else of use (google.auth.compute_engine._metadata).
    """

    def __init__(self, sys: Path, env: Mapping[str, str]) -> None:
        """Look below `sys`, when asked for the first time."""
        self._sys, self.folder = sys, sys / "class" / "dmi" / "id"
        self.is_fargate = env.get("AWS_EXECUTION_ENV") == "AWS_ECS_FARGATE"
        """A Fargate task has no instance of its own; what its host may show is another account's."""

    @cached_property
    def is_ec2(self) -> bool:
        """Whether this machine is an EC2 instance."""
        return not self.is_fargate and (self._vendor == "Amazon EC2" or self._is_xen)

    @cached_property
    def is_google(self) -> bool:
        """Whether this machine is one of Google's cloud."""
        return not (self.is_fargate or self.is_ec2) and self._product.startswith("Google")

    @cached_property
    def is_hidden(self) -> bool:
        """Whether the tables are empty or not shown, so that this may be any platform."""
        return not (self._vendor or self._product or self.is_ec2)

    @cached_property
    def _vendor(self) -> str:
        return self._read(self.folder / "sys_vendor")

    @cached_property
    def _product(self) -> str:
        return self._read(self.folder / "product_name")

    @cached_property
    def _is_xen(self) -> bool:
        hypervisor = self._read(self._sys / "hypervisor" / "uuid")
        uuids = [hypervisor.lower(), self._read(self.folder / "product_uuid").lower()]
        starts = [start for uuid in uuids for start in (uuid[:3], uuid[6:8] + uuid[4:5])]
        amazon = "ec2" in starts or "amazon" in self._read(self.folder / "bios_version").lower()
        return amazon and (self._vendor == "Xen" or hypervisor != "")

    @cached_property
    def words(self) -> Mapping[str, Word]:
        """The instance's id and type, where the tables of an EC2 instance hold them."""
        found: dict[str, Word] = {}
        places = {"instance_id": ("board_asset_tag", INSTANCE_ID), "instance_type": ("product_name", INSTANCE_TYPE)}
        for word, (file, pattern) in places.items():
            if self.is_ec2 and pattern.fullmatch(value := self._read(self.folder / file)):
                found |= fit({word: value}, str(self.folder / file))
        return found

    @property
    def why(self) -> str:
        """Say what was seen that is not EC2."""
        if self.is_fargate:
            return "a Fargate task has no instance of its own"
        return f"{self.folder / 'sys_vendor'} says {self._vendor or 'nothing'}, not Amazon EC2"

    @staticmethod
    def _read(path: Path) -> str:
        try:
            with path.open("rb") as file:
                return file.read(MOST).decode(errors="replace").strip()
        except OSError:
            return ""


class Dmi(Source):
    """The instance's id and type as the hardware has them."""

    name = "DMI"
    words = known_by(name)

    def __init__(self, hardware: Hardware) -> None:
        """Ask `hardware`."""
        self._hardware = hardware

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return both on Nitro, nothing elsewhere."""
        del wanted
        return Answer(self._hardware.words, "" if self._hardware.is_ec2 else self._hardware.why)
