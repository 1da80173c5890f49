"""From a tick of the clock to a delivered batch."""
