"""terraform/aws and terraform/google as the repositories terraform-aws-chipwatch and terraform-google-chipwatch."""

import os
import re
import shutil

import pytest
from tests.deploy import terraform as tf

CLOUDS = {cloud: tf.ROOT / "terraform" / cloud for cloud in ("aws", "google")}
EXAMPLES = [path for cloud in CLOUDS.values() for path in sorted((cloud / "examples").iterdir()) if path.is_dir()]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_folder_has_what_a_registry_wants_and_names_no_file_outside(cloud):
    folder = CLOUDS[cloud]
    assert (folder / "LICENSE").read_text() == (tf.ROOT / "LICENSE").read_text()
    for name in ("README.md", "main.tf", "variables.tf", "outputs.tf", "versions.tf"):
        assert (folder / name).is_file()
    assert all((module / "README.md").is_file() for module in (folder / "modules").iterdir())
    for file in [*folder.rglob("*.tf"), *folder.rglob("*.md")]:
        text = file.read_text()
        named = re.findall(r"\]\((?!\w+:)([^)#\s]+)", text) if file.suffix == ".md" else []
        named += re.findall(r'source\s*= "(\.[^"]*)"', text) if file.suffix == ".tf" else []
        named += re.findall(r"\$\{path\.module\}/((?:\.\./)+)", text)
        for path in named:
            there = (file.parent / path).resolve()
            assert there.is_relative_to(folder), (file, path)
            assert there.exists(), (file, path)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_folder_is_valid_by_itself(terraform, tmp_path, monkeypatch, cloud):
    shutil.copytree(
        CLOUDS[cloud], copy := tmp_path / f"terraform-{cloud}-chipwatch", ignore=shutil.ignore_patterns(".terraform*")
    )
    monkeypatch.setattr(tf, "ROOT", tmp_path)
    tf.check_valid(terraform, copy)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_an_example_has_a_readme_and_values_with_which_it_is_planned(terraform, example):
    assert (example / "README.md").read_text().startswith(f"# {example.name}\n")
    values = example / "terraform.tfvars.example"
    terraform.init(example)
    done = terraform(example, "plan", "-input=false", "-no-color", "-lock=false", "-refresh=false", f"-var-file={values}", f"-state={os.devnull}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "undeclared variable" not in done.stdout
