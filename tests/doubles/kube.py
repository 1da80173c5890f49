"""
A stand-in for Kubernetes' API server: enough of it for the real Helm to install, upgrade, test and uninstall.

Discovery, writes and reads, label selectors, watches. Every write is checked against upstream's schemas
(kubernetes-validate, strictly) and against rules that no schema has but a server enforces. Pods have succeeded at once.

    python kube.py 1.33        # prints its port; needs kubernetes_validate
"""

import base64
import contextlib
import copy
import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

NAMESPACED, CLUSTER = True, False
KINDS = [
    ("", "v1", "Namespace", "namespaces", CLUSTER),
    ("", "v1", "Node", "nodes", CLUSTER),
    *(
        ("", "v1", kind, f"{kind.lower()}s", NAMESPACED)
        for kind in ("Pod", "Secret", "ConfigMap", "Service", "ServiceAccount", "Event")
    ),
    *(("apps", "v1", kind, f"{kind.lower()}s", NAMESPACED) for kind in ("DaemonSet", "Deployment", "StatefulSet")),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", NAMESPACED),
    ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", NAMESPACED),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", NAMESPACED),
    ("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers", NAMESPACED),
]
CUSTOM = ("monitoring.coreos.com", "autoscaling.k8s.io")
"""Groups of custom resources, for which upstream has no schema."""
BY_ROUTE = {(group, version, plural): kind for group, version, kind, plural, _ in KINDS}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
ROUTE = re.compile(
    r"/api(?:s/(?P<group>[^/]+))?/(?P<version>[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/[^/]+)?"
)
OPENAPI = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


# -- rules that no schema has -----------------------------------------------------------------------------------


def fault(kind: str, new: dict, old: dict | None) -> str | None:
    """Return why a server would refuse this object though it fits the schema, or None."""
    if kind in ("DaemonSet", "Deployment", "StatefulSet"):
        spec = new["spec"]
        wanted, labels = spec["selector"]["matchLabels"], spec["template"]["metadata"].get("labels", {})
        if not wanted.items() <= labels.items():
            return "spec.template.metadata.labels: `selector` does not match template `labels`"
        if old and old["spec"]["selector"] != spec["selector"]:
            return "spec.selector: field is immutable"
        return next(faults_of_pod(spec["template"]["spec"]), None)
    return next(faults_of_pod(new["spec"]), None) if kind == "Pod" else None


def faults_of_pod(spec: dict) -> Iterator[str]:
    """Iterate over what a server refuses in a pod's specification."""
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    if len(volumes) != len(set(volumes)):
        yield f"spec.volumes: Duplicate value: {volumes}"
    for volume in spec.get("volumes", []):
        if ".." in volume.get("hostPath", {}).get("path", "").split("/"):
            yield f"spec.volumes[{volume['name']}].hostPath.path: must not contain '..'"
        if len(volume) != 2:
            yield f"spec.volumes[{volume['name']}]: must specify exactly one volume type"
    if spec.get("hostUsers") is False and (spec.get("hostPID") or spec.get("hostNetwork")):
        yield "spec.hostUsers: Forbidden with hostPID or hostNetwork"
    if spec.get("dnsPolicy") == "None" and not spec.get("dnsConfig"):
        yield "spec.dnsConfig: must provide at least one DNS nameserver"
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    names = [container["name"] for container in containers]
    if len(names) != len(set(names)):
        yield f"spec.containers: Duplicate value: {names}"
    for container in containers:
        for problem in (*faults_of_container(container, volumes), *faults_of_probes(container)):
            yield f"spec.containers[{container['name']}].{problem}"


def faults_of_container(container: dict, volumes: list[str]) -> Iterator[str]:
    """Iterate over what a server refuses in a container."""
    mounts = container.get("volumeMounts", [])
    for mount in mounts:
        if mount["name"] not in volumes:
            yield f"volumeMounts: Not found: {mount['name']}"
    if len({mount["mountPath"] for mount in mounts}) != len(mounts):
        yield "volumeMounts: must be unique"
    security = container.get("securityContext", {})
    if security.get("privileged") and security.get("allowPrivilegeEscalation") is False:
        yield "securityContext: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
    resources = container.get("resources", {})
    for name, limit in resources.get("limits", {}).items():
        if quantity(resources.get("requests", {}).get(name, 0)) > quantity(limit):
            yield f"resources.requests: must be less than or equal to {name} limit"


def faults_of_probes(container: dict) -> Iterator[str]:
    """Iterate over what a server refuses in a container's probes."""
    ports = {port.get("name") for port in container.get("ports", [])}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        if not (probe := container.get(name)):
            continue
        if not {"httpGet", "exec", "tcpSocket", "grpc"} & probe.keys():
            yield f"{name}: must specify a handler type"
        port = probe.get("httpGet", {}).get("port")
        if isinstance(port, str) and port not in ports:
            yield f"{name}.httpGet.port: no port is called {port}"
        if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
            yield f"{name}.successThreshold: must be 1"


