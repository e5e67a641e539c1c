"""Requests, responses and commands as values, without a server, and the errors that the endpoint itself raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.errors import LedgerError


@dataclass(frozen=True)
class Request:
    """A whole HTTP request.

    `path` and `query` have percent escapes as they were sent. The names of headers are in lower case. Of several
    headers of one name, `headers` has the last.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    scheme: str = "http"


@dataclass(frozen=True)
class Response:
    """A whole HTTP response, without the headers of the connection."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """An action, and its parameters by their names in botocore's model."""

    action: str
    parameters: Mapping[str, object]


THROTTLED = "RequestThrottled"


class Refusal(LedgerError):
    """The endpoint refuses a request. `code` is a key of `statuses.ERRORS`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NoAction(Refusal):
    """A GET of the Query protocol without an action. SQS answers with an element of its own."""

    def __init__(self) -> None:
        super().__init__("MissingAction", "The request must contain the parameter Action.")


def unknown_action(action: str | None) -> Refusal:
    """Return the error of an unknown or missing action. Source: reports about SDKs, for an unknown action."""
    if not action:
        return Refusal("MissingAction", "The request must contain the parameter Action.")
    return Refusal("InvalidAction", f"The action {action[:80]} is not valid for this endpoint.")


def not_serialized(sentence: str) -> Refusal:
    return Refusal("SerializationException", sentence)


def invalid_address(url: object) -> Refusal:
    return Refusal("InvalidAddress", f"The address {str(url)[:200]} is not valid for this endpoint.")


class Throttled(Refusal):
    """Too many calls run or wait, too many long polls are open, or large bodies take too much memory."""

    def __init__(self) -> None:
        super().__init__(THROTTLED, "The request was denied due to request throttling.")
