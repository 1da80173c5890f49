import json

import pytest

from chipwatch.advisor.dashboard.make import make
from chipwatch.advisor.dashboard.options import BoardOptions
from chipwatch.config.load import load

REGION = {"region": "us-east-1"}


@pytest.fixture
def made():
    """Make what the command line would: options as keywords, flags as a dict."""

    def build(cloud, flags=None, file=None, **options):
        return make(load(file, {**REGION, **(flags or {})}, {}), BoardOptions(cloud=cloud, **options))

    return build


@pytest.fixture
def document(made):
    return lambda cloud, flags=None, **options: json.loads(made(cloud, flags, **options).text)
