"""Fixtures that the tests of the spool share."""

from contextlib import closing

import pytest

from chipwatch.engine.spool.queue import Spool


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "sink.db"


@pytest.fixture
def spooled(path, at_the_end):
    """Make a spool at `path`; what is still open at the end is closed."""
    return lambda **more: at_the_end.enter_context(closing(Spool("sink", path, **more)))


@pytest.fixture
def spool(spooled):
    """A spool at `path`."""
    return spooled()
