"""
Judges answers by https://opentelemetry.io/docs/specs/otlp/#otlphttp-response.

Differences: docs/decisions/0047-otlp-statuses.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.net.http_client import HttpAnswer, retry_after
from chipwatch.net.protobuf import BadMessage, fields

PROTOBUF, JSON = "application/x-protobuf", "application/json"
MAX_FIELDS: Final = 1000
"""Most fields that are read of an answer: it needs five, and a forged one with millions would take seconds."""
KNOWN: Final = frozenset({"partialSuccess", "code"})
"""Keys of OTLP's answers and of google.rpc.Status; a JSON object without any comes from another server."""
RETRIED: Final = frozenset({429, 502, 503, 504})
"""Statuses after which OTLP has the sender try again."""
PAGE: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<!--.{0,900}?-->\s*)?<(?:!doctype|html|\?xml)", re.IGNORECASE | re.DOTALL
)
"""Beginning of an HTML page, which a proxy or a captive portal sends in place of the receiver's answer."""
RECEIVERS: Final = json.loads(Path(__file__).with_name("receivers.json").read_bytes())
ADVICE: Final[dict[int, str]] = {int(status): text for status, text in RECEIVERS["advice"].items()}


class Partial(NamedTuple):
    """A partial success: how many points were rejected, and the receiver's message."""

    rejected: int = 0
    words: str = ""


def judge(answer: HttpAnswer, advice: Mapping[int, str] = ADVICE) -> Partial:
    """
    Return how many points a success rejects; raise Retryable, Refused or BadBatch for other answers.

    A success with another body than OTLP's, or an empty one, comes from another server, which took no point.
    """
    status = answer.status
    if 200 <= status < 300:
        try:
            partial = _partial(answer)
        except BadMessage:
            kind = ascii(answer.headers.get("content-type") or "no content type")[1:-1][:60]
            text = f"the answer is {status} with a body that is not OTLP's ({kind}): check endpoint_url and proxy"
            raise Retryable(text) from None
        return Partial(partial.rejected, answer.says(partial.words))
    words = answer.says(_status_words(answer))
    says = f"the answer is {status}{f': {words}' if words else ''}"
    if status in RETRIED:
        raise Retryable(says, after=retry_after(answer.headers))
    if status in (400, 413, 422):
        raise BadBatch(says)
    if status < 400:
        raise Refused(f"the address redirects to another one, which is not followed; set endpoint_url ({says})")
    default = advice[500] if status >= 500 else "check endpoint_url, proxy and account"
    raise Refused(f"{advice.get(status, default)} ({says})")


def _partial(answer: HttpAnswer) -> Partial:
    """Return the partial success of an ExportMetricsServiceResponse; raise BadMessage."""
    body, kind = answer.body, _kind(answer)
    if _is_page(answer):
        raise BadMessage
    if not body.strip():
        return Partial()
    if kind == JSON or body[:1] == b"{":
        content = _json(body)
        if content and KNOWN.isdisjoint(content):
            raise BadMessage
        if content.get("code"):
            return Partial(words=_status_words(answer) or "an error")
        return _partial_json(content.get("partialSuccess") or {})
    if not (parts := [value for number, value in _few(body) if number == 1]):
        raise BadMessage
    if any(isinstance(part, int) for part in parts):  # a google.rpc.Status has a number in this field
        return Partial(words=_status_words(answer) or "an error")
    inner = b"".join([part for part in parts if isinstance(part, bytes)])
    known = dict(_few(inner))
    rejected, words = known.get(1), known.get(2)
    return Partial(
        rejected if isinstance(rejected, int) and rejected < 1 << 63 else 0,  # a negative number has the highest bit
        words.decode(errors="replace") if isinstance(words, bytes) else "",
    )


def _partial_json(found: Any) -> Partial:
    try:
        return Partial(max(0, int(found.get("rejectedDataPoints") or 0)), str(found.get("errorMessage") or ""))
    except (AttributeError, TypeError, ValueError, OverflowError):  # 1e999 is infinite: OverflowError
        raise BadMessage from None


def _status_words(answer: HttpAnswer) -> str:
    """Return an error's message: a google.rpc.Status in protobuf or JSON, or a short text."""
    body, kind = answer.body, _kind(answer)
    if _is_page(answer):
        return ""
    try:
        if kind == JSON or (kind != PROTOBUF and body[:1] == b"{"):
            status = _json(body)
            error = status.get("error")
            inner = error if isinstance(error, dict) else {}
            words = (inner.get("message"), status.get("message"), status.get("Message"), error, status.get("__type"))
            return next((word for word in words if isinstance(word, str) and word), "")
        if kind == PROTOBUF:
            texts = [value for number, value in _few(body) if number == 2 and isinstance(value, bytes)]
            return texts[-1].decode(errors="replace") if texts else ""
    except BadMessage:
        return ""
    return body[:2000].decode(errors="replace")


def _few(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield a message's fields; raise BadMessage for more of them than an answer can have."""
    for count, item in enumerate(fields(content)):
        if count == MAX_FIELDS:
            raise BadMessage
        yield item


def _is_page(answer: HttpAnswer) -> bool:
    kind = _kind(answer)
    return "html" in kind or kind.endswith("xml") or PAGE.match(answer.body[:1000]) is not None


def _kind(answer: HttpAnswer) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def _json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise BadMessage from None
    if not isinstance(content, dict):
        raise BadMessage
    return content
