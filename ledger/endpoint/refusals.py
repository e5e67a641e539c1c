"""What the endpoint refuses by itself, before a queue is asked: errors of requests, in the service's words."""

from __future__ import annotations

from ledger.errors import LedgerError


class Refusal(LedgerError):
    """A request that the endpoint refuses; `code` is one of those that `statuses.ERRORS` knows."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NoAction(Refusal):
    """A GET that asks for nothing. The service answers it by an element of its own, not by an error response."""

    def __init__(self) -> None:
        super().__init__("MissingAction", "The request must contain the parameter Action.")


def unknown_action(action: str | None) -> Refusal:
    """Recorded in what SDKs report of it: the action and the version of the service."""
    if not action:
        return Refusal("MissingAction", "The request must contain the parameter Action.")
    return Refusal("InvalidAction", f"The action {action[:80]} is not valid for this endpoint.")


def not_serialized(sentence: str) -> Refusal:
    """Of a body that cannot be read, or that has a value of another type than the model says."""
    return Refusal("SerializationException", sentence)


def address(url: object) -> Refusal:
    """Of a queue URL that cannot be one of this endpoint."""
    return Refusal("InvalidAddress", f"The address {str(url)[:200]} is not valid for this endpoint.")


class Throttled(Refusal):
    """A request that was not begun, because too many others wait."""

    def __init__(self) -> None:
        super().__init__("RequestThrottled", "The request was denied due to request throttling.")
