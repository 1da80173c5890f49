"""A collector written by others takes what 200 agents send, and passes every point on with its pod and job."""

import pytest
from tests.proof.parts import python
from tools.gateway_load import load

pytestmark = pytest.mark.proof


def test_every_point_of_200_agents_arrives_behind_the_gateway_with_its_pod():
    binary = next((python("otlp").parents[1] / "lib").glob("python*/site-packages/rotel/rotel-agent"), None)
    if binary is None:
        pytest.skip("the wheel of rotel for this platform has no program")
    figures = load(str(binary), 4, 60)
    assert figures["requests"] >= figures["agents"], figures
    assert (figures["failed"], figures["arrived"], figures["kept"]) == (0, figures["points"], 1.0), figures
