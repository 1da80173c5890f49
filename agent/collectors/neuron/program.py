"""Where neuron-monitor is: apart from what runs it, since most machines have none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from agent.errors import Unavailable

NAME: Final = "neuron-monitor"
INSTALLED: Final = Path("/opt/aws/neuron/bin") / NAME
"""Where the package aws-neuronx-tools puts it; only a login shell of the Deep Learning AMI has that in its PATH."""


def find(path: Path | None) -> Path:
    """Return the program, which is at `path` if that is given; raise Unavailable."""
    if path is not None:
        if not path.exists():
            raise Unavailable(f"{path} is absent (collectors.neuron.path)")
        return path
    for place in (*(Path(folder) / NAME for folder in os.get_exec_path()), INSTALLED):
        if os.access(place, os.X_OK) and place.is_file():
            return place
    raise Unavailable(f"no {NAME}: neither in PATH nor {INSTALLED} (package aws-neuronx-tools)")
