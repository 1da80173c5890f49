"""Errors of the system come with words that say what to look at."""

import errno
import os
import socket

import pytest

from chipwatch.contract.errors import os_text


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (OSError(errno.ECONNREFUSED, "Connection refused"), "nothing listens there (Connection refused)"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no host answers at this address (No route to host)"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "the disk is full (No space left on device)"),
        (OSError(errno.EACCES, "Permission denied"), "Permission denied"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host name (Name or service not known)"),
        (socket.gaierror(errno.ENOSPC, "odd"), "odd"),
        (OSError("no number"), "no number"),
        (OSError(), "OSError"),
        (ValueError("another kind"), "another kind"),
    ],
)  # fmt: skip
def test_an_error_of_the_system_is_in_plain_words_before_its_own(problem, words):
    assert os_text(problem) == words
