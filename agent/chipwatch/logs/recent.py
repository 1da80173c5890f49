"""The last records, for the status socket."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from chipwatch.logs.formats import Formatter

MOST: Final = 200
"""Records that are kept."""


class Recent(logging.Handler):
    """Keeps the last records as text, in memory."""

    def __init__(self, most: int = MOST) -> None:
        """Keep the last `most` records."""
        super().__init__()
        self.setFormatter(Formatter())
        self.lines: deque[str] = deque(maxlen=most)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
