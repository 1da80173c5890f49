"""Names are promises: what the collectors declare is what was promised, and a change of it is a visible one."""

import json
import subprocess

import pytest
from tools import fleet, hardware, installers, messages, name_pages, schema, verdict
from tools.compact import compact
from tools.dashboards import DASHBOARDS, DRAWN, LEVELS, PRODUCTS, dashboards, products, terraform_aws, terraform_google
from tools.golden import of_catalogue
from tools.pages import DOCUMENT, IDENTITY, OTEL_NAMES, ROOT, document, names, otel_names

from chipwatch.advisor.catalogue import catalogue as declared
from chipwatch.collectors.cpu import CpuCollector
from chipwatch.contract.datapoint import Level, gauge

STALE = "if this change is meant, `make golden` renews it"


def test_the_golden_messages_equal_the_messages_of_the_sources():
    assert messages.messages().splitlines() == messages.GOLDEN.read_text(encoding="utf-8").splitlines(), STALE


def test_a_message_is_what_is_raised_logged_or_reported():
    source = """
NO_ROLE: Final = "there is no role"
log.warning("%s is ignored", name)
self._logger.log(ERROR, "a cause", f"failed: {text}")
raise Refused(NO_ROLE) from None
raise ConfigError(f"{path}: no such file" if a else "no file is given")
problems = PartlyCollected(["one is lost", two])
print("not a message")
"""
    assert list(messages.of_source(source)) == [
        "%s is ignored",
        "failed: {text}",
        "there is no role",
        "{path}: no such file | no file is given",
        "one is lost",
    ]


@pytest.mark.parametrize("path", [*name_pages.pages()], ids=lambda path: path.stem)
def test_a_page_under_each_profile_and_under_two_is_what_it_was(path):
    assert name_pages.pages()[path].splitlines() == path.read_text(encoding="utf-8").splitlines(), STALE


def test_the_page_on_metrics_is_what_the_collectors_declare():
    assert document().splitlines() == DOCUMENT.read_text(encoding="utf-8").splitlines(), STALE


def test_the_table_of_dimension_names_is_what_the_agent_knows():
    assert names().splitlines() == IDENTITY.read_text(encoding="utf-8").splitlines(), STALE


def test_the_table_of_what_the_verdict_judges_by_is_its_rules():
    assert verdict.page().splitlines() == verdict.PAGE.read_text(encoding="utf-8").splitlines(), STALE
    for name in {*verdict.TESTS.values(), verdict.EACH}:
        file, test = name.split("::")
        (path,) = verdict.PAGE.parents[1].glob(f"tests/agent/**/{file}")
        assert f"def {test}(" in path.read_text(encoding="utf-8"), name


COLLECTORS = {
    "NVIDIA": ("nvidia",), "AMD": ("amd", "kernel"), "AWS": ("neuron",), "Google": ("tpu",), "Intel": ("intel", "gaudi"),
    "Apple": ("apple",), "Graphcore": ("ipu",),
}  # fmt: skip
"""Vendors of docs/hardware.md -> the collectors whose metrics it may name."""


def test_the_page_on_hardware_is_its_data_whose_metrics_are_declared():
    assert hardware.page().splitlines() == hardware.PAGE.read_text(encoding="utf-8").splitlines(), STALE
    by_collector = {name: {metric.name for metric in metrics} for name, metrics in declared().items()}
    for row in hardware.rows():
        assert row.tried in hardware.TRIED, row
        assert {*row.metrics} <= set().union(*(by_collector[name] for name in COLLECTORS[row.vendor])), row
    pairs = [(row.vendor, model, row.signal) for row in hardware.rows() for model in row.models]
    assert len(pairs) == len({*pairs}), "a signal of a model stands twice"
    printed = hardware.printed()
    assert {row.metric for row in printed if row.metric} <= by_collector["nvidia"]
    assert all(row.metric or row.further for row in printed), "a value without a metric needs a reason"
    names = [(row.group, name) for row in printed for name in row.names]
    assert len(names) == len({*names}), "a value of nvidia-smi stands twice"


def test_the_page_on_the_names_of_opentelemetry_is_the_profile():
    assert otel_names().splitlines() == OTEL_NAMES.read_text(encoding="utf-8").splitlines(), STALE


@pytest.mark.parametrize(
    ("made", "files"),
    [
        (dashboards, "tests/golden/dashboards/*"),
        (terraform_aws, "terraform/aws/**/generated/*/*"),
        (terraform_google, "terraform/google/**/generated/*/*"),
    ],
)
def test_the_dashboards_and_alarms_are_what_the_collectors_declare(made, files):
    assert {path: path.read_text(encoding="utf-8") for path in ROOT.glob(files)} == made(), STALE


@pytest.fixture(scope="module")
def before():
    return of_catalogue()


