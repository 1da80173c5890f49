"""Values of this machine that need no platform."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection

from agent.identity.source import Answer, Source, fit


class Static(Source):
    """The host name, and a random run_id for each start."""

    name = "this machine"
    words = ("hostname", "run_id")

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return both."""
        found = fit({"hostname": platform.node()}, "the system") | fit({"run_id": os.urandom(6).hex()}, "this start")
        return Answer(found, "it has no name" if {*wanted} - {*found} else "")
