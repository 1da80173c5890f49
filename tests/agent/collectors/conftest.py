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