def quantity(value: str | float) -> float:
    """Return 128Mi or 20m as a number."""
    number, suffix = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)", str(value)).groups()
    powers = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    return float(number) * (1024 ** " KMGT".index(suffix[0]) if suffix.endswith("i") else powers[suffix])


# -- what clients send ------------------------------------------------------------------------------------------

MERGE_KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "volumeMounts": "mountPath",
              "ports": "containerPort", "imagePullSecrets": "name"}  # fmt: skip


def merged(below, patch, key: str = ""):
    """Return `patch` laid over `below`, as a strategic merge patch or a plain one."""
    if isinstance(patch, list) and key in MERGE_KEYS and isinstance(below, list):
        return merged_list(below, patch, MERGE_KEYS[key])
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(below) if isinstance(below, dict) else {}
    if "$retainKeys" in patch:
        result = {name: value for name, value in result.items() if name in patch["$retainKeys"]}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif not name.startswith("$"):
            result[name] = merged(result.get(name), value, name)
    for name in [name for name in patch if name.startswith("$setElementOrder/")]:
        of = name.partition("/")[2]
        result[of] = ordered(result.get(of, []), patch[name], MERGE_KEYS[of])
    return result


def merged_list(below: list[dict], patch: list[dict], by: str) -> list[dict]:
    """Return a list of objects with a patch laid over the objects of the same key."""
    items = {item[by]: item for item in below}
    for item in patch:
        if item.get("$patch") == "delete":
            items.pop(item[by], None)
        else:
            items[item[by]] = merged(items.get(item[by], {}), item)
    return list(items.values())


def ordered(items: list[dict], order: list, by: str) -> list[dict]:
    """Return a list of objects in the order that a patch asks for."""
    places = {json.dumps(item[by] if isinstance(item, dict) else item): place for place, item in enumerate(order)}
    return sorted(items, key=lambda item: places.get(json.dumps(item[by]), len(places)))


def secret_of(body: bytes) -> dict:
    """Return the Secret that client-go sends in protobuf: an envelope of type and bytes, then the object."""
    secret = fields(fields(body[4:])[2][0])
    meta = fields(secret[1][0])

    def pairs(entries: list[bytes]) -> dict[str, bytes]:
        return {fields(e)[1][0].decode(): fields(e).get(2, [b""])[0] for e in entries}

    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": secret.get(3, [b"Opaque"])[0].decode(),
        "metadata": {
            "name": meta[1][0].decode(),
            "labels": {k: v.decode() for k, v in pairs(meta.get(11, [])).items()},
        },
        "data": {k: base64.b64encode(v).decode() for k, v in pairs(secret.get(2, [])).items()},
    }


