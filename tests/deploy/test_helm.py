"""
The chart, by the real Helm 3.10 and Helm 4, upstream's schemas, a stand-in API and checkov.

The output of each file of ci/ is kept in golden/helm; `UPDATE_GOLDEN=1 pytest tests/deploy/test_helm.py` renews it.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from tests.bench.openmetrics import SERIES, page
from tests.deploy import tools
from tests.doubles import kube
from tests.doubles.exporter import Exporter
from tests.ports import free_port

from chipwatch.base.version import __version__
from chipwatch.config import load as configuration
from chipwatch.config import plugins
from chipwatch.config.convert import options_of
from chipwatch.config.load import FRAME_OPTIONS
from chipwatch.engine.build import validate

CHART = Path(__file__).parents[2] / "helm/chipwatch"
GOLDEN = Path(__file__).parent / "golden/helm"
CI = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}
NAMESPACE = "monitoring"
VERSIONS = ["1.25", *(f"1.{minor}" for minor in range(29, 38))]
"""The oldest that Chart.yaml allows, and those that are run today."""
NEEDED = {"clusterName": "c", "sinks": ["cloudwatch"], "image": {"repository": "team/chipwatch"}}
CUSTOM = {"VerticalPodAutoscaler", "PodMonitor", "ServiceMonitor"}
OPERATOR = ("--api-versions", "monitoring.coreos.com/v1/ServiceMonitor")
"""Of a cluster that has the Prometheus Operator's resources."""
LONG = 300.0


def helm(*words):
    command = [str(tools.helm()), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)


