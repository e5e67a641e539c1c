"""The errors of outcomes, on the wire and in Python (V7 to V10, V13 and M2 of docs/reference/rules.md)."""

from __future__ import annotations

from ledger.errors import InvalidParameterValue, LedgerError, MessageNotInflight, ReceiptHandleIsInvalid
from ledger.rules.visibility import Outcome, Verb

#: A pair without an entry is a success. V8: "change is an error; delete on a standard queue succeeds and does nothing";
#: V13: "change is InvalidParameterValue [...], delete succeeds again".
ERRORS: dict[tuple[Verb, Outcome], type[LedgerError]] = {
    (Verb.CHANGE, Outcome.STALE): ReceiptHandleIsInvalid,
    (Verb.CHANGE, Outcome.ALREADY_DELETED): InvalidParameterValue,
    (Verb.CHANGE, Outcome.NOT_IN_FLIGHT): MessageNotInflight,
    (Verb.CHANGE, Outcome.BEYOND_CEILING): InvalidParameterValue,
    (Verb.CHANGE, Outcome.INVALID): ReceiptHandleIsInvalid,
    (Verb.DELETE, Outcome.INVALID): ReceiptHandleIsInvalid,
    (Verb.DELETE, Outcome.EXPIRED): InvalidParameterValue,
    (Verb.CHANGE, Outcome.CONTRADICTED): InvalidParameterValue,
    (Verb.DELETE, Outcome.CONTRADICTED): InvalidParameterValue,
}
#: V13: the bound of SQS's error.
NOT_AVAILABLE = "Message does not exist or is not available for visibility timeout change"


def error(verb: Verb, outcome: Outcome, handle: object, timeout: object, ceiling: int | None) -> LedgerError | None:
    kind = ERRORS.get((verb, outcome))
    if kind is None:
        return None
    if outcome is Outcome.EXPIRED:
        return InvalidParameterValue("ReceiptHandle", handle, "The receipt handle has expired", "Receive it again.")
    if outcome is Outcome.ALREADY_DELETED:
        return InvalidParameterValue(
            "ReceiptHandle", handle, NOT_AVAILABLE, "It was deleted: nobody receives it, unless its owner restores it."
        )
    if outcome is Outcome.CONTRADICTED:
        bound = "It is named by two different actions of one call"
        return InvalidParameterValue(
            "ReceiptHandle", handle, bound, "Nothing was changed. Name a received message once."
        )
    if kind is InvalidParameterValue:
        return InvalidParameterValue(
            "VisibilityTimeout",
            timeout,
            f"Total VisibilityTimeout for the message is beyond the limit [{ceiling} seconds]",
            "It counts from the receive. Give at most the time that is left, or release it and receive it anew.",
        )
    if outcome is Outcome.NOT_IN_FLIGHT:
        return MessageNotInflight(
            # Source: the API reference of ChangeMessageVisibility.
            "The specified message isn't in flight.",
            f"Nothing was changed: its visibility timeout has run out, or it was released (receipt handle {handle}). "
            "Receive it again.",
        )
    why = {
        Outcome.STALE: "a later receive, a lock, a restore or a move has replaced the receipt",
        Outcome.INVALID: "it was never handed out for this message, or only before a redrive",
    }[outcome]
    return ReceiptHandleIsInvalid(handle, f"Nothing was changed: {why}. Receive the message again.")
