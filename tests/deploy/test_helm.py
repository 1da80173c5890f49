"""
The chart, by the real Helm 3.10 and Helm 4, upstream's schemas, a stand-in API and checkov.

The output of each file of ci/ is kept in golden/helm; `UPDATE_GOLDEN=1 pytest tests/deploy/test_helm.py` renews it.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.deploy import tools
from tests.doubles import kube

from chipwatch.config import load as configuration
from chipwatch.config import plugins
from chipwatch.config.convert import options_of
from chipwatch.config.load import FRAME_OPTIONS
from chipwatch.contract.version import __version__
from chipwatch.pipeline.build import validate

CHART = Path(__file__).parents[2] / "helm/chipwatch"
GOLDEN = Path(__file__).parent / "golden/helm"
CI = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}
NAMESPACE = "monitoring"
VERSIONS = ["1.25", *(f"1.{minor}" for minor in range(29, 38))]
"""The oldest that Chart.yaml allows, and those that are run today."""
NEEDED = {"clusterName": "c", "sinks": ["cloudwatch"], "image": {"repository": "team/chipwatch"}}
CUSTOM = {"VerticalPodAutoscaler", "PodMonitor", "ServiceMonitor"}
LONG = 300.0


def helm(*words):
    command = [str(tools.helm()), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)


def rendered(*words) -> str:
    done = helm("template", "chipwatch", CHART, "--namespace", NAMESPACE, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def of_file(name: str) -> str:
    return rendered("--values", CI[name])


def render(values: dict, *words) -> list[dict]:
    """Return the objects that `values` give, on top of what is required."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(NEEDED | values, file, allow_unicode=True)
        file.flush()
        return objects(rendered("--values", file.name, *words))


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
def test_every_file_of_values_is_linted_without_a_word(name):
    done = helm("lint", "--strict", CHART, "--values", CI[name])
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("name", CI)
def test_every_file_of_values_gives_what_it_gave(name):
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(of_file(name), encoding="utf-8")
    assert of_file(name) == path.read_text(encoding="utf-8"), "if this is meant, UPDATE_GOLDEN=1 renews it"


def test_there_is_no_golden_file_without_values():
    assert {path.stem for path in GOLDEN.iterdir()} == set(CI)


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


def test_the_check_by_schema_sees_what_is_wrong():
    tools.kubernetes_validate()
    found = copy.deepcopy(objects(of_file("gke-tpu")))
    pod_of(found)["containers"][0]["ports"][0]["containerPort"] = "9400"
    pod_of(found)["hostPid"] = True
    assert "containerPort" in faults_by_schema(["1.33"], found) or "hostPid" in faults_by_schema(["1.33"], found)


@pytest.mark.parametrize("name", CI)
def test_no_object_breaks_a_rule_that_only_a_server_has(name):
    assert [kube.fault(what["kind"], what, None) for what in objects(of_file(name))] == [None] * len(
        objects(of_file(name))
    )


@pytest.mark.parametrize("name", CI)
def test_every_label_is_one_that_kubernetes_takes(name):
    value = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
    for what in objects(of_file(name)):
        assert all(value.fullmatch(text) for text in what["metadata"].get("labels", {}).values())


def test_the_versions_of_chart_and_agent_are_one():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


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


def test_what_a_parent_chart_adds_is_taken():
    assert render({"enabled": True, "global": {"anything": {"of": "theirs"}}})


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


def test_numbers_keep_their_kind_whatever_way_they_are_given():
    ways = {"config.flush=7", "window=30", "spool.bytes=1073741824", "interval=2"}
    found = toml_of(render({}, *(word for way in sorted(ways) for word in ("--set", way))))
    assert {line for line in found.splitlines() if line.split(" ")[0] in ("flush", "window", "spool_bytes", "interval")} == {
        "flush = 7", "window = 30", "spool_bytes = 1073741824", "interval = 2",
    }  # fmt: skip


@pytest.mark.parametrize("name", CI)
def test_the_agent_takes_every_configuration(name, tmp_path):
    file = tmp_path / "chipwatch.toml"
    file.write_text(toml_of(objects(of_file(name))))
    config = configuration.load(file, {}, {})
    validate(config)
    values = yaml.safe_load(CI[name].read_text())
    assert list(config.sink) == [*values["sinks"], *values.get("extraSinks", [])]
    assert config.spool == Path("/var/lib/chipwatch")


def test_the_command_itself_reads_what_is_mounted(agent, tmp_path):
    file = tmp_path / "chipwatch.toml"
    file.write_text(toml_of(objects(of_file("minimal"))))
    pod = pod_of(objects(of_file("minimal")))
    env = {e["name"]: e.get("value", "node-7") for e in pod["containers"][0]["env"]} | {"CHIPWATCH_CONFIG": file}
    done = agent.run("check", "--collector", "cpu", env=env)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "k8s_cluster=training, k8s_node=node-7" in done.stdout