def rendered(*words, release="chipwatch", namespace=NAMESPACE) -> str:
    done = helm("template", release, CHART, "--namespace", namespace, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def of_file(name: str) -> str:
    return rendered("--values", CI[name], *OPERATOR)


def render(values: dict, *words, **where) -> list[dict]:
    """Return the objects that `values` give, on top of what is required."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(NEEDED | values, file, allow_unicode=True)
        file.flush()
        return objects(rendered("--values", file.name, *words, **where))


def objects(text: str) -> list[dict]:
    return [found for found in yaml.safe_load_all(text) if found]


def one(found: list[dict], kind: str) -> dict:
    (of_kind,) = [what for what in found if what["kind"] == kind]
    return of_kind


def pod_of(found: list[dict], kind: str = "DaemonSet") -> dict:
    return one(found, kind)["spec"]["template"]["spec"]


def toml_of(found: list[dict]) -> str:
    (text,) = [what["data"]["chipwatch.toml"] for what in found if what["kind"] == "ConfigMap" and what.get("data")]
    return text


# -- what is rendered -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CI)
def test_every_file_of_values_is_linted_without_a_word_and_gives_what_it_gave(name):
    done = helm("lint", "--strict", CHART, "--values", CI[name])
    assert (done.returncode, "[WARNING]" in done.stdout) == (0, False), done.stdout
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(of_file(name), encoding="utf-8")
    assert of_file(name) == path.read_text(encoding="utf-8"), "if this is meant, UPDATE_GOLDEN=1 renews it"


CHECK = """
import json, sys
import kubernetes_validate as kv
versions, objects = json.load(sys.stdin)
for version in versions:
    for what in objects:
        try:
            kv.validate(what, version, strict=True)
        except kv.ValidationError as problem:
            print(version, what["kind"], what["metadata"]["name"], list(problem.path), problem.message)
"""


def faults_by_schema(versions, found) -> str:
    given = json.dumps([versions, [what for what in found if what["kind"] not in CUSTOM]])
    command = [tools.python_of_tools(), "-c", CHECK]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_object_fits_the_schemas_of_all_versions_of_kubernetes():
    tools.kubernetes_validate()
    found = [what for name in CI for what in objects(of_file(name))]
    assert faults_by_schema(VERSIONS, found) == ""


@pytest.mark.parametrize("name", CI)
def test_no_object_breaks_a_rule_that_only_a_server_has(name):
    label = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
    for what in objects(of_file(name)):
        assert kube.fault(what["kind"], what, None) is None
        assert all(label.fullmatch(text) for text in what["metadata"].get("labels", {}).values())


def test_the_versions_of_chart_and_agent_are_one():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def read(name: str):
    """Return what a file of fixtures/helm says."""
    return yaml.load((CHART.parents[1] / f"tests/fixtures/helm/{name}.yaml").read_text(), yaml.CSafeLoader)


THEIRS = read("exporters")


def in_place_of(which, *words, **values):
    values = {"sinks": ["prometheus"], "compatibility": which} | values
    return render(values, *words, release="dcgm-exporter", namespace="gpu-operator")


@pytest.mark.parametrize("which", THEIRS)
def test_one_value_gives_the_service_and_the_monitor_of_nvidia_s_exporter(which):
    theirs, found = THEIRS[which], in_place_of(which, *OPERATOR)
    service, monitor, daemons = (one(found, kind) for kind in ("Service", "ServiceMonitor", "DaemonSet"))
    assert service["metadata"]["name"] == monitor["metadata"]["name"] == theirs["name"]
    assert service["metadata"]["labels"].items() >= theirs["service"].items()
    assert [{key: port[key] for key in theirs["port"]} for port in service["spec"]["ports"]] == [theirs["port"]]
    pod = daemons["spec"]["template"]
    assert pod["metadata"]["labels"].items() >= (theirs["pod"] | service["spec"]["selector"]).items()
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"} | theirs["nodes"]
    (container,) = pod["spec"]["containers"]
    assert {"name": "metrics", "containerPort": 9400, "protocol": "TCP"} in container["ports"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], monitor["spec"].get("jobLabel")) == (
        theirs["port"]["name"],
        "/metrics",
        theirs["job"],
    )
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


@pytest.mark.parametrize("which", THEIRS)
def test_one_value_gives_their_page_with_the_node_s_name_and_the_pods(which):
    found = in_place_of(which)
    settings = tomllib.loads(toml_of(found))
    assert (settings["names"], settings["level"], settings["common_dims"]) == ("dcgm", "detailed", ["hostname"])
    assert settings["sinks"]["prometheus"] == {"listen": "0.0.0.0:9400", "machine_labels": True}
    assert settings["collectors"]["jobs"]["kubelet"].endswith("kubelet.sock")
    (container,) = pod_of(found)["containers"]
    assert container["args"] == ["run", "--dim", "hostname=$(K8S_NODE_NAME)"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in container["env"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_without_the_operator_s_resources_there_is_no_monitor():
    assert "ServiceMonitor" not in {what["kind"] for what in in_place_of("dcgm-exporter")}


def test_what_a_user_sets_stays_in_the_place_of_another_exporter():
    given = {"names": "dcgm4.7", "level": "all", "prometheus": {"port": 9500}, "nameOverride": "gpus", "commonDims": ["k8s_node"],
             "podLabels": {"app": "mine"}, "sinks": ["cloudwatch"], "nodeSelector": {"pool": "a"}}  # fmt: skip
    found = in_place_of("dcgm-exporter", **given)
    settings = tomllib.loads(toml_of(found))
    assert (settings["names"], settings["level"], settings["common_dims"]) == ("dcgm4.7", "all", ["k8s_node"])
    assert settings["sinks"]["prometheus"]["listen"] == "0.0.0.0:9500"
    assert settings["sink"] == ["cloudwatch", "prometheus"]
    assert one(found, "Service")["metadata"]["name"] == "dcgm-exporter-gpus"
    operator = one(in_place_of("gpu-operator", **given), "DaemonSet")["spec"]["template"]
    assert operator["metadata"]["labels"]["app"] == "mine"
    assert operator["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "a"}


def test_the_names_stay_within_bounds_however_long_the_release_is():
    done = helm("template", "a" * 53, CHART, "--values", CI["openmetrics-deployment"])
    assert all(len(what["metadata"]["name"]) <= 63 for what in objects(done.stdout))


def test_names_namespace_and_labels_are_for_the_user_to_say():
    values = {"fullnameOverride": "eyes", "namespaceOverride": "ops", "commonLabels": {"team": "ml"}}
    values |= {"networkPolicy": {"enabled": True}, "commonAnnotations": {"a": "b"}}
    for what in render(values):
        assert what["metadata"]["name"].startswith("eyes")
        assert what["metadata"]["namespace"] == "ops"
        assert what["metadata"]["labels"]["team"] == "ml"
        assert what["metadata"]["annotations"]["a"] == "b"


def test_a_label_of_all_objects_is_not_in_the_selector_which_can_never_change():
    plain, labelled = render({}), render({"commonLabels": {"team": "ml"}, "podLabels": {"tier": "x"}})
    assert one(plain, "DaemonSet")["spec"]["selector"] == one(labelled, "DaemonSet")["spec"]["selector"]
    labels = one(labelled, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert (labels["team"], labels["tier"]) == ("ml", "x")


def image(values: dict) -> str:
    return pod_of(render(values))["containers"][0]["image"]


def test_an_image_has_a_registry_and_a_tag_or_better_a_digest():
    own = {"registry": "r.example.com:5000", "repository": "team/chipwatch"}
    digest = f"sha256:{'0123456789abcdef' * 4}"
    assert image({}) == f"team/chipwatch:{__version__}"
    assert image({"image": own | {"tag": "7"}}) == "r.example.com:5000/team/chipwatch:7"
    assert image({"image": own | {"tag": "7", "digest": digest}}) == f"r.example.com:5000/team/chipwatch@{digest}"
    assert image({"image": own, "global": {"imageRegistry": "mirror/x", "other": 1}}).startswith("mirror/x/team/")


# -- the configuration ------------------------------------------------------------------------------------------

STRANGE = {
    'a "key" of words': 'quoted "text" with \\ and a\ttab',
    "lines": "one\n# no comment\n[no.table]\n  three = 3\n",
    "marks": "<&>'\u2028\u0085\u00e9\U0001f600\u0001",
    "": "under an empty key",
    "figures": [0, -5, 134217728, 0.5, 1.5e-07, 1e21, 9007199254740991],
    "switches": [True, False],
    "nested": {"deep": {"x.y": {"z": "  blanks  "}}},
    "empty": {},
    "tables": [{"a": 1, "b": ["x", {"c": "d"}]}, {}],
}


def test_any_map_of_values_comes_out_of_the_toml_as_it_went_in():
    found = tomllib.loads(toml_of(render({"extraCollectors": {"x": STRANGE | {"nothing": None}}})))
    assert found["collectors"]["x"] == STRANGE


@pytest.mark.parametrize("name", CI)
def test_the_agent_takes_every_configuration(name, tmp_path):
    file = tmp_path / "chipwatch.toml"
    file.write_text(toml_of(objects(of_file(name))))
    config = configuration.load(file, {}, {})
    validate(config)
    values = yaml.safe_load(CI[name].read_text())
    assert list(config.sink) == [*values["sinks"], *values.get("extraSinks", [])]
    assert config.spool == Path("/var/lib/chipwatch")


def test_a_table_of_a_sink_and_its_separate_values_become_one():
    found = tomllib.loads(toml_of(render({"config": {"sinks": {"cloudwatch": {"include": ["gpu.*"]}}}})))
    assert found["sinks"]["cloudwatch"] == {"include": ["gpu.*"], "namespace": "Chipwatch"}


def checksum(values: dict) -> str:
    return one(render(values), "DaemonSet")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]


def test_pods_are_renewed_when_the_configuration_changes_and_only_then():
    assert checksum({}) == checksum({"commonLabels": {"a": "b"}})
    assert checksum({}) != checksum({"interval": 10})


# -- the pod ----------------------------------------------------------------------------------------------------


def breaks_restricted(pod: dict) -> list[str]:
    """Return what Pod Security's level `restricted` forbids in a pod."""
    found = [key for key in ("hostPID", "hostNetwork", "hostIPC") if pod.get(key)]
    allowed = {
        *["configMap", "emptyDir", "projected", "secret", "downwardAPI", "persistentVolumeClaim", "ephemeral", "csi"]
    }
    found += [f"volume {v['name']}" for v in pod["volumes"] if not v.keys() - {"name"} <= allowed]
    around = pod["securityContext"]
    found += [] if around["seccompProfile"]["type"] == "RuntimeDefault" else ["seccompProfile"]
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        own = around | container["securityContext"]
        found += [] if own["runAsNonRoot"] is True and own["runAsUser"] != 0 else ["root"]
        found += [] if own.get("allowPrivilegeEscalation") is False else ["allowPrivilegeEscalation"]
        found += [] if own["capabilities"] == {"drop": ["ALL"]} else ["capabilities"]
        found += ["privileged"] if own.get("privileged") else []
    return found


def test_a_pod_that_sees_nothing_of_the_host_is_let_into_a_restricted_namespace():
    assert breaks_restricted(pod_of(objects(of_file("minimal")))) == []
    assert breaks_restricted(pod_of(objects(of_file("openmetrics-deployment")), "Deployment")) == []


def test_the_default_asks_for_the_host_s_folders_and_for_nothing_else():
    pod = pod_of(objects(of_file("default")))
    assert breaks_restricted(pod) == ["volume proc", "volume root", "volume sys"]
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert all(mounts[name]["readOnly"] for name in ("proc", "sys", "root", "config"))
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert all("ports" not in container for container in pod["containers"])


def test_the_volume_of_a_spool_holds_what_all_sinks_may_keep():
    for sinks, mebibytes in ((["cloudwatch"], 208), (["cloudwatch", "google"], 400)):
        pod = pod_of(render({"sinks": sinks}))
        (spool,) = [v for v in pod["volumes"] if v["name"] == "spool"]
        assert spool["emptyDir"]["sizeLimit"] == f"{mebibytes}Mi"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed: apt-get install util-linux")
def test_a_spool_of_another_user_s_agent_is_taken_over_with_no_capability_but_chown(tmp_path):
    (prepare,) = pod_of(render({"spool": {"type": "hostPath"}}))["initContainers"]
    assert prepare["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    (spool := tmp_path / "spool").mkdir(mode=0o700)
    (left := spool / "cloudwatch.db").touch()
    for path in (spool, left):
        os.chown(path, 1000, 1000)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    chown_alone = ["setpriv", "--bounding-set=-all,+chown", "--inh-caps=-all"]
    script = prepare["args"][0].replace("/var/lib/chipwatch", str(spool))
    for _ in range(2):
        done = subprocess.run([*chown_alone, *prepare["command"], script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert {path.stat().st_uid for path in (spool, left)} == {65532}


def scraped(port: int) -> int:
    """Return how many series of the full page an agent serves."""
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LONG) as answer:
        return answer.read().count(b"\nDCGM_FI_DEV_")
    return 0


def test_an_agent_that_runs_as_the_pod_does_passes_its_probes_and_holds_a_full_page_within_its_memory(
    agent, tmp_path, until
):
    off = {
        "hostMounts": {"proc": False, "sys": False, "root": False},
        "interval": 1,
        "collectors": ["cpu", "openmetrics"],
    }
    off |= {"sinks": ["cloudwatch", "prometheus"], "prometheus": {"port": (port := free_port())}}
    off |= {"cloudwatch": {"region": "eu-west-1", "endpointUrl": "http://127.0.0.1:9"}}
    with Exporter(page()) as exporter:
        found = render(
            off | {"config": {"collectors": {"openmetrics": {"endpoints": {"full": {"url": exporter.url}}}}}}
        )
        file = tmp_path / "chipwatch.toml"
        file.write_text(toml_of(found).replace("/var/lib/chipwatch", str(tmp_path / "spool")))
        (container,) = pod_of(found)["containers"]
        env = {e["name"]: e.get("value", "of-the-downward-api") for e in container["env"]}
        env |= {"CHIPWATCH_CONFIG": file, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        program, *words = [*container["command"], *container["args"]]
        assert program == "agent"
        running = agent.start(*words, env=env)
        for kind in ("startup", "readiness", "liveness"):
            program, *words = container[f"{kind}Probe"]["exec"]["command"]
            assert program == "agent"
            until(lambda words=words: agent.run(*words, env=env).returncode == 0)
        until(lambda: scraped(port) >= SERIES)
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{running.pid}/status").read_text())[1]
        assert int(peak) << 10 < 0.8 * kube.quantity(container["resources"]["limits"]["memory"])
        running.stop()
    assert agent.run(*words, env=env).returncode == 1


def defaults(group: str) -> dict[str, dict]:
    """Return the table of each plugin with all of its options at their defaults, as values may have them."""
    made = {}
    for name in plugins.installed(group):
        shapes = [
            plugins.load(group, name).Config,
            *filter(None, [FRAME_OPTIONS.get(group.removeprefix("chipwatch."))]),
        ]
        options = {key: getattr(shape(), key) for shape in shapes for key in options_of(shape)}
        made[name] = json.loads(json.dumps(options, default=str))
    return made


def test_every_option_of_the_program_is_taken_at_its_default():
    tables = {"collectors": defaults(plugins.COLLECTORS), "processors": defaults(plugins.PROCESSORS)}
    sinks = {f"my-{name}": {**table, "type": name} for name, table in defaults(plugins.SINKS).items()}
    found = tomllib.loads(toml_of(render({"extraSinks": [*sinks], "config": {**tables, "sinks": sinks}})))
    assert set(found["collectors"]) == set(plugins.installed(plugins.COLLECTORS))
    assert set(sinks) < set(found["sinks"])


def test_options_may_be_times_texts_and_null_and_a_plugin_of_one_s_own_may_have_any():
    own = {"pace": -1, "deep": {"x": [1]}}
    tables = {"nvidia": {"retry": "2m", "devices": [0, "GPU-1"]}, "disk": {"paths": None}}
    values = {"extraSinks": ["mine"], "extraCollectors": {"mine": own}, "collectors": ["gpu", "cpu"]}
    values |= {"config": {"collectors": tables, "sinks": {"mine": own, "cloudwatch": {"window": "1m"}}}}
    values |= {"extraEnv": [{"name": "CHIPWATCH_SINKS__MINE__DEEP__X", "value": "2"}]}
    found = tomllib.loads(toml_of(render(values)))
    assert found["collectors"] == {"nvidia": tables["nvidia"], "disk": {}, "mine": own}
    assert found["sinks"]["mine"] == own
    assert found["collector"] == ["gpu", "cpu", "mine"]


def test_helm_s_test_pod_checks_what_the_workload_runs():
    found = objects(of_file("eks-gpu"))
    pod, check = pod_of(found), one(found, "Pod")
    assert check["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert check["spec"]["containers"][0]["args"] == ["check"]
    for key in ("image", "env", "securityContext", "volumeMounts"):
        assert check["spec"]["containers"][0][key] == pod["containers"][0][key]
    assert check["spec"]["serviceAccountName"] == pod["serviceAccountName"]
    selector = one(found, "DaemonSet")["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= check["metadata"]["labels"].items()


# -- what is refused --------------------------------------------------------------------------------------------


def test_the_chart_without_values_passes_lint_and_says_all_that_it_needs():
    done = helm("lint", "--strict", CHART)
    assert (done.returncode, "[ERROR]" in done.stdout) == (0, False), done.stdout
    done = helm("template", CHART)
    assert done.returncode == 1
    for name in ("clusterName: required", "sinks: none is given", "image.repository: required"):
        assert name in done.stderr


# -- on an API server -------------------------------------------------------------------------------------------


def test_helm_3_installs_upgrades_tests_and_removes_it(api):
    def live(*words):
        done = helm(*words, "--namespace", NAMESPACE, "--kubeconfig", api)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "helm test chipwatch" in live("install", "chipwatch", CHART, "--values", CI["onprem"])
    assert "REVISION: 2" in live("upgrade", "chipwatch", CHART, "--values", CI["eks-gpu"])
    assert "Phase:          Succeeded" in live("test", "chipwatch", "--logs")
    assert '"status":"deployed"' in live("list", "--output", "json")
    assert "uninstalled" in live("uninstall", "chipwatch")
    assert json.loads(live("list", "--output", "json")) == []


def test_helm_4_lives_through_the_same_and_renders_the_same_objects(api):
    python = tools.helm4_python()
    lives = {name: {"values": yaml.safe_load(path.read_text())} for name, path in CI.items()}
    lives["onprem"]["then"] = lives["eks-gpu"]["values"]
    lives["bad"] = {"values": {"sinks": []}}
    lives["worse"] = {"values": NEEDED | {"podMonitor": {"enabled": True}}}
    lives["typo"] = {"values": NEEDED | {"config": {"collectors": {"nvidea": {}}}}}
    told = json.dumps({"chart": str(CHART), "kubeconfig": str(api), "namespace": NAMESPACE, "lives": lives})
    command = [python, Path(__file__).with_name("helm4.py")]
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "clusterName: required" in found.pop("bad")["error"]
    assert "podMonitor.enabled: the sink prometheus" in found.pop("worse")["error"]
    assert "'/config/collectors': additional properties 'nvidea' not allowed" in found.pop("typo")["error"]
    assert found["onprem"].keys() == {"installed", "upgraded", "tested", "removed"}, found["onprem"]
    for name, result in found.items():
        assert "removed" in result, result
        release = result["installed"]
        theirs = objects(release["manifest"]) + [yaml.safe_load(hook["manifest"]) for hook in release.get("hooks", [])]
        assert in_order(theirs) == in_order(objects(of_file(name)))


def in_order(found: list[dict]) -> list[dict]:
    return sorted(found, key=lambda what: (what["kind"], what["metadata"]["name"]))


# -- checkov ----------------------------------------------------------------------------------------------------

SKIPPED = {
    "CKV_K8S_8": (
        "liveness: a pod of `helm test` runs once; `minimal` turns probes off to show that it can be done",
        CI,
    ),
    "CKV_K8S_9": ("readiness: as above", CI),
    "CKV_K8S_11": ("a CPU limit throttles the reader at the moment that it measures; requests are set", CI),
    "CKV_K8S_15": ("pull policy Always: with a tag that does not move it only adds a way to fail", CI),
    "CKV_K8S_16": ("privileged, where a device's files cannot be had otherwise", {"eks-neuron", "gke-gpu"}),
    "CKV_K8S_17": ("hostPID, by value", {"eks-addon", "eks-gpu", "gke-gpu"}),
    "CKV_K8S_19": ("hostNetwork, by value", {"gke-tpu"}),
    "CKV_K8S_20": ("Kubernetes refuses no privilege escalation together with privileged", {"eks-neuron", "gke-gpu"}),
    "CKV_K8S_23": ("root: the kubelet's socket is root's", {"eks-gpu", "dra", *THEIRS}),
    "CKV_K8S_25": ("CHOWN, for the init container of a spool on the host", {"eks-addon", "eks-neuron", "onprem"}),
    "CKV_K8S_35": ("secrets in the environment, which AWS's own chain reads from there", {"onprem"}),
    "CKV_K8S_40": ("a user below 10000: as 23", {"eks-gpu", "dra", *THEIRS}),
    "CKV_K8S_43": ("image by digest: a value", CI),
    "CKV2_K8S_6": ("a NetworkPolicy, by value", {"dra", *THEIRS}),
}
"""Checks that we do without: why, and in which files of values; elsewhere the same finding counts."""


@pytest.mark.proof
def test_checkov_finds_nothing_but_what_has_a_reason(tmp_path):
    checkov = tools.checkov()
    for name in CI:
        (tmp_path / f"{name}.yaml").write_text(of_file(name))
    command = [checkov, "--directory", tmp_path, "--framework", "kubernetes", "--quiet", "--compact"]
    command += ["--skip-download", "--output", "json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=2 * LONG, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["passed"] > 500
    assert report["summary"]["parsing_errors"] == 0
    found = {(check["check_id"], Path(check["file_path"]).stem) for check in report["results"]["failed_checks"]}
    assert {(check, name) for check, name in found if check not in SKIPPED or name not in SKIPPED[check][1]} == set()
    assert {check for check, _ in found} == set(SKIPPED), "a reason without a finding"


# -- the documents ----------------------------------------------------------------------------------------------


def leaves(values: dict, path: str = "") -> set[str]:
    """Return the paths of all values; what a schema leaves open is one."""
    found = set()
    for key, value in values.items():
        own = f"{path}{key}"
        found |= leaves(value, f"{own}.") if isinstance(value, dict) and value and is_closed(own) else {own}
    return found


@functools.cache
def schema() -> dict:
    return json.loads((CHART / "values.schema.json").read_text())


def is_closed(path: str) -> bool:
    part = schema()
    for key in path.split("."):
        part = part.get("properties", {}).get(key, {})
    return part.get("additionalProperties") is False or path == "global"


def declared(part: dict, path: str = "") -> set[str]:
    found = set()
    for key, value in part["properties"].items():
        own = f"{path}{key}"
        deeper = (
            value.get("properties")
            and is_closed(own)
            and key not in ("tlsConfig", "basicAuth", "attachMetadata", "lifecycle")
        )
        found |= declared(value, f"{own}.") if deeper else {own}
    return found


OF_KUBERNETES = re.compile(
    r"(^|\.)(resources|affinity|dnsConfig|podSecurityContext|securityContext)(\.|$)|^probes\.(startup|liveness|readiness)\."
)
WITHOUT_DEFAULT = {"enabled", "window", "hostUsers"}


def test_every_value_has_a_default_or_a_reason_to_have_none():
    values = leaves(yaml.safe_load((CHART / "values.yaml").read_text()))
    options = {path for path in declared(schema()) if not OF_KUBERNETES.search(path)}
    options = {path for path in options if not path.startswith("config.")} | {"config"}
    assert {path for path in values if not OF_KUBERNETES.search(path)} == options - WITHOUT_DEFAULT


def test_the_page_has_the_defaults_that_hold():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE)
    assert len(rows) > 80
    for path, default in rows:
        assert functools.reduce(dict.__getitem__, path.split("."), values) == json.loads(default), path


def test_the_page_has_a_row_for_every_value():
    rows = set(re.findall(r"^\| `([^`]+)`", (CHART / "README.md").read_text(), re.MULTILINE))
    values = {path for path in declared(schema()) if not OF_KUBERNETES.search(path) and not path.startswith("config.")}
    values |= {"config", "resources", "affinity", "neuron.resources", "deployment.resources", "deployment.affinity"}
    values |= {"probes.startup", "probes.liveness", "probes.readiness"}
    values |= {"dnsConfig", "podSecurityContext", "securityContext"}
    assert rows == {path for path in values if path != "enabled"}
