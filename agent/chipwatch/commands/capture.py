"""`chipwatch check --capture`: writes all files and calls of a reading to one JSON file, to make a test fixture."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from chipwatch.base.redaction import without_secrets
from chipwatch.base.version import __version__
from chipwatch.commands.bundle import names_of_people_and_hosts
from chipwatch.config.options import Config
from chipwatch.contract.errors import CommandError, os_text
from chipwatch.host import nvml

MOST_CALLS: Final = 20_000
MOST_FILES: Final = 20_000
MOST_BYTES: Final = 64 << 10
"""Most bytes of one file."""
MOST: Final = 8 << 20
"""Most bytes of all files together."""
MOST_KNOWN: Final = 500
"""Most identifiers that are replaced wherever they occur, also where they are written as hex digits."""
MOST_IDENTIFIER: Final = 256
"""Most bytes of a file with an identifier."""
BOARD: Final = "class/dmi/id"
"""Folder below /sys with serial numbers of the board, its case and the machine."""
OF_PROC: Final = ("driver", "meminfo")
"""Parts of /proc that are captured. Others have processes, mounts, addresses or the kernel's command line."""
CGROUPS: Final = ("fs", "cgroup")
"""Folder below /sys that is left out: it names pods, users and units."""
SECRET_FILES: Final = re.compile(r"serial|unique_id|uuid|guid|wwid|mac_?addr|^address$|^vpd|asset|gids", re.IGNORECASE)
IDENTIFIERS: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b|\b(?=\d*[a-f])[0-9a-f]{16,}\b"
    r"|\b(?:[0-9a-f]{4}:){3,7}[0-9a-f]{4}\b|(?<=[a-z]x)(?:[0-9a-f]{12}|[0-9a-f]{16})(?![0-9a-z])",
    re.IGNORECASE,
)
"""Matches UUIDs, hardware addresses, GUIDs and long hex numbers, also in names of udev (enx..., rocex...)."""
LABELLED: Final = re.compile(r"(\bserial(?:[ _-]?(?:number|no\.?))?[ \t]*[:=][ \t]*)([\w.-]{4,})", re.IGNORECASE)
"""Matches a serial number in a text, after its label."""
KNOWN: Final = re.compile(r"(?=\D*\d)(?=.*[1-9a-eg-z])\S{6,200}", re.IGNORECASE)
"""Matches a word that identifies one machine, so that it is replaced everywhere. Only zeros or Fs mean no number."""
TEXTS: Final = frozenset({"nvmlSystemGetDriverVersion", "nvmlDeviceGetUUID", "nvmlDeviceGetName"})
ADDRESSES: Final = {"nvmlGpmMetricsGet": (8, 24), "nvmlEventSetWait_v2": (0, 8), "nvmlGpuInstanceGetInfo": (0, 8)}
"""Function of NVML -> first and last byte of its struct that hold a memory address, which is set to 0."""
CLUSTER: Final = "nvmlDeviceGetGpuFabricInfoV", 4, 20
"""Function of NVML whose struct has a binary UUID, and the first and last byte of that."""


