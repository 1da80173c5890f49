"""Checks the names of AWS regions against the list that botocore comes with."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chipwatch.base.text import nearest


def partitions() -> list[dict[str, Any]]:
    """Return botocore's list of AWS partitions with their regions; raise ImportError, OSError or ValueError."""
    spec = find_spec("botocore")  # only finds its files: importing it takes 0.1 s
    if spec is None or spec.origin is None:
        raise ImportError("botocore")
    return json.loads((Path(spec.origin).parent / "data/partitions.json").read_bytes())["partitions"]  # type: ignore[no-any-return]


def region_fault(region: str) -> str | None:
    """Return what is wrong with a region that botocore does not know; None for a known one, or without botocore."""
    try:
        regions = sorted({name for partition in partitions() for name in partition["regions"]})
    except (ImportError, OSError, ValueError, LookupError, TypeError):
        return None
    if region in regions or "${" in region:  # ${...} is a template's variable
        return None
    fault = f"AWS has no region {region!r}{nearest(region, regions, '')}"
    if not re.fullmatch("[a-z0-9-]+", region):
        return fault
    return f"{fault} (if it is newer than botocore, set endpoint_url to https://monitoring.{region}.amazonaws.com)"
