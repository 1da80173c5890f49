"""Fixtures that the tests of the spool share."""

import pytest

from chipwatch.engine.spool.queue import Spool


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "sink.db"


@pytest.fixture
def spooled(path):
    """Make a spool at `path`; what is still open at the end is closed."""
    made = []

    def make(**more):
        spool = Spool("sink", path, **more)
        made.append(spool)
        return spool

    yield make
    for spool in made:
        spool.close()


@pytest.fixture
def spool(spooled):
    """A spool at `path`."""
    return spooled()
