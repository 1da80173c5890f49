import pytest
from tests.agent.jobs.machine import Machine


@pytest.fixture
def machine():
    """A processor of jobs, as it is without options, that is given facts tick by tick."""
    return Machine()