class Mask:
    """Replaces identifiers by made-up ones of the same form; equal identifiers stay equal within a capture."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """`names`: names of hosts and people -> their replacement."""
        self._salt = os.urandom(16)
        self._names = names or {}
        self._known: dict[str, tuple[str, str]] = {}
        """Identifier so far -> the same as hex digits, and its replacement."""

    def identifier(self, text: str) -> str:
        """Replace an identifier by other letters and digits; from now on `everywhere` replaces it, too."""
        digest = hashlib.shake_128(self._salt + text.encode(errors="replace")).digest(len(text))
        digits = "0123456789" if text.isdecimal() else "0123456789abcdef"
        instead = "".join(
            digits[n % len(digits)] if char.isalnum() else char for n, char in zip(digest, text, strict=True)
        )
        if KNOWN.fullmatch(text) and len(self._known) < MOST_KNOWN:
            self._known[text] = text.encode().hex(), instead
        return instead

    def words(self, text: str) -> str:
        """Replace each word of a text as an identifier."""
        return re.sub(r"\S+", lambda match: self.identifier(match[0]), text)

    def everywhere(self, text: str) -> str:
        """Replace all identifiers so far, also where their form does not show that they are identifiers."""
        for known, (hexed, instead) in self._known.items():
            if known in text:
                text = re.sub(rf"(?<![^\W_]){re.escape(known)}(?![^\W_])", lambda _, to=instead: to, text)  # type: ignore[misc]
            if hexed in text:
                text = text.replace(hexed, instead.encode().hex())
        return text

    def text(self, text: str) -> str:
        """Replace each identifier and each name in a text."""
        for name, instead in self._names.items():
            text = re.sub(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", lambda _, to=instead: to, text)  # type: ignore[misc]
        text = LABELLED.sub(lambda match: match[1] + self.identifier(match[2]), text)
        return self.path(without_secrets(text))

    def path(self, text: str) -> str:
        """Replace each identifier in a path, but no names: these may be words of the kernel."""
        return IDENTIFIERS.sub(lambda match: self.identifier(match[0]), text)

    def data(self, data: bytes) -> bytes:
        """Replace bytes by others; if all are zero, there is no identifier, and they stay."""
        return hashlib.shake_128(self._salt + data).digest(len(data)) if any(data) else data


class Calls:
    """Wraps NVML's library; keeps each call with its arguments, code and answer."""

    def __init__(self, library: Any, mask: Mask) -> None:
        self._library, self._mask = library, mask
        self._handles: dict[int | None, int] = {}
        self._since = time.monotonic()
        self.made: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return a function of the library that keeps its calls; raise AttributeError if there is none."""
        function = getattr(self._library, name)
        if name == "nvmlErrorString":
            return function  # type: ignore[no-any-return]  # ctypes has no types

        def call(*args: Any) -> int:
            asked = [plain(name, arg, self._handles) for arg in args]
            code: int = function(*args)
            answer = [self._masked(name, plain(name, arg, self._handles)) for arg in args]
            asked = [self._masked(name, part) for part in asked]
            row = {"call": name, "asked": asked, "code": code, "s": round(time.monotonic() - self._since, 3)}
            if len(self.made) < MOST_CALLS:
                self.made.append(row | ({"answer": answer} if answer != asked else {}))
            return code

        return call

    def _masked(self, name: str, part: Any) -> Any:
        if name in TEXTS and isinstance(part, str):
            return self._mask.text(bytes.fromhex(part).partition(b"\0")[0].decode(errors="replace"))
        if name == CLUSTER[0] and isinstance(part, str):
            data, start, end = bytes.fromhex(part), *CLUSTER[1:]
            return (data[:start] + self._mask.data(data[start:end]) + data[end:]).hex()
        return part


def plain(name: str, argument: Any, handles: dict[int | None, int]) -> Any:
    """Convert an argument for JSON: a number, a struct as hex digits, a handle as its number in order of use."""
    argument = getattr(argument, "_obj", argument)  # unwraps ctypes.byref
    kind = type(argument).__name__
    if kind == "c_void_p":
        return {"handle": handles.setdefault(argument.value, len(handles))} if argument.value else None
    if kind.startswith("c_char_Array"):
        start, end = ADDRESSES.get(name, (0, 0))
        data = bytes(argument)
        return (data[:start] + bytes(end - start) + data[end:]).hex()
    return argument.value if hasattr(argument, "value") else argument


class Capture:
    """Records the files and calls of all readings from now on, until `write`."""

    def __init__(self, config: Config) -> None:
        self._roots = {"sys": Path(config.sys), "proc": Path(config.proc)}
        self._mask = Mask(names_of_people_and_hosts(config))
        self._opened: dict[str, None] = {}
        self._listed: dict[str, None] = {}
        self._calls: Calls | None = None
        self._files: dict[str, Any] = {}
        self._left = MOST
        self._is_on = True
        load = nvml.load

        def recorded(name: str) -> Calls:
            self._calls = Calls(load(name), self._mask)
            return self._calls

        nvml.load = recorded
        sys.addaudithook(self._hear)  # cannot be removed, but the command ends soon

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self._is_on and event in ("open", "os.listdir", "os.scandir"):
            paths = self._opened if event == "open" else self._listed
            if isinstance(args[0], (str, os.PathLike)) and len(paths) < MOST_FILES:
                paths[os.fspath(args[0])] = None

    def write(self, file: Path) -> None:
        """Write the capture to a new file of mode 0600; raise CommandError."""
        self._is_on = False
        self._know()
        for folder in map(Path, self._listed):
            with suppress(OSError):
                for entry in sorted(folder.iterdir())[:MOST_FILES]:
                    self._take(entry, with_content=False)
        for path in (self._roots["proc"] / "driver/nvidia/version", *map(Path, self._opened)):
            self._take(path, with_content=True)
        about = {"chipwatch": __version__, "kernel": self._mask.text(platform.release()), "machine": platform.machine()}
        clean = self._mask.everywhere
        calls = (clean(json.dumps(row)) for row in (self._calls.made if self._calls is not None else ()))
        files = (f"{json.dumps(clean(name))}: {self._clean(self._files[name])}" for name in sorted(self._files))
        between = ",\n"
        lists = f'"nvml": [\n{between.join(calls)}\n],\n"files": {{\n{between.join(files)}\n}}'
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                out.write(f'{{\n"about": {json.dumps(about)},\n{lists}\n}}\n')
        except OSError as problem:
            raise CommandError(f"--capture: {file}: {os_text(problem)}") from problem

    def _know(self) -> None:
        """Read identifiers in the folders of all files that were read, and of the board, to replace them everywhere."""
        for folder in {self._roots["sys"] / BOARD, *(Path(file).parent for file in self._opened)}:
            with suppress(OSError):
                for entry in sorted(folder.iterdir()) if self._roots["sys"] in folder.parents else ():
                    if SECRET_FILES.search(entry.name) and not entry.name.startswith("vpd"):  # vpd is slow to read
                        with suppress(OSError), entry.open("rb") as source:
                            self._mask.words(source.read(MOST_IDENTIFIER).decode(errors="replace"))

    def _clean(self, content: Any) -> str:
        """Return the content of a file as JSON, with all known identifiers replaced."""
        if isinstance(content, dict):
            content = {kind: self._mask.everywhere(text) for kind, text in content.items()}
        return json.dumps(self._mask.everywhere(content) if isinstance(content, str) else content)

    def _take(self, path: Path, *, with_content: bool) -> None:
        """Keep a file below /sys or /proc: a link as a link, a folder or an unread file as null."""
        for root, at in self._roots.items():
            with suppress(OSError, ValueError):
                parts, top = Path(os.path.normpath(path)).relative_to(at).parts, at.resolve()
                if not parts or (parts[0] not in OF_PROC if root == "proc" else parts[:2] == CGROUPS):
                    continue
                real = top
                (top / Path(*parts)).stat()  # raises OSError if the file does not exist
                for part in parts:
                    if (real / part).is_symlink():
                        name = self._mask.path(f"{root}/{(real / part).relative_to(top)}")
                        self._files[name] = {"link": self._mask.path(str((real / part).readlink()))}
                    real = (real / part).resolve()
                name = self._mask.path(f"{root}/{real.relative_to(top)}")
                self._files.setdefault(name, None)
                if with_content and S_ISREG(real.stat().st_mode) and self._left > 0:
                    with real.open("rb") as source:
                        self._files[name] = self._content(real.name, source.read(MOST_BYTES))

    def _content(self, name: str, data: bytes) -> Any:
        self._left -= len(data)
        if SECRET_FILES.search(name):
            return self._mask.words(data.decode(errors="replace"))
        try:
            return self._mask.text(data.decode())
        except UnicodeDecodeError:
            return {"hex": data.hex()}
