import pytest
from tests.doubles.nvml.driver import CannotBuild, build


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A fake NVML, built once."""
    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except CannotBuild as reason:
        pytest.skip(str(reason))
