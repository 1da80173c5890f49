"""Number of random examples of a property test: all of them in continuous integration, a fifth elsewhere."""

import os

IN_CI = bool(os.environ.get("CI"))


def examples(number: int) -> int:
    """Return how many of `number` examples a test draws here."""
    return number if IN_CI else max(number // 5, min(number, 10))
