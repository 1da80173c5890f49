"""Finds the GPUs of the machine, and reads all of them in each tick."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chipwatch.collectors.nvidia.device import Gpu, Instance
from chipwatch.collectors.nvidia.events import Xids
from chipwatch.collectors.nvidia.fields import DriverFields
from chipwatch.collectors.nvidia.health import Peers
from chipwatch.collectors.nvidia.metrics import DRIVER, GPU, MIG, MODEL, UUID
from chipwatch.collectors.nvidia.processes import Tree, processes
from chipwatch.collectors.nvidia.query import SECOND, Lost
from chipwatch.collectors.nvidia.unified import Kernel
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.facts import Device, DeviceActivity, DeviceProcess
from chipwatch.host import nvml
from chipwatch.host.pace import SLOW, Pace
from chipwatch.host.procfs import close_all

if TYPE_CHECKING:
    from chipwatch.collectors.nvidia import NvidiaCollector

REFRESH: Final = 300 * SECOND
"""Interval (ns) between searches for GPUs."""
SEARCH: Final = 10 * SECOND
"""Interval (ns) between searches while a GPU is lost."""
UNKNOWN: Final = "unknown"
RESTART: Final = "restart the container if it lost its devices (after systemctl daemon-reload)"
HINTS: Final = {
    nvml.NVML_ERROR_LIBRARY_NOT_FOUND: f"{nvml.LIBRARY} cannot be loaded: install the driver's libraries, or pass "
    "them into this container (NVIDIA_DRIVER_CAPABILITIES=utility)",
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the kernel module is not loaded, or this container has none of its devices",
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the library and the kernel module have different versions, as after an "
    "upgrade: reload the module or reboot",
    nvml.NVML_ERROR_NO_PERMISSION: "this user may not open /dev/nvidia*",
    nvml.NVML_ERROR_OPERATING_SYSTEM: f"the system denies access to /dev/nvidia*; {RESTART}",
    nvml.NVML_ERROR_UNKNOWN: RESTART,
}


def call_driver(function: Callable[[], Any]) -> Any:
    """Call a function of NVML about no particular device; raise Unavailable."""
    try:
        return function()
    except nvml.NVMLError as error:
        hint = HINTS.get(error.value)
        raise Unavailable(f"NVML: {error} (NVML {error.value}){f': {hint}' if hint else ''}", is_silent=True) from None


class _Listed(NamedTuple):
    """A GPU in NVML's list that answers."""

    handle: Any
    uuid: str
    model: str


