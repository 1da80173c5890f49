"""The identity of a pod, from the downward API's environment and the service account's files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from agent.identity.source import Answer, Source, Word, fit

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""A path in this container, not on the host (https://kubernetes.io/docs/tasks/run-application/access-api-from-pod)."""
VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "k8s_cluster": ("K8S_CLUSTER_NAME", "CLUSTER_NAME", "MY_CLUSTER_NAME"),
    "k8s_location": ("K8S_LOCATION", "CLUSTER_LOCATION"),
    "k8s_node": ("K8S_NODE_NAME", "NODE_NAME", "MY_NODE_NAME", "KUBERNETES_NODE_NAME"),
    "k8s_namespace": ("K8S_NAMESPACE", "K8S_NAMESPACE_NAME", "K8S_POD_NAMESPACE", "POD_NAMESPACE", "MY_POD_NAMESPACE"),
    "k8s_pod": ("K8S_POD_NAME", "POD_NAME", "MY_POD_NAME"),
    "k8s_container": ("K8S_CONTAINER_NAME", "CONTAINER_NAME", "MY_CONTAINER_NAME"),
}
"""Kubernetes prescribes no names: ours come first, then those of its documentation and of common agents."""
FIELDS: Final = {
    "k8s_cluster": "the cluster's name, which a pod cannot look up",
    "k8s_location": "the cluster's region or zone, which a pod cannot look up",
    "k8s_node": "fieldRef spec.nodeName",
    "k8s_namespace": "fieldRef metadata.namespace",
    "k8s_pod": "fieldRef metadata.name",
    "k8s_container": "the container's name",
}
NAME_CUT: Final = 63
"""Length to which the kubelet truncates a pod's name in its host name (RFC 1123)."""
MAX_BYTES: Final = 1 << 16


class Kubernetes(Source):
    """
    Cluster and its location, node, namespace, pod and container.

    Variables that begin with K8S_ are read anywhere, the others only inside a pod. The namespace is also in the service
    account's files. The last resort for the pod's name is HOSTNAME, unless it is the node's (hostNetwork) or may be
    truncated.
    """

    name = "Kubernetes"
    words = tuple(VARIABLES)

    def __init__(self, env: Mapping[str, str], account: Path = ACCOUNT) -> None:
        self._env, self._namespace = env, account / "namespace"

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return the values that the environment and the files give."""
        namespace = self._read_namespace()
        inside = namespace != "" or "KUBERNETES_SERVICE_HOST" in self._env
        found: dict[str, Word] = {}
        for word, names in VARIABLES.items():
            for name in names:
                if inside or name.startswith("K8S_"):
                    found = fit({word: self._env.get(name)}, name) | found
        if inside:
            found = fit({"k8s_namespace": namespace}, str(self._namespace)) | found
            found = fit({"k8s_pod": self._host_name(found)}, "HOSTNAME") | found
        return Answer(found, self._trouble(set(wanted) & set(VARIABLES) - set(found), inside=inside))

    def _read_namespace(self) -> str:
        try:
            with self._namespace.open("rb") as file:
                return file.read(MAX_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            return ""

    def _host_name(self, found: Mapping[str, Word]) -> str:
        name = self._env.get("HOSTNAME", "")
        is_node = "k8s_node" in found and found["k8s_node"].value.partition(".")[0] == name.partition(".")[0]
        return "" if is_node or len(name) >= NAME_CUT else name

    def _trouble(self, missing: Collection[str], *, inside: bool) -> str:
        if not inside:
            return f"this is not a pod: it has neither KUBERNETES_SERVICE_HOST nor {self._namespace}"
        wanted = [f"{VARIABLES[word][0]} ({FIELDS[word]})" for word in VARIABLES if word in missing]
        return f"the pod's environment lacks {', '.join(wanted)}" if wanted else ""
