"""Reads the configuration for commands that accept its options."""

from __future__ import annotations

import atexit
import signal
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

from chipwatch.commands.command_line import flags
from chipwatch.config.load import load
from chipwatch.config.options import Config
from chipwatch.service import log_formats as formats


def reader(given: SimpleNamespace) -> Callable[..., Config]:
    """Return a function that reads the configuration; it accepts further arguments of `load`."""
    wraps = bool(given.wrapped) or given.command == "record"
    return partial(load, getattr(given, "config", None), flags(given), wraps=wraps)


def configured(given: SimpleNamespace) -> Config:
    """
    Read the configuration, and set up logging as it says; raise ConfigError.

    Also ignore signals of timers, so that a plugin's timer does not end this process. Child processes get the default.
    """
    for number in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda *_: None)
            atexit.register(signal.signal, number, signal.SIG_IGN)  # Python's exit restores SIG_DFL
    formats.to_stderr("warning")
    config = reader(given)()
    formats.to_stderr(config.log_level or "warning", config.log_format)
    return config
