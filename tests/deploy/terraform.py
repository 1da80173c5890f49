"""
The real Terraform on stand-ins for its providers (tests/doubles/terraform), for any cloud's modules.

Nothing is written beside the modules: Terraform's state goes to a separate folder for each of them.
"""

import base64
import contextlib
import gzip
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.deploy import tools

ROOT = Path(__file__).parents[2]
DOUBLE = ROOT / "tests/doubles/terraform"
GOLDEN = Path(__file__).parent / "golden/terraform"
LONG = 120.0
QUIET = ("-input=false", "-no-color", "-lock=false")
LATER = "(known after apply)"
DOCUMENTS = ("assume_role_policy", "container_definitions", "policy")
"""Strings that are JSON, shown as what they say."""


class Terraform:
    """Runs Terraform in the folder of a module."""

    def __init__(self, kept: Path, providers: str) -> None:
        """Keep what Terraform needs under `kept`; `providers` is what the stand-ins say of themselves."""
        self._kept, self._binary = kept, tools.terraform()
        settings = kept / "terraformrc"
        settings.write_text("disable_checkpoint = true\n")
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith(("TF_", "AWS_"))}
        self._environment |= {
            "TF_CLI_CONFIG_FILE": str(settings), "TF_IN_AUTOMATION": "1", "TF_REATTACH_PROVIDERS": providers,
        }  # fmt: skip

    def __call__(self, module: Path, *words: object) -> subprocess.CompletedProcess[str]:
        """Run `terraform words` in the module's folder, colourless."""
        home = self._home(module)
        return subprocess.run(
            [str(self._binary), *map(str, words)],
            cwd=module,
            env=self._environment | {"TF_DATA_DIR": str(home)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, check=False,
        )  # fmt: skip

    def init(self, module: Path, *words: str) -> None:
        """Find the modules that a module names."""
        done = self(module, "init", "-backend=false", "-input=false", "-no-color", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    def plan(self, module: Path, variables: dict[str, Any], *, state: str = "none") -> dict[str, Any]:
        """Return the JSON of a plan, with nothing there before unless `state` names a file of `change`."""
        self.init(module)
        home = self._home(module)
        given, planned = home / "given.tfvars.json", home / "plan"
        given.write_text(json.dumps(variables))
        done = self(module, "plan", *QUIET, f"-var-file={given}", f"-out={planned}", f"-state={home / state}")
        assert done.returncode == 0, done.stdout + done.stderr
        shown = self(module, "show", "-json", planned)
        assert shown.returncode == 0, shown.stderr
        return json.loads(shown.stdout)

    def change(self, module: Path, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON of a plan from what other variables created."""
        self.plan(module, before)
        home = self._home(module)
        (home / "state").unlink(missing_ok=True)
        done = self(module, "apply", *QUIET, f"-state={home / 'state'}", home / "plan")
        assert done.returncode == 0, done.stdout + done.stderr
        return self.plan(module, after, state="state")

    def _home(self, module: Path) -> Path:
        home = self._kept / "__".join(module.relative_to(ROOT).parts)
        home.mkdir(parents=True, exist_ok=True)
        return home


@contextlib.contextmanager
def providers() -> Iterator[str]:
    """Serve the stand-ins, and say what TF_REATTACH_PROVIDERS is to be; skip the test where that cannot be had."""
    tools.terraform()
    command = [str(tools.python_of_tools()), "-I", str(DOUBLE / "provider.py"), str(DOUBLE / "schemas")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        assert said, "the stand-in does not start: are tf and grpcio in .tools/venv?"
        yield said.strip()
    finally:
        process.stdin.close()
        process.wait(LONG)
        process.stdout.close()


def has_files(folder: Path) -> list[Path]:
    """Return the modules of a folder: those folders that hold Terraform's files."""
    return sorted({file.parent for file in folder.rglob("*.tf") if ".terraform" not in file.parts})


# -- plans -------------------------------------------------------------------------------------------------------


def resources(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the planned values by address, with a mark for values not yet known, and without empty ones."""
    found = {}
    for change in plan["resource_changes"]:
        if change["mode"] == "managed":
            known = change["change"]["after"], change["change"]["after_unknown"]
            found[change["address"]] = _merged(*known)
    return dict(sorted(found.items()))


def of_type(plan: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Return the planned resources of one type, by address."""
    return {
        address: values
        for address, values in resources(plan).items()
        if re.search(rf"(^|\.){kind}\.", address) and values
    }


def only(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the one resource that was found."""
    (one,) = found.values()
    return one


def alarm(planned: dict[str, Any]) -> dict[str, Any]:
    """Return a planned alarm on queries as PutMetricAlarm takes it, without its actions."""
    return {
        "AlarmName": planned["alarm_name"],
        "AlarmDescription": planned["alarm_description"],
        "ComparisonOperator": planned["comparison_operator"],
        "Threshold": float(planned["threshold"]),
        "EvaluationPeriods": planned["evaluation_periods"],
        "DatapointsToAlarm": planned["datapoints_to_alarm"],
        "TreatMissingData": planned["treat_missing_data"],
        "Metrics": sorted(map(_asked, planned["metric_query"]), key=lambda one: (one["Id"] != "q1", one["Id"])),
    }


def _asked(one: dict[str, Any]) -> dict[str, Any]:
    told = {"Id": one["id"], "ReturnData": one["return_data"]}
    if one.get("metric"):
        (metric,) = one["metric"]
        ((name, value),) = metric["dimensions"].items()
        which = {"Namespace": metric["namespace"], "MetricName": metric["metric_name"]}
        which |= {"Dimensions": [{"Name": name, "Value": value}]}
        return {**told, "MetricStat": {"Metric": which, "Period": metric["period"], "Stat": metric["stat"]}}
    period = {"Period": one["period"]} if one.get("period") else {}
    return {**told, "Expression": one["expression"], **period}


def _merged(known: Any, unknown: Any) -> Any:
    if unknown is True:
        return LATER
    if isinstance(known, dict):
        open_keys = unknown if isinstance(unknown, dict) else {}
        merged = {key: _merged(known.get(key), open_keys.get(key)) for key in sorted({*known, *open_keys})}
        return {key: value for key, value in merged.items() if value not in (None, [], {}, "")}
    if isinstance(known, list):
        open_items = unknown if isinstance(unknown, list) else [None] * len(known)
        return [_merged(one, there) for one, there in zip(known, open_items, strict=True)]
    return known


def document(plan: dict[str, Any]) -> str:
    """Return resources and outputs as a golden file holds them, without what another file or test already holds."""
    shown = {address: _readable(values) for address, values in resources(plan).items()}
    outputs = {name: _output(change) for name, change in sorted(plan.get("output_changes", {}).items())}
    return as_rows(shown, outputs)


def as_rows(shown: dict[str, Any], outputs: dict[str, Any]) -> str:
    """Return the JSON of resources and outputs, one a line."""
    parts = []
    for key, values in (("resources", shown), ("outputs", outputs)):
        rows = [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
        parts.append("\n".join([f' "{key}": {{', ",\n".join(rows), " }"]))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _output(change: dict[str, Any]) -> Any:
    return _merged(change.get("after"), change["after_unknown"])


def _readable(values: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in values.items():
        if value == LATER and key in {"tags_all", "id"}:
            continue
        if key in DOCUMENTS and value != LATER:
            made[key] = json.loads(value)
        elif key == "user_data":
            made[key] = "the start-up script"
        elif key.startswith("dashboard_") and isinstance(value, str) and value.startswith("{"):
            made[key] = _graphs(json.loads(value))
        else:
            made[key] = value
    return made


def _graphs(body: dict[str, Any]) -> list[str]:
    """Return where the graphs of a dashboard stand; their searches are in the generated files."""
    return [
        f"{one['x']},{one['y']} {one['properties'].get('title') or one['properties'].get('markdown')}"
        for one in body.get("widgets", [])
    ]


def unpacked(user_data: str) -> str:
    """Return a script that was packed for EC2."""
    return gzip.decompress(base64.b64decode(user_data)).decode()


def check_formatted(terraform: Terraform, folder: Path) -> None:
    """Assert that all below a folder is written as `terraform fmt` writes it."""
    done = terraform(folder, "fmt", "-check", "-recursive", "-no-color")
    assert done.returncode == 0, done.stdout


def check_valid(terraform: Terraform, module: Path) -> None:
    """Assert that Terraform finds nothing to say of a module."""
    terraform.init(module)
    done = terraform(module, "validate", "-json")
    assert json.loads(done.stdout)["diagnostics"] == []


def check_own_tests(terraform: Terraform, module: Path) -> None:
    """Assert that a module has tests, and that they pass."""
    terraform.init(module)
    done = terraform(module, "test", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Success! [1-9]", done.stdout)


def check_layout(module: Path, provider: str, *, is_called: bool) -> str:
    """Assert that a module has the usual files, texts and types, and a provider if nobody calls it; return it whole."""
    assert {"main.tf", "variables.tf", "outputs.tf", "versions.tf"} == {path.name for path in module.glob("*.tf")}
    whole = "".join(path.read_text() for path in sorted(module.glob("*.tf")))
    assert (f'provider "{provider}"' in whole) != is_called, "who calls a module says which provider"
    for kind, found in blocks(module).items():
        for name, text in found.items():
            assert re.search(r'^  description\s*= ".+\."$', text, re.MULTILINE), f"{kind} {name}"
            assert kind == "output" or re.search(r"^  type\s*=", text, re.MULTILINE), f"{kind} {name}"
    return whole


def check_golden(path: Path, text: str) -> None:
    """Compare with a golden file, or renew it where UPDATE_GOLDEN is set."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "if this is meant, UPDATE_GOLDEN=1 renews it"


# -- what modules say of themselves --------------------------------------------------------------------------------

BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)


def blocks(module: Path) -> dict[str, dict[str, str]]:
    """Return variables and outputs of a module, by kind and name: the text of each."""
    found: dict[str, dict[str, str]] = {"variable": {}, "output": {}}
    for file in sorted(module.glob("*.tf")):
        for kind, name, text in BLOCK.findall(file.read_text(encoding="utf-8")):
            found[kind][name] = text
    return found


BEGIN, END = "<!-- inputs and outputs -->", "<!-- end -->"


def table(module: Path) -> str:
    """Return the part of a module's README that lists its inputs and outputs."""
    found = blocks(module)
    lines = [BEGIN, "", "| input | type | default | |", "|---|---|---|---|"]
    for name, text in sorted(found["variable"].items()):
        kind = re.search(r"^  type\s*= (.+)$", text, re.MULTILINE)[1]
        if kind.endswith("({"):
            keys = re.findall(r"^    (\w+)\s+= ", text.partition("({")[2].partition("\n  })")[0], re.MULTILINE)
            kind = f"{kind}{', '.join(keys)}}}{')' * kind.count('(')}"
        default = re.search(r"^  default\s*= (.+?)$", text, re.MULTILINE)
        shown = "**required**" if default is None else f"`{default[1]}`"
        lines.append(f"| `{name}` | `{kind}` | {shown} | {_description(text)} |")
    lines += ["", "| output | |", "|---|---|"]
    lines += [f"| `{name}` | {_description(text)} |" for name, text in sorted(found["output"].items())]
    return "\n".join([*lines, "", END])


def _description(text: str) -> str:
    found = re.search(r'^  description\s*= "((?:[^"\\]|\\.)*)"$', text, re.MULTILINE)
    return found[1].replace('\\"', '"').replace("|", "\\|") if found else ""


def check_readme(module: Path) -> None:
    """Compare the lists in a README with the files, or renew them where UPDATE_GOLDEN is set."""
    readme = module / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    check_golden(readme, f"{before}{table(module)}{after}")
