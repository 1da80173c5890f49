"""Finds Google's credentials with google-auth, and says what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import google.auth
from google.auth import exceptions as auth

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.net.faults import UNEXPECTED


def message_of(problem: Exception) -> str:
    """Return a google-auth error's message, without the content of the credentials file that some errors quote."""
    parts = ["a value of the wrong type" if isinstance(a, auth.InvalidValue) else str(a) for a in problem.args]
    return ": ".join(parts).rstrip(".")


def find_credentials(scopes: Sequence[str], request: Any = None) -> tuple[Any, str | None]:
    """Return credentials and their project; raise Refused if there are none, Retryable if their source is silent."""
    try:
        credentials, project = google.auth.default(scopes=scopes, request=request)
    except auth.DefaultCredentialsError as problem:
        text = message_of(problem)
        raise Refused(f"{text}; on Google Cloud, attach a service account to this machine") from None
    except auth.GoogleAuthError as problem:
        raise Retryable(f"Google credentials: {message_of(problem)}") from None
    except UNEXPECTED as problem:  # the credentials file has another format
        raise Refused(f"Google's credentials file is invalid: {problem}") from None
    return credentials, project


def blame(problem: auth.GoogleAuthError) -> Exception:
    """Return the exception to raise where google-auth gets no token."""
    is_final = isinstance(problem, auth.RefreshError) and not problem.retryable
    says = problem.args[0] if problem.args else type(problem).__name__  # later arguments repeat the answer
    if is_final:
        return Refused(
            "Google's credentials are expired or not valid; run `gcloud auth application-default login`, or check the"
            f" key, and the clock of this machine ({says})"
        )
    return Retryable(f"Google credentials: {says}")
