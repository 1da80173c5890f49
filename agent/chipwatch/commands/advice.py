"""`chipwatch plan`, `chipwatch dashboard` and `chipwatch list`."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

from chipwatch.advisor import catalogue
from chipwatch.advisor.dashboard import make, options
from chipwatch.advisor.plan import estimate, text
from chipwatch.base.text import line_width
from chipwatch.commands.configured import configured
from chipwatch.commands.output import FAILED, OK, report, show
from chipwatch.contract.advice import Terms
from chipwatch.service import log_formats as formats


def plan(given: SimpleNamespace) -> int:
    """Print how much would be sent, and the cost; return FAILED if a sink would reject a part."""
    config = configured(given)
    logging.disable(logging.WARNING)
    terms = Terms(**{key: getattr(given, key) for key in Terms._fields})
    machine = {key: getattr(given, key) for key in ("families", "devices") if hasattr(given, key)}
    made = estimate.make(config, given.hosts, terms, **machine)
    show(text.as_json(made) if getattr(given, "format", None) == "json" else text.as_text(made))
    return FAILED if made.failed or any(sink.rejected for sink in made.sinks) else OK


def dashboard(given: SimpleNamespace) -> int:
    """Print a dashboard or alarms; notes on what was left out go to standard error."""
    config = configured(given)
    logging.disable(logging.WARNING)
    made = make.make(config, options.options(given))
    for note in made.notes:
        report(note, OK)
    return show(made.text)


def metrics(given: SimpleNamespace) -> int:
    """Print the metrics of all collectors."""
    formats.to_stderr("warning")
    asked = {key: value for key, value in vars(given).items() if key not in ("command", "wrapped")}
    return show(catalogue.listing(**asked, width=line_width(sys.maxsize)))
