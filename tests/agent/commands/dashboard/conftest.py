from __future__ import annotations

import pytest

from agent.commands.dashboard.make import make
from agent.commands.dashboard.options import Wishes
from agent.config.load import load

REGION = {"region": "us-east-1"}


@pytest.fixture
def made():
    """Make what the command line would: wishes as keywords, flags as a dict."""

    def build(cloud, flags=None, file=None, **wishes):
        return make(load(file, {**REGION, **(flags or {})}, {}), Wishes(cloud=cloud, **wishes))

    return build


@pytest.fixture
def document(made):
    return lambda cloud, flags=None, **wishes: made(cloud, flags, **wishes).document
