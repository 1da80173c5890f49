"""
The modules and examples of terraform/aws and terraform/google, by the real Terraform on stand-ins for their providers.

`UPDATE_GOLDEN=1 pytest tests/deploy/test_terraform.py` renews the lists of inputs and outputs in the READMEs.
"""

import json
import re

import pytest
from tests.deploy import boot
from tests.deploy import terraform as tf
from tests.deploy import test_terraform_aws as aws
from tests.deploy import test_terraform_google as google
from tools.installers import installers

from chipwatch.config.identity.names import WORDS

STALE = "if this change is meant, `make golden` renews it"
CLOUDS = {"aws": aws, "google": google}
EXAMPLES = [
    path for cloud in CLOUDS.values() for path in sorted((cloud.FOLDER / "examples").iterdir()) if path.is_dir()
]
MODULES = [
    folder
    for cloud in CLOUDS.values()
    for folder in (cloud.FOLDER, *sorted(path for path in (cloud.FOLDER / "modules").iterdir() if path.is_dir()))
]
HAVE = {
    "aws": {
        "tags": r"^  tags\s+= var\.tags$",
        "region": r"^  region\s+= var\.region$",
        "permissions_boundary": r"var\.permissions_boundary",
    },
    "google": {
        "labels": r"^  labels\s+= var\.labels$",
        "user_labels": r"merge\(var\.labels",
        "project": r"^  project\s+= .*var\.project_id",
    },
}
"""Arguments that each resource has where its provider knows them."""


def cloud_of(module):
    return module.relative_to(tf.ROOT / "terraform").parts[0]


def schema(cloud):
    """Return the stand-in's schemas, and the version of the provider that they are of."""
    read = json.loads((tf.DOUBLE / f"schemas/{cloud}.json").read_text())
    [of] = read["provider_schemas"].values()
    return of, [int(n) for n in read["provider_version"].split(".")]


def each(modules):
    return pytest.mark.parametrize("module", modules, ids=lambda path: "-".join(path.parts[-3:]))


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_folder_was_thought_of(cloud):
    folder, given = CLOUDS[cloud].FOLDER, CLOUDS[cloud].GIVEN
    assert {path.name for path in EXAMPLES if cloud_of(path) == cloud} == set(given)
    assert [path.stem for path in sorted((tf.GOLDEN / cloud).glob("*.json"))] == sorted(given)
    assert tf.has_files(folder) == sorted(path for path in (*MODULES, *EXAMPLES) if cloud_of(path) == cloud)


def test_what_is_generated_is_what_the_generators_say():
    for path, text in installers().items():
        assert path.read_text(encoding="utf-8") == text, STALE
    for file in (boot.UNIT, boot.UNINSTALL):
        assert (google.FOLDER / "files" / file.name).read_bytes() == file.read_bytes(), STALE


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_files_are_formatted(terraform, cloud):
    tf.check_formatted(terraform, CLOUDS[cloud].FOLDER)


@each([*MODULES, *EXAMPLES])
def test_it_is_valid_and_laid_out_as_modules_are(terraform, module):
    tf.check_valid(terraform, module)
    cloud = cloud_of(module)
    whole = tf.check_layout(module, cloud, is_called=module not in EXAMPLES)
    without_texts = re.sub(r'(description|error_message|condition)\s*= .*|default     = "us-east-1"', "", whole)
    asked_for = r"\b\d{12}\b|us-east-1|arn:aws:" if cloud == "aws" else r"(?!)"
    assert not re.search(asked_for, without_texts), "partition, account and region are asked for"


@each(MODULES)
def test_its_own_tests_pass(terraform, module):
    tf.check_own_tests(terraform, module)


@each(MODULES)
def test_every_precondition_is_broken_once_and_says_whose_it_is(module):
    (tests,) = (module / "tests").glob("*.tftest.hcl")
    text = "".join((module / f"{name}.tf").read_text() for name in ("main", "outputs"))
    expected = " ".join(re.findall(r"expect_failures = \[(.*?)\]", tests.read_text(), re.DOTALL))
    messages = re.findall(r'precondition \{\n.*?error_message = "(\w+):', text, re.DOTALL)
    assert (
        len(re.findall(r"\b(?:(?:aws|google)_\w+|output)\.", expected)) == len(messages) == text.count("precondition {")
    )
    assert set(messages) <= set(tf.blocks(module)["variable"])


@each([*MODULES, *EXAMPLES])
def test_it_asks_for_versions_that_the_stand_in_has(module):
    cloud, versions = cloud_of(module), (module / "versions.tf").read_text()
    assert 'required_version = ">= 1.5.7"' in versions
    for floor in re.findall(r'^ {6}version = ">= ([\d.]+)"', versions, re.MULTILINE):
        assert [int(n) for n in floor.split(".")] <= schema(cloud)[1]
    assert (f"hashicorp/{cloud}" in versions) == (module.name != "install-script"), "a script needs no provider"


@each(MODULES)
def test_its_readme_lists_inputs_and_outputs(module):
    tf.check_readme(module)


@each(MODULES)
def test_what_can_have_tags_labels_and_a_place_has_them(module):
    known, have = schema(cloud_of(module))[0]["resource_schemas"], HAVE[cloud_of(module)]
    resources = r'^resource "(\w+)" "(\w+)" \{\n(.*?)^\}'
    for kind, name, text in re.findall(resources, (module / "main.tf").read_text(), re.DOTALL | re.MULTILINE):
        for attribute in have.keys() & known[kind]["block"]["attributes"].keys():
            assert re.search(have[attribute], text, re.MULTILINE), (name, attribute)


@pytest.mark.parametrize(
    ("module", "name"),
    [("aws/modules/ecs", "daemon_dimensions"), ("aws/modules/ecs", "sidecar_dimensions")]
    + [(f"aws/modules/{name}", "dimensions") for name in ("alarms", "dashboards", "iam")]
    + [(f"{cloud}/modules/install-script", "agent") for cloud in CLOUDS],
)
def test_the_dimensions_are_those_that_the_agent_knows(module, name):
    text = tf.blocks(tf.ROOT / "terraform" / module)["variable"][name]
    known = re.findall(r"setsubtract\(var\.(?:agent\.)?(?:\w+_)?(?:common_dims|dimensions), \[(.*?)\]", text)[-1]
    assert tuple(re.findall(r'"(\w+)"', known)) == WORDS
