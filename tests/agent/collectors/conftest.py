import pytest

from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given


@pytest.fixture
def begun():
    """Open a collector, and close it after the test."""
    collectors = []

    def begin(collector, level=Level.ALL):
        collector.open(Given(level=level))
        collectors.append(collector)
        return collector

    yield begin
    for collector in collectors:
        collector.close()
