from contextlib import closing

import pytest

from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given


@pytest.fixture
def begun(at_the_end):
    """Open a collector, and close it after the test."""

    def begin(collector, level=Level.ALL):
        collector.open(Given(level=level))
        return at_the_end.enter_context(closing(collector))

    return begin


@pytest.fixture
def bench(request, tmp_path):
    """The Bench of the test's file, whose collector is closed after the test."""
    made = request.module.Bench(tmp_path)
    yield made
    if made.collector:
        made.collector.close()