def fields(message: bytes) -> dict[int, list]:
    """Return the fields of a protobuf message by their number."""
    found: dict[int, list] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(tag & 7) or varint()
            value, at = message[at : at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found


# -- the server -------------------------------------------------------------------------------------------------


class Refusal(Exception):
    """An answer that is a Status: code, reason, message."""


class Store:
    """All objects, by group, plural, namespace and name."""

    def __init__(self, version: str, validate) -> None:
        self.version, self._validate = version, validate
        self.objects: dict[tuple, dict] = {}
        self.changed = threading.Condition(threading.RLock())
        self._revisions = itertools.count(1)

    def put(self, key: tuple, kind: str, new: dict, *, dry: bool) -> dict:
        """Check and keep an object; raise Refusal."""
        group, _, namespace, name = key
        bare = {**copy.deepcopy(new), "metadata": {**new["metadata"]}}
        bare.pop("status", None)
        for own in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            bare["metadata"].pop(own, None)
        old = self.objects.get(key)
        problem = None if group in CUSTOM else self._validate(bare, self.version)
        if problem := problem or fault(kind, bare, old):
            raise Refusal(422, "Invalid", f'{kind} "{name}" is invalid: {problem}')
        revision = str(next(self._revisions))
        kept = {**bare, "metadata": {**bare["metadata"], "uid": old["metadata"]["uid"] if old else f"uid-{revision}"}}
        kept["metadata"] |= {"resourceVersion": revision, "creationTimestamp": "2026-11-20T10:00:00Z"}
        kept["metadata"] |= {"namespace": namespace} if namespace else {}
        if kind == "Pod":
            kept["status"] = {"phase": "Succeeded"}
        if not dry:
            self.objects[key] = kept
            self.changed.notify_all()
        return kept

    def select(self, group: str, plural: str, namespace: str, query: dict) -> list[dict]:
        """Return the objects that a list asks for."""
        wanted = dict(pair.split("=", 1) for pair in ",".join(query.get("labelSelector", [])).split(",") if "=" in pair)
        name = dict(pair.split("=", 1) for pair in query.get("fieldSelector", [])).get("metadata.name")
        return [
            found
            for (g, p, n, own), found in sorted(self.objects.items())
            if (g, p) == (group, plural) and namespace in ("", n) and name in (None, own)
            and all(found["metadata"].get("labels", {}).get(k) == v.strip("=") for k, v in wanted.items())
        ]  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, *_):
        """Say nothing."""

    def answer(self, code: int, content, kind: str = "application/json"):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self):
        address = urlparse(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if not self.discover(address.path.rstrip("/")):
                self.serve(ROUTE.fullmatch(address.path.rstrip("/")), parse_qs(address.query), body)
        except Refusal as refusal:
            code, reason, message = refusal.args
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            self.answer(code, {**status, "reason": reason, "code": code, "message": message})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815  # the standard library's names

    def discover(self, path: str) -> bool:
        major, minor = self.store.version.split(".")
        if path == "/version":
            self.answer(
                200, {"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}.0", "platform": "linux/amd64"}
            )
        elif path == "/openapi/v2":
            self.answer(200, b"", OPENAPI)  # a document without a definition: nothing is checked by the client
        elif path == "/api":
            self.answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            groups = sorted({(group, version) for group, version, *_ in KINDS if group})
            served = [(group, {"groupVersion": f"{group}/{version}", "version": version}) for group, version in groups]
            listed = [{"name": name, "versions": [at], "preferredVersion": at} for name, at in served]
            self.answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
        elif found := re.fullmatch(r"/api(?:s/([^/]+))?/([^/]+)", path):
            group, version = found[1] or "", found[2]
            listed = [
                {"name": plural, "singularName": kind.lower(), "namespaced": scope, "kind": kind, "verbs": VERBS}
                for g, v, kind, plural, scope in KINDS
                if (g, v) == (group, version)
            ]
            name = f"{group}/{version}".lstrip("/")
            self.answer(200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed})
        else:
            return False
        return True

    def serve(self, route, query: dict, body: bytes):
        kind = route and BY_ROUTE.get((route["group"] or "", route["version"], route["plural"]))
        if not kind:
            raise Refusal(404, "NotFound", f"no route {self.path}")
        group, plural, namespace, name = route["group"] or "", route["plural"], route["namespace"] or "", route["name"]
        key = (group, plural, namespace, name)
        if self.command == "GET" and not name and "watch" in query:
            shell = {"kind": kind, "apiVersion": f"{group}/{route['version']}".lstrip("/")}
            self.watch(shell, lambda: self.store.select(group, plural, namespace, query), query)
            return
        with self.store.changed:
            if self.command == "GET" and not name:
                items = self.store.select(group, plural, namespace, query)
                shell = {"kind": f"{kind}List", "apiVersion": f"{group}/{route['version']}".lstrip("/")}
                self.answer(200, {**shell, "metadata": {"resourceVersion": "1"}, "items": items})
            elif self.command == "POST":
                new = secret_of(body) if body.startswith(b"k8s\0") else json.loads(body)
                key = (group, plural, namespace, new["metadata"]["name"])
                if key in self.store.objects:
                    raise Refusal(409, "AlreadyExists", f'{plural} "{key[3]}" already exists')
                self.answer(201, self.store.put(key, kind, new, dry="dryRun" in query))
            elif self.command == "PATCH" and "apply" in self.headers["Content-Type"]:
                self.answer(200, self.store.put(key, kind, json.loads(body), dry="dryRun" in query))
            elif key not in self.store.objects:
                raise Refusal(404, "NotFound", f'{plural} "{name}" not found')
            elif self.command == "GET":
                self.answer(200, self.store.objects[key])
            elif self.command == "DELETE":
                del self.store.objects[key]
                self.answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
            else:
                new = secret_of(body) if body.startswith(b"k8s\0") else json.loads(body)
                new = merged(copy.deepcopy(self.store.objects[key]), new) if self.command == "PATCH" else new
                self.answer(200, self.store.put(key, kind, new, dry="dryRun" in query))

    def watch(self, shell: dict, select, query: dict):
        """Tell of each object that is there, once each revision, for half a minute at most."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

        def tell(event: str, what: dict):
            self.wfile.write(json.dumps({"type": event, "object": what}).encode() + b"\n")
            self.wfile.flush()

        told, until = set(), time.monotonic() + 30
        begun = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
        with self.store.changed, contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                for found in select():
                    if found["metadata"]["resourceVersion"] not in told:
                        told.add(found["metadata"]["resourceVersion"])
                        tell("ADDED", found)
                if query.pop("sendInitialEvents", None):
                    tell("BOOKMARK", {**shell, "metadata": begun})
                self.store.changed.wait(1)


def checker():
    """Return upstream's schemas as a function: object, version -> what is wrong, or None."""
    import kubernetes_validate

    def validate(what: dict, version: str) -> str | None:
        try:
            kubernetes_validate.validate(what, version, strict=True)
        except kubernetes_validate.ValidationError as problem:
            return f"{'.'.join(map(str, problem.path))}: {problem.message}"
        return None

    return validate


def main():
    handler = type("Bound", (Handler,), {"store": Store(sys.argv[1], checker())})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)  # noqa: T201  # its parent reads this
    server.serve_forever()


if __name__ == "__main__":
    main()
