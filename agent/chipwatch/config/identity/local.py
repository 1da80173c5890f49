"""The sources of identity that need no network: this process, its environment, and files."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from chipwatch.config.identity.names import NAMES, places
from chipwatch.config.identity.source import IdentityAnswer, IdentitySource, Word, fit, read_text
from chipwatch.contract import owner as kinds

SLURM: Final = places("Slurm")
KUBERNETES: Final = places("Kubernetes")
OF_OWNER: Final[Mapping[str, Mapping[str, str]]] = {
    kinds.SLURM: {"slurm_job": "job", "slurm_step": "step", "slurm_partition": "partition"},
    kinds.KUBERNETES: {"k8s_namespace": "namespace", "k8s_pod": "pod", "k8s_container": "container"},
    kinds.ECS: {"ecs_task": "job"},
}
"""The dimensions of each kind of owner, each with a field of Owner; a container counts only with its pod."""
FIELDS: Final = {name.name: name.in_pod for name in NAMES if name.in_pod}
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""A folder in this container, not on the host (kubernetes.io/docs/tasks/run-application/access-api-from-pod)."""
TRUNCATED: Final = 63
"""Length to which the kubelet cuts a pod's name for the host name (RFC 1123)."""
MAX_BYTES: Final = 1 << 16


class Static(IdentitySource):
    """The source of the host name, and of a run_id that is random for each start."""

    name = "this machine"

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        words = fit({"hostname": platform.node()}, "the system") | fit({"run_id": os.urandom(6).hex()}, "this start")
        return IdentityAnswer(words, "it has no name" if {*wanted} - {*words} else "")


class WatchedProcess(IdentitySource):
    """The source of the watched process's job, by its cgroup."""

    name = "process"

    def __init__(self, owner: kinds.Owner | None) -> None:
        """Take the owner of the watched process, or None if there is no such process."""
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
    """The source of a Slurm job, its rank and its user, by environment variables."""

    name = "Slurm"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        """Return the values inside a job, and nothing outside."""
        words = _from_variables(SLURM, self._env)
        unset = [names[0] for word, names in SLURM.items() if word in wanted and word not in words]
        return IdentityAnswer(words, f"{', '.join(unset)} not set" if unset else "")


class Kubernetes(IdentitySource):
    """
    The source of the cluster and its location, of node, namespace, pod and container.

    Variables that begin with K8S_ are read anywhere, others only inside a pod. The namespace is also in a file of the
    service account. If no variable has the pod's name, HOSTNAME has it, unless that is the node's (hostNetwork) or may
    be cut.
    """

    name = "Kubernetes"

    def __init__(self, env: Mapping[str, str], account: Path = ACCOUNT) -> None:
        self._env, self._namespace = env, account / "namespace"

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        namespace = read_text(self._namespace, MAX_BYTES)
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

    def _host_name(self, found: Mapping[str, Word]) -> str:
        name = self._env.get("HOSTNAME", "")
        is_node = "k8s_node" in found and found["k8s_node"].value.partition(".")[0] == name.partition(".")[0]
        return "" if is_node or len(name) >= TRUNCATED else name


class RecordsSource(IdentitySource):
    """Makes the identity wait for values that a collector will pass to `Identity.offer`."""

    name = "records"

    def is_here(self) -> bool:
        return True

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        return IdentityAnswer(trouble="no record has named the instance yet", retry=True)


def _from_variables(names: Mapping[str, Collection[str]], env: Mapping[str, str]) -> dict[str, Word]:
    """Return the values of dimensions in environment variables; for each, the first variable with a value counts."""
    values: dict[str, Word] = {}
    for word, variables in names.items():
        for variable in variables:
            values = fit({word: env.get(variable)}, variable) | values
    return values
