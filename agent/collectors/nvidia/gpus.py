"""All GPUs of the machine: which there are, and what a tick reads of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, Final, Protocol

import pynvml

from agent.collectors.nvidia.device import Gpu, Instance, Name, Part
from agent.collectors.nvidia.events import Xids
from agent.collectors.nvidia.metrics import MODEL, UUID, of_gpu, of_instance
from agent.collectors.nvidia.processes import Tree, Usage
from agent.collectors.nvidia.query import SECOND, Lost
from agent.datapoint import Datapoint, Dimensions, Level
from agent.errors import PartlyCollected, Unavailable
from agent.host.process_tree import Where

SELDOM: Final = 9_500 * SECOND // 1000
"""So often what is dear is read: a little under 10 s, for ticks that come a little early."""
REFRESH: Final = 300 * SECOND
"""So often it is looked which GPUs there are."""
UNKNOWN: Final = "unknown"
HINTS: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 cannot be loaded: the driver's libraries are not "
    "installed, or not passed into this container (NVIDIA_DRIVER_CAPABILITIES=utility)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the kernel module is not loaded, or its devices are not passed in here",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the library and the kernel module are of different versions, as after "
    "an upgrade: reload the module or reboot",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not open /dev/nvidia*",
    pynvml.NVML_ERROR_OPERATING_SYSTEM: "the system bars us from /dev/nvidia*; a container that was cut off from its "
    "devices (systemctl daemon-reload does that) must be started anew",
    pynvml.NVML_ERROR_UNKNOWN: "a container that was cut off from its devices (systemctl daemon-reload does that) must "
    "be started anew",
}


class Wanted(Where, Protocol):
    """Which GPUs, with which dimensions, for which processes."""

    @property
    def pid(self) -> int | None:
        """The first process of the tree that is watched."""

    @property
    def devices(self) -> Sequence[int | str]:
        """Indexes and UUIDs; all where there are none."""

    @property
    def cuda_visible_devices(self) -> bool:
        """Whether the variable of that name says which."""

    @property
    def dimensions(self) -> Sequence[str]:
        """Of uuid and model."""


def failure(error: pynvml.NVMLError) -> Unavailable:
    """Return what to raise where the driver as a whole fails."""
    hint = HINTS.get(error.value)
    return Unavailable(f"NVML: {error} (NVML {error.value}){f': {hint}' if hint else ''}")


def wanted(devices: Sequence[int | str], visible: str | None) -> frozenset[str] | None:
    """Return the indexes and UUIDs that `devices` names, else those of CUDA_VISIBLE_DEVICES, None for all."""
    if devices or visible is None:
        return frozenset(map(str, devices)) or None
    words = [word.strip() for word in visible.split(",")]
    return frozenset(takewhile(lambda word: word and not word.startswith("-"), words))  # CUDA stops there, too


class Gpus:
    """
    The GPUs, by UUID.

    Each keeps the index under which it was first seen: if one is lost, NVML may move the others up. NVML is opened
    once and kept, since opening it again and again does harm of its own; only when every GPU is lost is it opened
    anew.
    """

    def __init__(self, config: Wanted, level: Level, clock: Callable[[], int]) -> None:
        """Open NVML and find the GPUs; raise Unavailable. `clock` gives monotonic ns."""
        self._config, self._level, self._clock = config, level, clock
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") if config.cuda_visible_devices else None
        self._wanted = wanted(config.devices, visible)
        self._gpus: dict[str, Gpu] = {}
        self._usages: dict[Part, Usage] = {}
        self._xids = Xids(of_gpu(*config.dimensions).xid)
        self._problems: list[str] = []
        self._looks = self._looked = 0
        self._find_at = 0
        self._tree: Tree | None = None
        self.process = os.getpid()
        """Whose NVML this is: what is open does not survive a fork."""
        self._open()
        try:
            self._find()
        except Unavailable:
            self.close()
            raise
        if not self._gpus:
            self.close()
            chosen = f" of {', '.join(sorted(self._wanted)) or 'none'}" if self._wanted is not None else ""
            raise Unavailable(f"NVML lists no GPU{chosen}{''.join(f'; {problem}' for problem in self._problems)}")
        if config.pid is not None:
            with suppress(ProcessLookupError):  # it has ended; the process collector says so
                self._tree = Tree(config, config.pid)

    def read(self, at: int) -> Iterator[Datapoint]:
        """Yield what can be read now; raise PartlyCollected last, and Unavailable where the driver is gone."""
        now = self._clock()
        if now >= self._find_at:
            self._find()
        seldom = self._looks < 2 or now - self._looked >= SELDOM  # twice at first: a rate needs two readings
        if seldom:
            self._looks, self._looked = self._looks + 1, now
            if self._tree:
                self._tree.look()
        for gpu in self._gpus.values():
            was_lost = gpu.lost
            yield from gpu.read(at, self._clock(), seldom=seldom)
            if gpu.lost and not was_lost:
                self._find_at = 0
            elif seldom and self._tree:
                yield from self._share(gpu, self._tree, at)
            self._problems += gpu.troubles()
        yield from self._xids.read(at, now)
        problems, self._problems = [*self._problems, *self._xids.query.troubles.values()], []
        if problems:
            raise PartlyCollected(problems)

    def describe(self) -> str:
        """Say how many there are of each model, and what is odd."""
        models = Counter(gpu.name.model for gpu in self._gpus.values())
        parts = [f"{many} x {model}" for model, many in models.items()]
        parts.append(f"driver {self._driver}")
        for many, what in (
            (sum(len(gpu.instances) for gpu in self._gpus.values()), "MIG instances"),
            (sum(gpu.lost for gpu in self._gpus.values()), "lost"),
        ):
            parts += [f"{many} {what}"] if many else []
        known = self._config.proc / "driver/nvidia/gpus"
        if known.is_dir() and (listed := len(list(known.iterdir()))) > self._count:
            parts.append(f"{known} lists {listed}, NVML {self._count}")
        if self._tree:
            parts.append(f"the process tree is {self._tree.method}")
        return ", ".join(parts)

    def close(self) -> None:
        """Close NVML, unless it is that of the process which we were forked from."""
        if self.process != os.getpid():
            return
        with suppress(pynvml.NVMLError):
            self._xids.close()
            for gpu in self._gpus.values():
                gpu.close()
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def _open(self) -> None:
        try:
            pynvml.nvmlInit()
            self._driver = pynvml.nvmlSystemGetDriverVersion()
        except pynvml.NVMLError as error:
            raise failure(error) from None

    def _find(self) -> None:
        """Look which GPUs there are; those that are not found any more are lost."""
        now = self._clock()
        self._find_at = now + REFRESH
        if self._gpus and all(gpu.lost for gpu in self._gpus.values()):
            self.close()
            self._open()
        try:
            self._count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise failure(error) from None
        found = [gpu for index in range(self._count) if (gpu := self._at(index, now))]
        for gpu in self._gpus.values():
            if gpu not in found:
                gpu.handle = None
        self._usages = {part: self._usages.get(part) or Usage(part, gpu.minor) for gpu in found for part in gpu.parts}
        self._xids.watch(found)
        self._problems += [problem for gpu in found for problem in gpu.troubles()]

    def _at(self, index: int, now: int) -> Gpu | None:
        """Return the GPU that NVML has at `index`, or None for one that is not wanted or not there."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid, model = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
        except pynvml.NVMLError as error:
            return self._not_at(index, error)
        self._gpus.pop(f"{UNKNOWN} {index}", None)
        gpu = self._gpus.get(uuid)
        if gpu is None:
            taken = {gpu.name.number for gpu in self._gpus.values()}
            gpu = self._gpu(handle, index if index not in taken else max(taken) + 1, uuid, model)
        gpu.handle = handle
        gpu.query.begin(now)
        with suppress(Lost):  # the next reading tells
            gpu.minor = gpu.query.ask("minor", pynvml.nvmlDeviceGetMinorNumber, handle)
            gpu.instances = self._instances(gpu)
        if self._wanted is not None and not self._wanted.intersection(
            (str(index), uuid, *(instance.name.uuid for instance in gpu.instances))
        ):
            return None
        self._gpus[uuid] = gpu
        return gpu

    def _not_at(self, index: int, error: pynvml.NVMLError) -> Gpu | None:
        """Return the GPU at an index for which the driver has only an error."""
        gpu = next((gpu for gpu in self._gpus.values() if gpu.name.number == index), None)
        if error.value not in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
            self._problems.append(f"GPU {index}: {error} (NVML {error.value})")
            return gpu
        if gpu is None and (self._wanted is None or str(index) in self._wanted):
            gpu = self._gpus[f"{UNKNOWN} {index}"] = self._gpu(None, index, UNKNOWN, UNKNOWN)
        if gpu is not None:
            gpu.handle = None
        return gpu

    def _instances(self, gpu: Gpu) -> list[Instance]:
        """Return the instances that the GPU is divided into; raise Lost."""
        known, found = {instance.name.uuid: instance for instance in gpu.instances}, []
        for number in range(gpu.query.ask("mig", pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu.handle) or 0):
            try:
                handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number)
                uuid, model = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_NOT_FOUND:  # there is a place for one, and no more
                    gpu.query.refused(f"mig.{number}", "mig", error.value)
                continue
            instance = known.pop(uuid, None)
            if instance is None:
                name = self._name(f"{gpu.name.who} MIG {number}", number, uuid, model, gpu=gpu.name.number, mig=number)
                instance = Instance(handle, gpu, name, of_instance(*self._config.dimensions), self._level)
            instance.handle = handle
            found.append(instance)
        for instance in known.values():
            instance.close()
        return found

    def _gpu(self, handle: Any, index: int, uuid: str, model: str) -> Gpu:
        name = self._name(f"GPU {index}", index, uuid, model, gpu=index)
        return Gpu(handle, name, of_gpu(*self._config.dimensions), self._level)

    def _name(self, who: str, index: int, uuid: str, model: str, **places: int) -> Name:
        further = {UUID: uuid, MODEL: model}
        dims = {key: str(place) for key, place in places.items()}
        return Name(who, index, uuid, model, Dimensions(dims | {key: further[key] for key in self._config.dimensions}))

    def _share(self, gpu: Gpu, tree: Tree, at: int) -> Iterator[Datapoint]:
        with suppress(Lost):  # the next reading tells
            for part in gpu.parts:
                if part in self._usages:
                    yield from self._usages[part].read(at, tree)
