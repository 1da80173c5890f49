"""What a naming profile says of one metric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from chipwatch.datapoint import Dimensions

MIB, GIB, MB = 2.0**-20, 2.0**-30, 1e-6
PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
NONE: Final[Mapping[str, str]] = MappingProxyType({})


class ToolName(NamedTuple):
    """A name of another tool; the value of a dimension replaces its `{placeholder}`, and the dimension is dropped."""

    template: str
    unit: str | None = None
    """None: our unit."""
    factor: float = 1.0
    dims: Mapping[str, str] = NONE
    """Dimensions of the other tool: key -> value with placeholders; left out if one has no value."""
    words: Mapping[str, str] = NONE
    """Our value of a placeholder -> the other tool's value."""
    only: Mapping[str, str] = NONE
    """Dimensions that a series must have to get the name; other series keep ours."""
    help: str = ""
    """Description of a name that several of our metrics share; empty: ours."""

    def fits(self, dims: Dimensions) -> bool:
        """Return whether a series with these dimensions can have the name."""
        return {*PLACEHOLDER.findall(self.template)} <= {*dims} and self.only.items() <= dims.items()


class Copy(NamedTuple):
    """A second name of another tool for a metric: for the same points, or for their mean."""

    name: ToolName
    of_tree: bool = False
    """Only for GPUs that the watched process tree uses."""
    mean_over: str = ""
    """Dimension over which to take the mean, one point for all devices; empty: no mean."""
    last_of: str = ""
    """Dimension whose value becomes the point's: that of the counter that rose last; empty: no such value."""
    drops: tuple[str, ...] = ()
    """Dimensions that depend on that one."""
    rate: bool = False
    """A gauge of the counter's increase a second."""
    limited: bool | None = None
    """Only if the container's memory is limited (True) or is not (False)."""
