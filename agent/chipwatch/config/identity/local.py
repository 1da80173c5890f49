"""Values that need no network request: of this process, its environment and its files."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from chipwatch.config.identity.names import NAMES, places
from chipwatch.config.identity.source import IdentityAnswer, IdentitySource, Word, fit
from chipwatch.contract.owner import ECS, Owner
from chipwatch.contract.owner import KUBERNETES as KUBERNETES_KIND
from chipwatch.contract.owner import SLURM as SLURM_KIND

SLURM: Final = places("Slurm")
KUBERNETES: Final = places("Kubernetes")
OF_OWNER: Final[Mapping[str, Mapping[str, str]]] = {
    SLURM_KIND: {"slurm_job": "job", "slurm_step": "step", "slurm_partition": "partition"},
    KUBERNETES_KIND: {"k8s_namespace": "namespace", "k8s_pod": "pod", "k8s_container": "container"},
    ECS: {"ecs_task": "job"},
}
"""Dimensions that each kind of owner has, and the field of Owner for each; a container counts only with its pod."""
FIELDS: Final = {name.name: name.in_pod for name in NAMES if name.in_pod}
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""A path in this container, not on the host (https://kubernetes.io/docs/tasks/run-application/access-api-from-pod)."""
TRUNCATED: Final = 63
"""Length to which the kubelet truncates a pod's name in its host name (RFC 1123)."""
MAX_BYTES: Final = 1 << 16


class Static(IdentitySource):
    """The host name, and a random run_id for each start."""

    name = "this machine"

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        words = fit({"hostname": platform.node()}, "the system") | fit({"run_id": os.urandom(6).hex()}, "this start")
        return IdentityAnswer(words, "it has no name" if {*wanted} - {*words} else "")


class WatchedProcess(IdentitySource):
    """The job of the watched process, from its cgroup."""

    name = "process"

    def __init__(self, owner: Owner | None) -> None:
        """Take the owner of the process; None: no process is watched, or it has ended."""
        self._owner = owner

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        if self._owner is None:
            return IdentityAnswer()
        fields = {**OF_OWNER.get(self._owner.kind, {}), "user": "user"}
        values = {word: getattr(self._owner, field) for word, field in fields.items()}
        if not self._owner.pod:
            values.pop("k8s_container", None)
        words = fit(values, "the watched process")
        missing = [word for word in wanted if word in self.words and word not in words]
        return IdentityAnswer(words, f"its cgroup does not tell {', '.join(missing)}" if missing else "")


class Slurm(IdentitySource):
    """The job, the rank and the user."""

    name = "Slurm"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        """Return them inside a job, none outside."""
        words = _from_variables(SLURM, self._env)
        unset = [names[0] for word, names in SLURM.items() if word in wanted and word not in words]
        return IdentityAnswer(words, f"{', '.join(unset)} not set" if unset else "")


class Kubernetes(IdentitySource):
    """
    Cluster and its location, node, namespace, pod and container.

    Variables that begin with K8S_ are read anywhere, the others only inside a pod. The namespace is also in the service
    account's files. The last resort for the pod's name is HOSTNAME, unless it is the node's (hostNetwork) or may be
    truncated.
    """

    name = "Kubernetes"

    def __init__(self, env: Mapping[str, str], account: Path = ACCOUNT) -> None:
        self._env, self._namespace = env, account / "namespace"

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        namespace = self._read_namespace()
        inside = namespace != "" or "KUBERNETES_SERVICE_HOST" in self._env
        env = {name: value for name, value in self._env.items() if inside or name.startswith("K8S_")}
        words = _from_variables(KUBERNETES, env)
        if not inside:
            why = f"this is not a pod: it has neither KUBERNETES_SERVICE_HOST nor {self._namespace}"
            return IdentityAnswer(words, why)
        words = fit({"k8s_namespace": namespace}, str(self._namespace)) | words
        words = fit({"k8s_pod": self._host_name(words)}, "HOSTNAME") | words
        missing = [f"{KUBERNETES[word][0]} ({FIELDS[word]})" for word in FIELDS if word in wanted and word not in words]
        return IdentityAnswer(words, f"the pod's environment lacks {', '.join(missing)}" if missing else "")

    def _read_namespace(self) -> str:
        try:
            with self._namespace.open("rb") as file:
                return file.read(MAX_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            return ""

    def _host_name(self, found: Mapping[str, Word]) -> str:
        name = self._env.get("HOSTNAME", "")
        is_node = "k8s_node" in found and found["k8s_node"].value.partition(".")[0] == name.partition(".")[0]
        return "" if is_node or len(name) >= TRUNCATED else name


class RecordsSource(IdentitySource):
    """Makes the identity wait for values from records; their collector passes them to `Identity.offer`."""

    name = "records"

    def is_here(self) -> bool:
        return True

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        return IdentityAnswer(trouble="no record has named the instance yet", retry=True)


def _from_variables(names: Mapping[str, Collection[str]], env: Mapping[str, str]) -> dict[str, Word]:
    """Return the dimensions that variables in `env` give; the first variable with a value counts."""
    values: dict[str, Word] = {}
    for word, variables in names.items():
        for variable in variables:
            values = fit({word: env.get(variable)}, variable) | values
    return values