class Gpus:
    """
    All GPUs of the machine.

    A GPU keeps the index under which it was first seen, because NVML may renumber others when one is lost. A new GPU in
    the place of a lost one gets its index. NVML stays open, and is reopened only if no GPU answers: reopening it often
    causes problems.
    """

    def __init__(
        self, config: NvidiaCollector.Config, level: Level, clock: Callable[[], int], ask: Callable[[str], None]
    ) -> None:
        """
        Open NVML and find the GPUs; raise Unavailable.

        `clock`: returns monotonic ns; `ask`: called with the name of each device before it is asked.
        """
        self._config, self._level, self._clock, self._ask = config, level, clock, ask
        self._wanted = frozenset(map(str, config.devices)) or None
        """Indexes and UUIDs of the GPUs to read; None for all."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") if config.cuda_visible_devices else None
        if self._wanted is None and visible is not None:
            words = (word.strip() for word in visible.split(","))
            self._wanted = frozenset(takewhile(lambda word: word and not word.startswith("-"), words))  # as CUDA does
        self._gpus: dict[str, Gpu] = {}
        self._xids = Xids()
        self._peers = Peers()
        self._problems: list[str] = []
        self._unlisted: dict[int, str] = {}
        """Index -> why NVML does not give its GPU."""
        self.silent: dict[Dimensions, str] = {}
        """GPU -> why it answered no query in the last reading."""
        self._slow = Pace(SLOW)
        self._find_at = 0
        self._failing_since: int | None = None
        """Time (monotonic ns) since which the search for GPUs fails; None if it works."""
        self._read_at = 0
        """Time (ns since the epoch) of the last tick."""
        self._tree: Tree | None = None
        self.process = os.getpid()
        """PID of the process that opened NVML; after a fork, NVML must be opened again."""
        self._open()
        try:
            self._find()
        except Unavailable:
            self.close()
            raise
        if config.pid is not None:
            with suppress(ProcessLookupError):  # it has ended; the process collector reports that
                self._tree = Tree(config, config.pid)

    def read(self, at: int) -> Iterator[list[Datapoint]]:
        """Yield the readings of each GPU; raise PartlyCollected at the end, or Unavailable if the driver fails."""
        now = self._clock()
        slow = self._slow.is_due(now)
        self._follow_clock(at)
        self._search(now, slow=slow)
        self._ask("NVML")
        yield self._xids.read(at, now)  # first, because it waits: others' data fill the caches meanwhile
        if slow and self._tree:
            self._tree.refresh()
        for gpu in self._gpus.values():
            self._ask(f"GPU {gpu.number}: NVML")
            was_lost = gpu.lost
            points = gpu.read(at, self._clock(), slow=slow or gpu.is_due)
            if gpu.lost and not was_lost:
                self._find_at = 0
            elif slow and self._tree and not gpu.lost:
                with suppress(Lost):  # the next reading reports it
                    for part in gpu.parts:
                        self._tree.read(part, gpu.minor)
            yield points
            self._problems += gpu.troubles()
        self.silent = {self._dims(UNKNOWN, UNKNOWN, gpu=index): why for index, why in self._unlisted.items()}
        self.silent |= {gpu.dims: why for gpu in self._gpus.values() if (why := gpu.silence)}
        if slow:
            working = (gpu for gpu in self._gpus.values() if not gpu.lost)
            yield self._peers.read((gpu.kernel.model, gpu.health) for gpu in working)
        self._ask("")
        problems, self._problems = [*self._problems, *self._xids.query.troubles.values()], []
        if problems:
            raise PartlyCollected(problems)

    def _follow_clock(self, at: int) -> None:
        """If the clock was set back since the last tick, forget earlier samples: they have times of that clock."""
        before, self._read_at = self._read_at, at
        for gpu in self._gpus.values() if at < before else ():
            for part in gpu.all_parts:
                part.restart()

    def _search(self, now: int, *, slow: bool) -> None:
        """Search for GPUs if that is due; otherwise search for MIG instances, in each tick on a GPU that has some."""
        if now >= self._find_at:
            self._find()
            return
        for gpu in self._gpus.values():
            if gpu.handle is not None and not gpu.lost and (slow or gpu.instances):
                self._divide(gpu, now)
                self._problems += gpu.query.troubles.values()

    def devices(self) -> Iterator[Device]:
        """Yield all GPUs and instances, with every name by which a scheduler may call them."""
        for uuid, gpu in self._gpus.items():
            yield Device(gpu.dims, gpu.kernel.model, (uuid, str(gpu.number), f"nvidia{gpu.minor}", f"gpu-{gpu.minor}"))
            for name, part in gpu.instances.items():
                place = (f"gpu-{gpu.minor}-mig-{part.place}",) if part.place else ()
                yield Device(part.dims, "", (name, f"{gpu.number}.{part.number}", *place))

    def processes(self) -> Iterator[DeviceProcess]:
        """Yield the processes on all GPUs and instances."""
        for gpu in self._gpus.values():
            with suppress(Lost):  # the next reading reports it
                for part in gpu.parts if gpu.handle is not None else ():
                    yield from processes(part, self._config.proc)

    def activity(self) -> Iterator[DeviceActivity]:
        """Yield the activity of all GPUs and instances since the last call."""
        for gpu in self._gpus.values():
            with suppress(Lost):  # the next reading reports it
                yield from gpu.activity.read(self._clock())

    def describe(self) -> str:
        """Return the number of each model, the driver's version, and irregularities."""
        models = Counter(gpu.kernel.model for gpu in self._gpus.values())
        parts = [*(f"{count} x {model}" for model, count in models.items()), f"driver {self._driver}"]
        if instances := sum(len(gpu.instances) for gpu in self._gpus.values()):
            parts.append(f"{instances} MIG instances")
        if lost := sum(gpu.lost for gpu in self._gpus.values()):
            parts.append(f"{lost} lost")
        folder = self._config.proc / "driver/nvidia/gpus"
        if folder.is_dir() and (listed := len(list(folder.iterdir()))) > self._count:
            parts.append(f"{folder} lists {listed}, NVML {self._count}")
        if bases := dict.fromkeys(gpu.activity.basis for gpu in self._gpus.values() if gpu.activity.basis):
            parts.append(f"utilization of jobs by {' and '.join(bases)}")
        if self._tree:
            parts.append(f"the process tree is {self._tree.method}")
        return ", ".join(parts)

    def close(self) -> None:
        """Close NVML, unless the parent process has opened it before a fork."""
        if self.process != os.getpid():
            return
        close_all(self._xids, *self._gpus.values())
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()

    def _open(self) -> None:
        self._ask("NVML")
        call_driver(nvml.nvmlInit)
        self._driver = call_driver(nvml.nvmlSystemGetDriverVersion)

    def _reopen(self) -> None:
        """Close NVML and open it again; raise Unavailable."""
        self.close()
        for gpu in self._gpus.values():
            gpu.handle = None
        self._open()

    def _find(self) -> None:
        """Find the GPUs; a missing one is lost. Raise Unavailable without one, or if the driver fails for minutes."""
        now = self._clock()
        self._find_at = now + SEARCH
        present = self._gpus.values()
        answers = any(gpu.query.answered and not gpu.lost for gpu in present)
        are_lost = not answers and any(gpu.lost or gpu.query.reset or gpu.query.broken for gpu in present)
        try:
            if are_lost:
                self._reopen()
            self._count = call_driver(nvml.nvmlDeviceGetCount)
        except Unavailable as problem:  # for example while the driver is reloaded
            self._failing_since = now if self._failing_since is None else self._failing_since
            if not self._gpus or (not answers and now - self._failing_since >= REFRESH):
                raise
            self._problems.append(str(problem))
            return
        self._failing_since = None
        listed = [self._listed(index) for index in range(self._count)]
        answered = {entry.uuid for entry in listed if isinstance(entry, _Listed)}
        failed = {index for index, entry in enumerate(listed) if not isinstance(entry, _Listed)}
        vacant = {
            gpu.number: uuid for uuid, gpu in self._gpus.items() if uuid not in answered and gpu.number not in failed
        }
        gpus, self._unlisted = [], {}
        for index, entry in enumerate(listed):
            if not isinstance(entry, _Listed):
                gpu = self._failed_at(index, entry)
            else:
                is_taken = are_lost and any(gpu.number == index for gpu in present)
                place = index if index in vacant else next(iter(vacant), None) if is_taken else None
                gpu = self._at(index, entry, now, vacant, place)
            gpus += [gpu] if gpu else []
        for gpu in self._gpus.values():
            if gpu not in gpus:
                gpu.handle = None
        if not any(gpu.lost or gpu.handle is None for gpu in self._gpus.values()):
            self._find_at = now + REFRESH
        self._xids.watch(gpus)
        self._problems += [problem for gpu in gpus for problem in gpu.troubles()]
        if not self._gpus:
            wanted = f" of {', '.join(sorted(self._wanted)) or 'none'}" if self._wanted is not None else ""
            text = "; ".join((f"NVML lists no GPU{wanted}", *self._problems))
            raise Unavailable(text, is_counted=self._wanted is None and not self._count)

    def _listed(self, index: int) -> _Listed | nvml.NVMLError:
        self._ask(f"GPU {index}: NVML")
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            return _Listed(handle, nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle))
        except nvml.NVMLError as error:
            return error

    def _at(self, index: int, listed: _Listed, now: int, vacant: dict[int, str], place: int | None) -> Gpu | None:
        """
        Return the GPU at NVML's `index`; None if the user does not want it.

        A new GPU gets the number `place`, if that is set: it stands where a lost GPU stood.
        """
        gpu, is_new = self._gpus.get(listed.uuid), listed.uuid not in self._gpus
        if gpu is None:
            taken = {gpu.number for gpu in self._gpus.values()}
            number = place if place is not None else index if index not in taken else max(taken) + 1
            gpu = self._gpu(listed.handle, number, listed.uuid, listed.model)
        gpu.handle = listed.handle
        if gpu.lost:
            gpu.query.retry()
        self._divide(gpu, now)
        with suppress(Lost):
            minor = gpu.query.ask("minor", nvml.nvmlDeviceGetMinorNumber, gpu.handle)
            gpu.minor = gpu.minor if minor is None else minor
        if self._wanted is not None and not self._wanted.intersection((str(index), listed.uuid, *gpu.instances)):
            if not is_new:
                self._gpus.pop(listed.uuid).close()
            return None
        if is_new and place is not None:
            self._gpus.pop(vacant.pop(place)).close()
        self._gpus[listed.uuid] = gpu
        return gpu

    def _failed_at(self, index: int, error: nvml.NVMLError) -> Gpu | None:
        """Return the GPU at `index`, for which the driver returned `error`; None if it is unknown and not lost."""
        gpu = next((gpu for gpu in self._gpus.values() if gpu.number == index), None)
        if error.value not in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
            self._problems.append(f"GPU {index}: {error} (NVML {error.value})")
            if not gpu and (self._wanted is None or str(index) in self._wanted):
                self._unlisted[index] = f"the driver does not give it: {error} (NVML {error.value})"
        elif gpu:
            gpu.handle = None
        elif self._wanted is None or str(index) in self._wanted:
            gpu = self._gpus[f"{UNKNOWN} {index}"] = self._gpu(None, index, UNKNOWN, UNKNOWN)
        return gpu

    def _divide(self, gpu: Gpu, now: int) -> None:
        """Find the MIG instances of a GPU."""
        gpu.query.begin(now)
        with suppress(Lost):  # the next reading reports it
            gpu.instances = self._instances(gpu)

    def _instances(self, gpu: Gpu) -> dict[str, Instance]:
        """Return UUID -> MIG instance of a GPU; raise Lost."""
        count = gpu.query.ask("mig", nvml.nvmlDeviceGetMaxMigDeviceCount, gpu.handle)
        if count is None:
            return gpu.instances
        gpu.is_mig = count > 0
        instances: dict[str, Instance] = {}
        for number in range(count):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number)
                uuid = nvml.nvmlDeviceGetUUID(handle)
                instance = gpu.instances.get(uuid)
                model = "" if instance else nvml.nvmlDeviceGetName(handle)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_NOT_FOUND:  # no instance has this number
                    gpu.query.failed(f"mig.{number}", "mig", error.value)
                    instances |= {uuid: old for uuid, old in gpu.instances.items() if old.dims[MIG] == str(number)}
                continue
            if instance is None:
                dims = self._dims(uuid, model, gpu=gpu.number, mig=number)
                instance = Instance(handle, dims, (GPU, MIG, *self._config.dimensions), self._level)
            instance.handle = handle
            instance.identify(gpu.handle)
            instances[uuid] = instance
        if instances.keys() != gpu.instances.keys():
            gpu.query.retry()  # a partitioned GPU supports other queries
        for uuid in gpu.instances.keys() - instances.keys():
            gpu.instances[uuid].close()
        return instances

    def _gpu(self, handle: Any, index: int, uuid: str, model: str) -> Gpu:
        dims, keys = self._dims(uuid, model, gpu=index), (GPU, *self._config.dimensions)
        driver, kernel = DriverFields(str(self._driver)), Kernel(self._config, model)
        return Gpu(handle, dims, keys, self._level, driver=driver, kernel=kernel)

    def _dims(self, uuid: str, model: str, **indexes: int) -> Dimensions:
        further = {UUID: uuid, MODEL: model, DRIVER: str(self._driver)}
        own = {key: str(index) for key, index in indexes.items()}
        return Dimensions(own | {key: further[key] for key in self._config.dimensions})