def test_values_with_a_separate_place_reach_the_agent():
    values = {"cloudwatch": {"namespace": "ML/x y", "region": "us-gov-west-1", "endpointUrl": "https://vpce.example/x"}}
    site = 'Zurich, "cellar", row 3'
    values |= {"dims": {"site": site}, "window": 60, "collectors": ["cpu"], "names": "wandb", "level": "all"}
    found = tomllib.loads(toml_of(render(values)))
    assert found["sinks"]["cloudwatch"] == {
        "namespace": "ML/x y", "region": "us-gov-west-1", "endpoint_url": "https://vpce.example/x",
    }  # fmt: skip
    assert (found["dims"], found["window"], found["collector"]) == ({"site": site}, 60, ["cpu"])
    assert (found["names"], found["level"]) == ("wandb", "all")


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
        "configMap",
        "emptyDir",
        "projected",
        "secret",
        "downwardAPI",
        "persistentVolumeClaim",
        "ephemeral",
        "csi",
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


def test_gpus_are_seen_and_none_is_taken():
    container = pod_of(objects(of_file("eks-gpu")))["containers"][0]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    assert {name for part in container["resources"].values() for name in part} == {"cpu", "memory"}


def test_the_taints_of_accelerators_keep_no_agent_away():
    keys = {toleration["key"] for toleration in pod_of(render({}))["tolerations"]}
    assert {"nvidia.com/gpu", "aws.amazon.com/neuron", "google.com/tpu", "amd.com/gpu", "habana.ai/gaudi"} <= keys


