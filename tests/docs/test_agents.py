"""Schemas of answers, and the skill for assistants: its 20 questions, asked of a node by its commands alone."""

import json
import re
import subprocess

import pytest
from jsonschema import Draft202012Validator
from tests.docs.test_links import ROOT
from tests.doubles.nvml.driver import machine_with

SCHEMAS = {path.stem: json.loads(path.read_text()) for path in ROOT.glob("docs/schemas/*.json")}
ROW = re.compile(r"^\| (.+?) \| `chipwatch (.+?)` \| (.*) \|$", re.MULTILINE)
REPAIR = "has memory that cannot be repaired"
ANSWERS = {
    "Is this node fit for work": {"verdict": "not fit"},
    "What is wrong with it": {"reasons[].says": REPAIR},
    "Which part has the fault": {"reasons[].about": "gpu 1"},
    "Are all 8 GPUs there": {"reasons[].says": "8 expected, 2 work"},
    "How many GPUs are free": {"groups": {"held": 1.0, "free": 1.0, "lost": 0.0, "not known": 0.0}},
    "Which job holds this GPU": {"devices[].device": "0", "devices[].jobs": []},
    "What does each GPU do": {"devices[].state": "free"},
    "Why is a GPU idle": {"devices[].cause": "no_process"},
    "Since when": {"devices[].seconds_since_kernel": None},
    "What did a job use and cost": {"jobs[].memory_max": 10**9},
    "How much of a job's GPU time is lost": {"jobs[].why.lost": None},
    "Does the agent read and send": {"not_ready": None},
    "Are points lost": {"sinks.*.dropped": {}, "sinks.*.last_error": None},
    "Which node of a fleet": {"nodes[].reason": f"gpu 1 {REPAIR}", "nodes[].verdict": "not fit"},
}
"""Start of a question -> what the answer has among others at a place; other questions have some answer."""


def closed(schema):
    """Return a schema that refuses keys which it does not describe."""
    if isinstance(schema, dict):
        more = {"additionalProperties": False} if "properties" in schema and "type" in schema else {}
        return {**more, **{key: closed(value) for key, value in schema.items()}}
    return [*map(closed, schema)] if isinstance(schema, list) else schema


def found(values, place):
    """Return what an answer has at a place such as `jobs[].why.lost`; fail where a key is missing."""
    for part in place.replace("[]", ".[]").split("."):
        each = {"[]": lambda value: value, "*": lambda value: value.values()}
        values = [one for value in values for one in each.get(part, lambda value, key=part: [value[key]])(value)]
    return values


@pytest.fixture
def node(agent, until, tmp_path):
    """Return a function that asks a node: a job has GPU 0, and GPU 1 is free and broken."""
    driver, env = machine_with(tmp_path, 2)
    spool = {"CHIPWATCH_SPOOL": str(tmp_path / "state")}
    env |= {**spool, "CHIPWATCH_SINKS__STDOUT__PATH": str(tmp_path / "points")}
    with subprocess.Popen(["sleep", "600"]) as child:
        driver.gpus[0] |= {"kernels": "1/1", "processes": f"{child.pid}:1000000000"}
        driver.gpus[1] |= {"kernels": "0/1", "processes": None, "unrepairable": 1}
        driver.write()
        agent.start("--collector", "nvidia,jobs,memory,cpu", "--interval", "0.2", env=env)
        until(lambda: '"busy"' in agent.run("jobs", "--json", env=spool).stdout)
        yield lambda line: json.loads(agent.run(*line.split(), env=spool).stdout)
        child.kill()


def test_the_skill_answers_twenty_questions_and_each_answer_has_the_form_of_its_schema(agent, node, until):
    rows = ROW.findall(agent.run("help", "--skill").stdout)
    named = {
        question: wanted for question, *_ in rows for start, wanted in ANSWERS.items() if question.startswith(start)
    }
    assert (len(rows), len(named)) == (20, len(ANSWERS))
    seen = set()
    for question, line, places in rows:
        name = "ended-jobs" if "--since" in line else line.split()[0]
        seen.add(name)
        Draft202012Validator.check_schema(SCHEMAS[name])
        assert "format 1" in SCHEMAS[name]["title"]

        def answered(name=name, line=line, question=question, places=places):
            answer = node(line)
            Draft202012Validator(closed(SCHEMAS[name])).validate(answer)  # a new key goes into docs/schemas
            values = {place: found([answer], place) for place in re.findall("`(.+?)`", places)}
            return all(values.values()) and all(
                value in values[place] for place, value in named.get(question, {}).items()
            )

        until(answered)  # a busy machine may have no reading yet
    assert seen == SCHEMAS.keys()
