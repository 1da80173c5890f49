"""The base of test plugins without options, and what they need; it lies beside each of them."""

from dataclasses import dataclass

from chipwatch import Collector, Dimensions, Limits, Processor, Sink, gauge

__all__ = ["Collector", "Dimensions", "Limits", "Optionless", "Processor", "Sink", "dataclass", "gauge"]


class Optionless:
    """A plugin without options: the first base, before Collector, Processor or Sink."""

    @dataclass(frozen=True)
    class Config:
        """No option."""

    def __init__(self, config):
        """Take the options."""