def test_privileged_pods_stay_non_root_and_do_not_contradict_themselves():
    security = pod_of(objects(of_file("eks-neuron")))["containers"][0]["securityContext"]
    assert security == {"privileged": True, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def test_the_kernels_log_is_mounted_only_where_it_was_asked_for():
    pod = pod_of(render({"hostMounts": {"kmsg": True}, "privileged": True}))
    (volume,) = [v for v in pod["volumes"] if v["name"] == "kmsg"]
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "kmsg"]
    assert volume["hostPath"] == {"path": "/dev/kmsg", "type": "CharDevice"}
    assert mount == {"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True}
    assert "kmsg" not in str(pod_of(render({}))["volumes"])


def test_the_volume_of_a_spool_holds_what_all_sinks_may_keep():
    for sinks, mebibytes in ((["cloudwatch"], 208), (["cloudwatch", "google"], 400)):
        pod = pod_of(render({"sinks": sinks}))
        (spool,) = [v for v in pod["volumes"] if v["name"] == "spool"]
        assert spool["emptyDir"]["sizeLimit"] == f"{mebibytes}Mi"


def test_a_spool_on_the_host_is_given_to_the_agent_s_user(tmp_path):
    (prepare,) = pod_of(render({"spool": {"type": "hostPath"}}))["initContainers"]
    assert prepare["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    script = prepare["args"][0].replace("/var/lib/chipwatch", str(tmp_path))
    assert "65532" in script
    script = script.replace("65532", str(os.getuid() or 65532))
    (left := tmp_path / "cloudwatch.db").touch()
    for _ in range(2):
        assert subprocess.run([*prepare["command"], script], check=False).returncode == 0
    assert tmp_path.stat().st_uid == left.stat().st_uid == (os.getuid() or 65532)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed: apt-get install util-linux")
def test_a_spool_of_another_user_s_agent_is_taken_over_with_no_capability_but_chown(tmp_path):
    (prepare,) = pod_of(render({"spool": {"type": "hostPath"}}))["initContainers"]
    (spool := tmp_path / "spool").mkdir(mode=0o700)
    (left := spool / "cloudwatch.db").touch()
    for path in (spool, left):
        os.chown(path, 1000, 1000)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    chown_alone = ["setpriv", "--bounding-set=-all,+chown", "--inh-caps=-all"]
    script = prepare["args"][0].replace("/var/lib/chipwatch", str(spool))
    done = subprocess.run([*chown_alone, *prepare["command"], script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.stat().st_uid for path in (spool, left)} == {65532}


def test_probes_ask_the_agent_itself_unless_a_port_is_wanted():
    asked = pod_of(render({}))["containers"][0]
    assert asked["livenessProbe"]["exec"]["command"] == ["agent", "status", "--health"]
    assert asked["readinessProbe"]["exec"]["command"] == ["agent", "status", "--health", "--ready"]
    found = render({"probes": {"type": "http"}})
    assert tomllib.loads(toml_of(found))["health"] == "0.0.0.0:8645"
    assert pod_of(found)["containers"][0]["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


def test_with_the_host_s_network_a_probe_s_port_is_on_loopback_alone():
    found = objects(of_file("gke-tpu"))
    assert tomllib.loads(toml_of(found))["health"] == "127.0.0.1:8645"
    assert pod_of(found)["containers"][0]["livenessProbe"]["httpGet"]["host"] == "127.0.0.1"
    assert pod_of(found)["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_an_agent_that_runs_as_the_pod_does_passes_the_pod_s_probes(agent, tmp_path, until):
    off = {"hostMounts": {"proc": False, "sys": False, "root": False}, "interval": 1, "collectors": ["cpu"]}
    found = render(off | {"cloudwatch": {"region": "eu-west-1", "endpointUrl": "http://127.0.0.1:9"}})
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


def test_neuron_monitor_comes_from_the_host_where_that_is_wanted():
    values = {"neuron": {"enabled": True, "toolsHostPath": "/opt/tools"}}
    pod = pod_of(render(values))
    assert {"name": "neuron", "hostPath": {"path": "/opt/tools", "type": "Directory"}} in pod["volumes"]
    mount = {"name": "neuron", "mountPath": "/opt/aws/neuron", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]


def test_the_points_of_a_node_are_the_node_s_and_not_a_pod_s():
    values = {"sinks": ["google"], "clusterLocation": "europe-west6"}
    found = render(values)
    assert tomllib.loads(toml_of(found))["sinks"]["google"]["resource"] == "k8s_node"
    env = {e["name"]: e.get("value") for e in pod_of(found)["containers"][0]["env"]}
    assert (env["K8S_CLUSTER_NAME"], env["K8S_LOCATION"]) == ("c", "europe-west6")


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


def test_the_scraper_is_one_and_never_two_at_a_time():
    spec = one(objects(of_file("openmetrics-deployment")), "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")


def test_daemon_and_scraper_live_side_by_side():
    endpoints = {"a": {"url": "http://a:1/metrics"}}
    found = render({"deployment": {"enabled": True, "endpoints": endpoints}, "config": {"collectors": {"disk": {}}}})
    agent_, scraper = [tomllib.loads(w["data"]["chipwatch.toml"]) for w in found if w["kind"] == "ConfigMap"]
    assert scraper["collectors"] == {"openmetrics": {"endpoints": endpoints}}
    assert agent_["collectors"] == {"disk": {}}
    daemon, deployment = one(found, "DaemonSet"), one(found, "Deployment")
    assert daemon["spec"]["selector"] != deployment["spec"]["selector"]


def test_a_policy_lets_out_to_the_port_of_another_endpoint():
    policy = one(objects(of_file("eks-gpu")), "NetworkPolicy")["spec"]
    assert policy["ingress"] == []
    assert [port["port"] for port in policy["egress"][-1]["ports"]] == [443, 8443]
    cidrs = {to["ipBlock"]["cidr"] for rule in policy["egress"] for to in rule.get("to", []) if "ipBlock" in to}
    assert {"169.254.169.254/32", "169.254.170.23/32"} <= cidrs


def test_a_pod_monitor_is_rendered_only_where_there_is_something_to_scrape():
    wanted = {"sinks": ["cloudwatch", "prometheus"], "prometheus": {"port": 9400, "service": {"enabled": True}}}
    found = render({**wanted, "podMonitor": {"enabled": True}, "networkPolicy": {"enabled": True}})
    assert tomllib.loads(toml_of(found))["sinks"]["prometheus"] == {"listen": "0.0.0.0:9400"}
    (endpoint,) = one(found, "PodMonitor")["spec"]["podMetricsEndpoints"]
    # Prometheus finds only ports that a container declares.
    (port,) = pod_of(found)["containers"][0]["ports"]
    assert (endpoint["port"], port["containerPort"]) == (port["name"], 9400)
    assert one(found, "NetworkPolicy")["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": port["name"]}]}]


# -- what is refused --------------------------------------------------------------------------------------------

REFUSED = {
    # what a platform adds
    "{sinks: [prometheus], probes: {type: none}, podMonitor: {enabled: true, interval: 15s, scrapeTimeout: 20s}}": "podMonitor.scrapeTimeout: 20s is above the interval of 15s",
    "{sinks: [prometheus], probes: {type: none}, serviceMonitor: {enabled: true}}": "serviceMonitor.enabled: takes prometheus.service.enabled too",
    "podMonitor: {relabelings: [{action: rename}]}": "relabelings",
    "extraContainers: [{name: agent, image: x}]": "extraContainers: the name agent is given twice",
    "probes: {custom: {liveness: {periodSeconds: 5}}}": "liveness",
    "lifecycle: {preStop: {shell: x}}": "preStop",
    "imagePullSecrets: [Not_A_Name]": "imagePullSecrets",
    # required
    "image: {repository: null}": "repository is required",
    # malformed
    "clusterNam: x": "clusterNam is not allowed",
    "clusterName: 'a b'": "clusterName: Does not match",
    "sinks: [cloudwach]": "sinks.0: sinks.0 must be one of",
    "sinks: cloudwatch": "sinks: Invalid type",
    "image: {repository: Team/X}": "image.repository: Does not match",
    "image: {repository: a, digest: sha256:12}": "image.digest: Does not match",
    "commonDims: [instance]": "commonDims.0",
    "dims: {rank: 1}": "dims.rank: Invalid type",
    "interval: 0": "interval: Must be greater than or equal to 0.1",
    "interval: 5s": "interval: Invalid type",
    "window: -1": "window: Must be greater",
    "level: most": "level: level must be one of",
    "cloudwatch: {namespace: AWS/EC2}": "cloudwatch.namespace",
    "cloudwatch: {region: Frankfurt}": "cloudwatch.region: Does not match",
    "cloudwatch: {endpointUrl: localhost}": "cloudwatch.endpointUrl: Does not match",
    "google: {project: X}": "google.project: Does not match",
    "config: {intervall: 5}": "intervall is not allowed",
    "config: {interval: 5}": "interval is not allowed",
    "config: {collectors: {disk: 5}}": "config.collectors.disk: Invalid type",
    "extraCollectors: {x: 5}": "extraCollectors.x: Invalid type",
    "serviceAccount: {annotations: {eks.amazonaws.com/role-arn: chipwatch}}": "role-arn: Does not match",
    "serviceAccount: {annotations: {iam.gke.io/gcp-service-account: chipwatch}}": "gcp-service-account: Does not match",
    "resources: {limits: {memory: lots}}": "resources.limits.memory",
    "tolerations: [{key: x, operator: exists}]": "tolerations.0.operator",
    "probes: {type: tcp}": "probes.type",
    "probes: {liveness: {period: 5}}": "period is not allowed",
    "probes: {port: 70000}": "probes.port",
    "spool: {hostPath: var/lib}": "spool.hostPath: Does not match",
    "networkPolicy: {api: {cidrs: [everywhere]}}": "networkPolicy.api.cidrs.0",
    "nvidia: {driverCapabilities: utilities}": "nvidia.driverCapabilities",
    "deployment: {endpoints: {a: {}}}": "url is required",
    "deployment: {endpoints: {a: {url: 'http://user:pw@x/'}}}": "deployment.endpoints.a.url",
    "hostPID: 'yes'": "hostPID: Invalid type",
    "podLabels: {a: 'b c'}": "podLabels.a: Does not match",
    # names and options of the program
    "collectors: [nvidea]": "collectors.0: collectors.0 must be one of",
    "noCollectors: [containers]": "noCollectors.0: noCollectors.0 must be one of",
    "noCollectors: [container, container]": "noCollectors: array items[0,1] must be unique",
    "deployment: {commonDims: [cluster]}": "deployment.commonDims.0",
    "commonDims: [k8s_cluster, k8s_cluster]": "commonDims: array items[0,1] must be unique",
    "names: datadog": "names: names must be one of",
    "config: {collectors: {nvidea: {}}}": "config.collectors: Additional property nvidea is not allowed",
    "config: {collectors: {nvidia: {dimension: [uuid]}}}": "config.collectors.nvidia: Additional property dimension",
    "config: {collectors: {nvidia: {dimensions: [serial]}}}": "config.collectors.nvidia.dimensions.0",
    "config: {collectors: {nvidia: {dimensions: uuid}}}": "config.collectors.nvidia.dimensions: Invalid type",
    "config: {collectors: {nvidia: {devices: [-1]}}}": "config.collectors.nvidia.devices.0: Must be greater",
    "config: {collectors: {disk: {paths: /}}}": "config.collectors.disk.paths: Invalid type",
    "config: {collectors: {container: {when: maybe}}}": "config.collectors.container.when",
    "config: {collectors: {textfile: {max_series: -1}}}": "config.collectors.textfile.max_series: Must be greater",
    "config: {collectors: {neuron: {required: 'yes'}}}": "config.collectors.neuron.required: Invalid type",
    "config: {collectors: {tpu: {retry: 0}}}": "config.collectors.tpu.retry: Must be greater",
    "config: {collectors: {tpu: {retry: soon}}}": "config.collectors.tpu.retry: Does not match",
    "config: {collectors: {openmetrics: {endpoints: {a: {link: x}}}}}": "endpoints.a: Additional property link",
    "config: {collectors: {openmetrics: {endpoints: {a: {max_bytes: -1}}}}}": "endpoints.a.max_bytes: Must be",
    "extraCollectors: {nvidia: {}}": "extraCollectors",
    "extraCollectors: [mine]": "extraCollectors: Invalid type",
    "config: {processors: {none: {}}}": "config.processors: Additional property none",
    "config: {sinks: {cloudwach: {}}}": "config.sinks.cloudwach: this sink is not among sinks",
    "config: {sinks: {cloudwatch: {includes: [a]}}}": "config.sinks.cloudwatch: Additional property includes",
    "config: {sinks: {cloudwatch: {max_series: -1}}}": "config.sinks.cloudwatch.max_series: Must be greater",
    "config: {sinks: {cloudwatch: {max_series: 0.5}}}": "config.sinks.cloudwatch.max_series: Invalid type",
    "config: {sinks: {cloudwatch: {flush: -1}}}": "config.sinks.cloudwatch.flush: Must be greater",
    "config: {sinks: {cloudwatch: {level: many}}}": "config.sinks.cloudwatch.level",
    "config: {sinks: {cloudwatch: {window: 100000}}}": "config.sinks.cloudwatch.window: Must be less",
    "config: {sinks: {cloudwatch: {type: google}}}": "config.sinks.cloudwatch.type",
    "{sinks: [google], config: {sinks: {google: {statistic: {a: median}}}}}": "config.sinks.google.statistic.a",
    "{extraSinks: [b], config: {sinks: {b: {type: cloudwach}}}}": "config.sinks.b.type",
    "{extraSinks: [b], config: {sinks: {b: {type: cloudwatch, zone: x}}}}": "config.sinks.b: Additional property zone",
    "{extraSinks: [b], config: {sinks: {b: {type: google, timeout: -1}}}}": "config.sinks.b.timeout: Must be",
    "extraSinks: ['a b']": "extraSinks.0: Does not match",
    "extraEnv: [{name: CHIPWATCH_LEVLE, value: all}]": "extraEnv.0.name",
    "config: {flush: -1}": "config.flush: Must be greater",
    "config: {pid: 0}": "config.pid: Must be greater",
    "config: {format: xml}": "config.format",
    "spool: {bytes: -1}": "spool.bytes: Must be greater",
    "spool: {bytes: 1000}": "spool.bytes: Must be greater",
    "logLevel: trace": "logLevel: logLevel must be one of",
    "google: {resource: node}": "google.resource",
    "dims: {'': x}": "dims",
    f"dims: {{a: {'x' * 1025}}}": "dims.a: String length must be less than or equal to 1024",
    f"dims: {{{'x' * 256}: a}}": "dims",
    f"dims: {dict.fromkeys((f'k{n}' for n in range(31)), 'v')}": "dims: Must have at most 30 properties",
    f"clusterName: {'x' * 101}": "clusterName: String length must be less",
    # what Kubernetes would refuse
    "daemonSet: {updateStrategy: {rollingUpdate: {maxUnavailable: 0}}}": "maxUnavailable: Must be greater",
    "daemonSet: {updateStrategy: {rollingUpdate: {maxUnavailable: 0%}}}": "maxUnavailable: Does not match",
    "daemonSet: {updateStrategy: {rollingUpdate: {maxUnavailable: 120%}}}": "maxUnavailable: Does not match",
    "daemonSet: {updateStrategy: {rollingUpdate: {maxUnavailable: '10'}}}": "maxUnavailable: Does not match",
    "daemonSet: {updateStrategy: {rollingUpdate: {maxUnavailable: -1}}}": "maxUnavailable: Must be greater",
    "daemonSet: {updateStrategy: {rollingUpdate: {maxUnavailable: 1.5}}}": "maxUnavailable: Invalid type",
    "daemonSet: {updateStrategy: {type: Recreate}}": "daemonSet.updateStrategy.type",
    "daemonSet: {minReadySeconds: -1}": "daemonSet.minReadySeconds: Must be greater",
    "daemonSet: {revisionHistoryLimit: -1}": "daemonSet.revisionHistoryLimit: Must be greater",
    "daemonSet: {annotations: {'a b': c}}": "daemonSet.annotations",
    "commonLabels: {'a b': c}": "commonLabels",
    "commonAnnotations: {a: 1}": "commonAnnotations.a: Invalid type",
    "podAnnotations: {checksum/config: x}": "podAnnotations",
    "nodeSelector: {a: 'b c'}": "nodeSelector.a: Does not match",
    "nodeSelector: {a: true}": "nodeSelector.a: Invalid type",
    f"nodeSelector: {{a: {'x' * 64}}}": "nodeSelector.a: Does not match",
    "imagePullSecrets: [{name: Registry}]": "imagePullSecrets.0",
    "imagePullSecrets: [{name: a}, {name: a}]": "imagePullSecrets: array items[0,1] must be unique",
    "global: {imageRegistry: 'https://mirror'}": "global.imageRegistry: Does not match",
    "resources: {limits: {memory: -1}}": "resources.limits.memory",
    "resources: {limits: {memory: -128Mi}}": "resources.limits.memory",
    "resources: {limits: {memroy: 128Mi}}": "resources.limits",
    "resources: {request: {cpu: 1}}": "resources: Additional property request",
    "resources: {requests: {memory: 256Mi}}": "resources: the request of 256Mi memory is above the limit of 128Mi",
    "resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}": "resources: the request of 2 cpu is above the limit of 1500m",
    "neuron: {resources: {limits: {memory: 0}}}": "neuron.resources.limits.memory",
    "{deployment: {enabled: true, endpoints: {a: {url: 'http://a'}}, resources: {limits: {memory: 1Mi}}}}": (
        "deployment.resources: the request of 64Mi memory"
    ),
    "verticalPodAutoscaler: {updateMode: Sometimes}": "verticalPodAutoscaler.updateMode",
    "verticalPodAutoscaler: {minAllowed: {cpu: -1}}": "verticalPodAutoscaler.minAllowed.cpu",
    "verticalPodAutoscaler: {minAllowed: {cpu: 2}, maxAllowed: {cpu: 1}}": "verticalPodAutoscaler.minAllowed: 2 cpu",
    "tolerations: [{effect: NoSchedule}]": "tolerations.0: key is required",
    "tolerations: [{key: x, operator: Exists, value: y}]": "tolerations.0",
    "tolerations: [{key: x, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}]": "tolerations.0.effect",
    "tolerations: [{key: x, operator: Exists, effect: NoExecute, tolerationSeconds: -5}]": "tolerationSeconds: Must be",
    "terminationGracePeriodSeconds: -1": "terminationGracePeriodSeconds: Must be greater",
    "priorityClassName: High!": "priorityClassName: Does not match",
    "podSecurityContext: {runAsUser: -1}": "podSecurityContext.runAsUser: Must be greater",
    "podSecurityContext: {runAsUsr: 5}": "podSecurityContext: Additional property runAsUsr",
    "podSecurityContext: {fsGroup: root}": "podSecurityContext.fsGroup: Invalid type",
    "securityContext: {readonlyRootFilesystem: true}": "securityContext: Additional property readonlyRootFilesystem",
    "securityContext: {capabilities: {add: sys_admin}}": "securityContext.capabilities.add: Invalid type",
    "securityContext: {capabilities: {add: [cap_sys_admin]}}": "securityContext.capabilities.add.0 must be one of",
    "extraEnv: [{name: A, value: 1}]": "extraEnv.0.value: Invalid type",
    "extraEnv: [{name: 1A, value: x}]": "extraEnv.0.name: Does not match",
    "extraEnv: [{name: A, value: x, valueFrom: {secretKeyRef: {name: s, key: k}}}]": "extraEnv.0",
    "extraEnv: [{name: A, valueFrom: {secret: {name: s}}}]": "extraEnv.0.valueFrom: Additional property secret",
    "extraEnv: [{name: A, value: x}, {name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]": "extraEnv: A is set",
    "extraEnv: [{name: K8S_NODE_NAME, value: x}]": "extraEnv: K8S_NODE_NAME is set by this chart, or given twice",
    "{nvidia: {enabled: true}, extraEnv: [{name: NVIDIA_VISIBLE_DEVICES, value: x}]}": "extraEnv: NVIDIA_VISIBLE",
    "extraEnvFrom: [{secret: a}]": "extraEnvFrom.0: Additional property secret",
    "extraEnvFrom: [{secretRef: {}}]": "extraEnvFrom.0.secretRef: name is required",
    "extraEnvFrom: [{secretRef: {name: a}}, {secretRef: {name: a}}]": "extraEnvFrom: array items[0,1] must be unique",
    "extraVolumes: [{name: a}]": "extraVolumes.0: Must have at least 2 properties",
    "extraVolumes: [{name: a, hostpath: {path: /a}}]": "extraVolumes.0: Additional property hostpath",
    "extraVolumes: [{name: a, emptyDir: {}, secret: {}}]": "extraVolumes.0: Must have at most 2 properties",
    "extraVolumes: [{name: A, emptyDir: {}}]": "extraVolumes.0.name: Does not match",
    "extraVolumes: [{name: a, emptyDir: {}}, {name: a, secret: {secretName: s}}]": "extraVolumes: the name a is taken",
    "extraVolumeMounts: [{name: a}]": "extraVolumeMounts.0: mountPath is required",
    "extraVolumeMounts: [{name: ca, mountPath: /ca}]": "extraVolumeMounts: no volume ca is declared",
    "extraVolumeMounts: [{name: tmp, mountPath: ca}]": "extraVolumeMounts.0.mountPath: Does not match",
    "extraVolumeMounts: [{name: tmp, mountPath: /var/lib/chipwatch/}]": "/var/lib/chipwatch/ is mounted by this chart",
    "extraVolumeMounts: [{name: tmp, mountPath: /x}, {name: spool, mountPath: /x}]": "/x is mounted by this chart, or",
    "{deployment: {enabled: true, endpoints: {a: {url: 'http://a'}}, extraVolumeMounts: [{name: a, mountPath: /a}]}}": (
        "deployment.extraVolumeMounts: no volume a is declared; add it to deployment.extraVolumes"
    ),
    "initContainers: [{name: a}]": "initContainers.0: image is required",
    "initContainers: [{name: agent, image: a}]": "initContainers: the name agent is given twice",
    "initContainers: [{name: a, image: a, volumeMounts: [{name: b, mountPath: /b}]}]": "initContainers: a: extraVolume",
    "dnsConfig: {nameserver: [1.1.1.1]}": "dnsConfig: Additional property nameserver",
    "dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3, 4.4.4.4]}": "dnsConfig.nameservers: Array must have at most 3",
    "probes: {liveness: {successThreshold: 2}}": "probes.liveness.successThreshold",
    "probes: {readiness: {terminationGracePeriodSeconds: 5}}": "probes.readiness: Additional property",
    "probes: {startup: {failureThreshold: -1}}": "probes.startup.failureThreshold: Must be greater",
    "networkPolicy: {api: {cidrs: [300.0.0.0/8]}}": "networkPolicy.api.cidrs.0: Does not match",
    "networkPolicy: {metadata: [{cidr: 10.0.0.0/33, port: 80}]}": "networkPolicy.metadata.0.cidr: Does not match",
    "networkPolicy: {api: {ports: [0]}}": "networkPolicy.api.ports.0: Must be greater",
    "networkPolicy: {dns: {to: [{podselector: {}}]}}": "networkPolicy.dns.to.0: Additional property podselector",
    "networkPolicy: {extraEgress: [{from: []}]}": "networkPolicy.extraEgress.0: Additional property from",
    "networkPolicy: {extraIngress: [{ports: [{port: 70000}]}]}": "networkPolicy.extraIngress.0.ports.0.port",
    # combinations
    "window: 3": "window: 3 s is below the interval of 5 s",
    "config: {sinks: {cloudwatch: {window: 2}}}": "config.sinks.cloudwatch.window: 2 s is below the interval of 5 s",
    "dims: {site: Zürich}": "dims.site: CloudWatch takes names and values of printable ASCII",
    "dims: {site: ' '}": "dims.site: CloudWatch takes",
    f"dims: {dict.fromkeys((f'k{n}' for n in range(29)), 'v')}": "commonDims, dims: 31 dimensions",
    "daemonSet: {enabled: false}": "daemonSet.enabled, deployment.enabled",
    "extraSinks: [google]": "extraSinks: google",
    "google: {project: my-project}": "google.project: the sink google",
    "{sinks: [stdout], cloudwatch: {region: eu-west-1}}": "cloudwatch.region: the sink cloudwatch",
    "config: {sinks: {stdout: {}}}": "config.sinks.stdout",
    "config: {sinks: {cloudwatch: {region: x}}}": "config.sinks.cloudwatch.region",
    "config: {sinks: {cloudwatch: {endpoint_url: 'https://x'}}}": "the value cloudwatch.endpointUrl says this",
    "extraCollectors: {x: {list: [1, null]}}": "collectors.x.list: null",
    "podSecurityContext: {runAsUser: 0}": "podSecurityContext: runAsUser 0",
    "securityContext: {privileged: true}": "securityContext.privileged",
    "extraVolumes: [{name: spool, emptyDir: {}}]": "extraVolumes: the name spool",
    "{networkPolicy: {enabled: true}, hostNetwork: true}": "networkPolicy.enabled",
    "{hostUsers: false, jobs: {enabled: true}}": "hostUsers: false excludes jobs.enabled",
    "jobs: {podResources: true}": "jobs.podResources: takes jobs.enabled too",
    "jobs: {enabled: 5}": "jobs.enabled: Invalid type",
    "{hostUsers: false, hostPID: true}": "hostUsers: false excludes hostPID",
    "{hostUsers: false, hostNetwork: true}": "hostUsers: false excludes hostNetwork",
    "{hostUsers: false, privileged: true}": "hostUsers: false excludes privileged",
    "hostUsers: false": "hostUsers: false excludes hostMounts.proc",
    "{hostUsers: false, hostMounts: {proc: false}}": "hostUsers: false excludes hostMounts.sys",
    "dnsPolicy: None": "dnsConfig: required",
    "spool: {hostPath: /var/../lib}": "spool.hostPath: Kubernetes refuses",
    "neuron: {toolsHostPath: /opt/../aws}": "neuron.toolsHostPath: Kubernetes refuses",
    "nvidia: {driverHostPath: /home/../x}": "nvidia.driverHostPath: Kubernetes refuses",
    "spool: {type: hostPath, hostPath: /}": "spool.hostPath: /",
    "nvidia: {driverHostPath: /x}": "nvidia.driverHostPath: nvidia.enabled",
    "nvidia: {enabled: true, driverHostPath: /x}": "nvidia.driverHostPath: without",
    "{neuron: {enabled: true}, hostMounts: {sys: false}}": "neuron.enabled",
    "hostMounts: {kmsg: true}": "hostMounts.kmsg: a container may open /dev/kmsg only with privileged",
    "dims: {k8s_node: x}": "dims.k8s_node",
    "sinks: [stdout]": "probes.type: exec",
    "daemonSet: {updateStrategy: {rollingUpdate: {maxSurge: 1}}}": "maxSurge is not allowed",
    "{sinks: [google], config: {sinks: {google: {resource: auto}}}}": "config.sinks.google.resource",
    "deployment: {enabled: true}": "deployment.endpoints: required",
    "deployment: {enabled: true, commonDims: [k8s_node], endpoints: {a: {url: 'http://a'}}}": "deployment.commonDims",
    "serviceAccount: {create: false, annotations: {a: b}}": "serviceAccount.annotations",
    "podMonitor: {enabled: true}": "podMonitor.enabled: the sink prometheus is not among sinks",
    "prometheus: {service: {enabled: true}}": "prometheus.service.enabled: the sink prometheus",
    "prometheus: {webConfigSecret: web}": "prometheus.webConfigSecret: the sink prometheus",
    "sinks: [prometheus]": "probes.type: exec",
    "{sinks: [cloudwatch, prometheus], config: {sinks: {prometheus: {listen: '9'}}}}": "value prometheus.port says this",
    "extraSinks: [prometheus]": "extraSinks: prometheus is no sink of a plugin",
}


def bad_values(words: str) -> dict:
    values = {**NEEDED, **yaml.safe_load(words)}
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize(("words", "said"), REFUSED.items(), ids=REFUSED)
def test_what_is_missing_or_wrong_is_refused_by_name(words, said, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(bad_values(words)))
    done = helm("template", CHART, "--values", file)
    assert done.returncode == 1
    assert said in done.stderr
    done = helm("lint", CHART, "--values", file)
    assert done.returncode == 1
    assert said in done.stdout


def test_the_chart_without_values_passes_lint_and_says_all_that_it_needs():
    done = helm("lint", "--strict", CHART)
    assert (done.returncode, "[ERROR]" in done.stdout) == (0, False), done.stdout
    done = helm("template", CHART)
    assert done.returncode == 1
    for name in ("clusterName: required", "sinks: none is given", "image.repository: required"):
        assert name in done.stderr


def test_the_chart_says_whose_it_is():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {"home", "sources", "maintainers", "icon", "annotations"} <= chart.keys()
    notes = chart["annotations"]
    assert all(isinstance(text, str) for text in notes.values()), "Kubernetes' annotations are texts"
    assert notes["artifacthub.io/category"] == "monitoring-logging"
    kinds = {change["kind"] for change in yaml.safe_load(notes["artifacthub.io/changes"])}
    assert kinds <= {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert all({"name", "url"} == link.keys() for link in yaml.safe_load(notes["artifacthub.io/links"]))
    packages = (CHART.parents[1] / "deploy/packages/build.py").read_text()
    assert all(f"Maintainer: {one['name']} <" in packages for one in chart["maintainers"])
    assert (
        "`helm/chipwatch/Chart.yaml`, and of `chipwatch.invalid` in"
        in (CHART.parents[1] / "docs/releasing.md").read_text()
    )


# -- what a platform adds -----------------------------------------------------------------------------------------


def test_a_dead_node_stops_no_update():
    strategy = one(render({}), "DaemonSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}


def test_pull_secrets_have_either_form():
    given = {"imagePullSecrets": ["one", {"name": "two"}], "global": {"imagePullSecrets": ["two", {"name": "three"}]}}
    assert pod_of(render(given))["imagePullSecrets"] == [{"name": "two"}, {"name": "three"}, {"name": "one"}]


def test_both_monitors_carry_what_the_operator_takes():
    found = objects(of_file("monitors"))
    for kind, ends, labels in (
        ("PodMonitor", "podMetricsEndpoints", {}),
        ("ServiceMonitor", "endpoints", {"targetLabels": ["team"]}),
    ):
        spec = one(found, kind)["spec"]
        (endpoint,) = spec[ends]
        assert {"port": "metrics", "scrapeTimeout": "10s", "interval": "30s"}.items() <= endpoint.items()
        assert endpoint["relabelings"][0]["targetLabel"] == "node"
        assert endpoint["metricRelabelings"] == [{"action": "drop", "sourceLabels": ["__name__"], "regex": "disk_.*"}]
        assert {
            "podTargetLabels": ["app.kubernetes.io/version"],
            "attachMetadata": {"node": True},
            **labels,
        }.items() <= spec.items()
        labels_of = one(found, "Service" if kind == "ServiceMonitor" else "DaemonSet")["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels_of.items()


def test_further_containers_hooks_and_own_probes_are_the_pod_s_but_not_in_the_pod_of_helm_s_test():
    found = objects(of_file("monitors"))
    pod = pod_of(found)
    assert [container["name"] for container in pod["containers"]] == ["agent", "log-shipper"]
    assert pod["containers"][0]["lifecycle"]["preStop"] == {"exec": {"command": ["agent", "--version"]}}
    assert pod["containers"][0]["livenessProbe"] == {"tcpSocket": {"port": "metrics"}, "periodSeconds": 30}
    assert pod["containers"][0]["readinessProbe"]["exec"]["command"] == ["agent", "status", "--health", "--ready"]
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"
    (container,) = one(found, "Pod")["spec"]["containers"]
    assert {"lifecycle", "livenessProbe"}.isdisjoint(container)


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
    "CKV_K8S_8": ("liveness", "a pod of `helm test` runs once; `minimal` turns probes off to show that it can be done"),
    "CKV_K8S_9": ("readiness", "as above"),
    "CKV_K8S_11": ("CPU limit", "a limit throttles the reader at the moment that it measures; requests are set"),
    "CKV_K8S_15": ("pull policy Always", "a value; with a tag that does not move it only adds a way to fail"),
    "CKV_K8S_16": ("privileged", "by value, where a device's files cannot be had otherwise"),
    "CKV_K8S_17": ("hostPID", "by value"),
    "CKV_K8S_19": ("hostNetwork", "by value"),
    "CKV_K8S_20": ("allowPrivilegeEscalation", "Kubernetes refuses false together with privileged"),
    "CKV_K8S_23": ("root", "by value: the kubelet's socket is root's"),
    "CKV_K8S_25": ("added capabilities", "CHOWN, for the init container of a spool on the host"),
    "CKV_K8S_35": ("secrets in the environment", "the values of `onprem`, which AWS's own chain reads from there"),
    "CKV_K8S_40": ("a user below 10000", "as 23"),
    "CKV_K8S_43": ("image by digest", "a value"),
}
BY_VALUE = {
    "CKV_K8S_16": {"eks-neuron", "gke-gpu"},
    "CKV_K8S_17": {"eks-addon", "eks-gpu", "gke-gpu"},
    "CKV_K8S_19": {"gke-tpu"},
    "CKV_K8S_20": {"eks-neuron", "gke-gpu"},
    "CKV_K8S_23": {"eks-gpu"},
    "CKV_K8S_25": {"eks-addon", "eks-neuron", "onprem"},
    "CKV_K8S_35": {"onprem"},
    "CKV_K8S_40": {"eks-gpu"},
}
"""Which files of values ask for what is skipped: elsewhere the same finding counts."""


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
    unexcused = {(check, name) for check, name in found if check not in SKIPPED or name not in BY_VALUE.get(check, CI)}
    assert unexcused == set()
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