@pytest.mark.parametrize("level", [Level.ALL, Level.BASIC])
def test_a_new_gauge_changes_one_generated_file_and_the_graphs_that_show_it(before, level, monkeypatch):
    new = gauge("cpu.new", "W", "A new gauge.", level)
    monkeypatch.setattr(CpuCollector, "metrics", (*CpuCollector.metrics, new))
    after = of_catalogue()
    changed = {path for path, text in after.items() if text != before[path]}
    graphs = {path for path in changed if path.parts[-4:-2] == ("dashboards", "generated")}
    assert changed - graphs == {DOCUMENT}
    assert {path.parent.name for path in graphs} == {wanted for wanted in LEVELS if Level[wanted.upper()] >= level}
    assert {path.name for path in graphs} <= {"host.json.tftpl"}


def test_the_golden_dashboards_draw_every_metric_that_is_named_for_them():
    boards = "".join(dashboards().values())
    assert {name for name in DRAWN if name not in boards and name.replace(".", "_") not in boards} == set()


def test_the_schema_of_the_chart_is_what_the_program_takes():
    assert schema.schema().splitlines() == schema.SCHEMA.read_text(encoding="utf-8").splitlines(), STALE


def test_the_page_has_a_row_for_every_metric():
    rows = [line.split("|")[1].strip(" `") for line in document().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(metric.name for metrics in declared().values() for metric in metrics)


def test_every_promise_of_the_catalogue_is_kept_to_the_letter(catalogue):
    found = {
        metric.name: (metric.kind.value, metric.unit, metric.dims, metric.level.name.lower())
        for metrics in declared().values()
        for metric in metrics
    }
    promised = {p.name: (p.kind, p.unit, p.dims, p.level) for p in catalogue if not p.name.startswith("gpu.process.")}
    assert len(promised) == 44
    assert {name: found.get(name) for name in promised} == promised


def test_names_are_lower_case_words_with_dots():
    for metrics in declared().values():
        for metric in metrics:
            assert all(word.isidentifier() and word.islower() for word in metric.name.split(".")), metric.name
            assert len(metric.name.split(".")) >= 2, metric.name


def test_units_are_words_that_are_known():
    known = {"%", "By", "s", "W", "J", "Cel", "MHz", "Gbit/s", "GT/s", "1"}
    for metrics in declared().values():
        for metric in metrics:
            assert metric.unit in known or metric.unit.startswith("{"), metric.unit


def test_generated_json_has_a_widget_a_line_and_the_same_values():
    document = {
        "title": "é",
        "rows": [1, 2],
        "mosaic": {"tiles": [{"x": 1.50, "widget": {"title": "a"}}, {"x": 2}]},
        "groups": [{"name": "g", "rules": [{"alert": "b"}]}],
        "panels": [],
    }
    text = compact(json.dumps(document))
    assert json.loads(text) == document
    assert list(json.loads(text)) == list(document)
    assert text.splitlines() == [
        "{",
        ' "title": "é",',
        ' "rows": [1, 2],',
        ' "mosaic": {',
        '  "tiles": [',
        '   {"x": 1.5, "widget": {"title": "a"}},',
        '   {"x": 2}',
        "  ]",
        " },",
        ' "groups": [',
        "  {",
        '   "name": "g",',
        '   "rules": [',
        '    {"alert": "b"}',
        "   ]",
        "  }",
        " ],",
        ' "panels": []',
        "}",
    ]


@pytest.mark.parametrize("text", ["[]", "{}", '[{"alert": 1}, 2]', '{"widgets": []}'])
def test_short_documents_keep_their_values(text):
    assert json.loads(compact(text)) == json.loads(text)


def test_each_generated_file_is_marked_for_reviews():
    paths = {*DASHBOARDS.glob("*.*"), *ROOT.glob("terraform/**/generated/*/*"), DOCUMENT, OTEL_NAMES, messages.GOLDEN}
    paths |= {schema.SCHEMA, fleet.TABLE, verdict.situations.TABLE, *installers.installers()}
    names = [str(path.relative_to(ROOT)) for path in paths]
    assert len(names) > 60
    listed = subprocess.run(
        ["git", "check-attr", "linguist-generated", *names], cwd=ROOT, capture_output=True, text=True, check=True
    )
    unmarked = [line for line in listed.stdout.splitlines() if not line.endswith(": set")]
    assert unmarked == [], "mark it in .gitattributes"


def test_the_shipped_dashboards_and_alarms_are_what_the_command_prints():
    made = products()
    kept = {path: path.read_text(encoding="utf-8") for path in PRODUCTS.rglob("*.json")}
    assert {str(path.relative_to(PRODUCTS)): text for path, text in made.items()} == {
        str(path.relative_to(PRODUCTS)): text for path, text in kept.items()
    }, STALE
