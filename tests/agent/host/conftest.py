"""A program of a test."""

import pytest


class Script:
    """A shell script with a log of its starts."""

    def __init__(self, folder):
        self.path, self.log = folder / "tool", folder / "log"

    def write(self, body):
        self.path.write_text(f'#!/bin/sh\necho "$@" >> {self.log}\n{body}\n')
        self.path.chmod(0o755)

    def starts(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def script(tmp_path):
    return Script(tmp_path)
