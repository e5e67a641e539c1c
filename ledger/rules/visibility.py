"""The visibility rules (V1 to V14): one table from (standing, verb) to outcome, and what each verb records.

A verb is decided here and recorded by a store; every function takes the facts and `now` and has no effects.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ledger.rules.limits import MILLISECONDS
from ledger.rules.state import UNTOUCHED, Record, Status, deadline, in_doubt, status


class Standing(Enum):
    """How a receipt stands to the message it was handed out for."""

    UNKNOWN = "nothing is recorded about the message"
    DELETED = "the message is deleted"
    REPLACED = "another receipt came after it"
    SUPERSEDED = "a lock, a restore or a move came after it"
    RELEASED = "given back under this receipt, and not received again"
    POSTPONED = "given back under this receipt, and hidden until a deadline that has not passed"
    LATE = "its deadline has passed, and the message was not received again"
    HELD = "in flight under this receipt"


class Verb(str, Enum):
    """What can be done through a receipt."""

    CHANGE = "change_visibility"
    DELETE = "delete"


class Outcome(str, Enum):
    """What became of one message. Only CHANGED and DELETED changed anything."""

    CHANGED = "changed"
    DELETED = "deleted"
    ALREADY_DELETED = "already deleted"
    SETTLED = "settled before"
    STALE = "stale"
    NOT_IN_FLIGHT = "not in flight"
    BEYOND_CEILING = "beyond the ceiling"
    INVALID = "invalid"
    EXPIRED = "the receipt handle has expired"
    #: M2: two wishes of one call would record different things about the message. Neither is done: which one was meant
    #: cannot be told, the service has no rule, and a delete is for good.
    CONTRADICTED = "contradicted"


class Receipts(str, Enum):
    """What changes through receipts a standard queue takes: its attributes Receipts and LateChange (V8, V9)."""

    FENCED = "only those of a receipt that holds its message"
    LATE = "also those of a receipt whose message nobody received since"
    RECORDED = "also those of a receipt that a later receive replaced"


#: V8, V9, V10, V13 in one place. A law of the table: only HELD, LATE, RELEASED and POSTPONED ever change anything.
TABLE: dict[tuple[Standing, Verb], Outcome] = {
    (Standing.HELD, Verb.CHANGE): Outcome.CHANGED,
    (Standing.LATE, Verb.CHANGE): Outcome.NOT_IN_FLIGHT,
    (Standing.RELEASED, Verb.CHANGE): Outcome.NOT_IN_FLIGHT,
    (Standing.POSTPONED, Verb.CHANGE): Outcome.CHANGED,
    (Standing.REPLACED, Verb.CHANGE): Outcome.STALE,
    (Standing.SUPERSEDED, Verb.CHANGE): Outcome.STALE,
    (Standing.DELETED, Verb.CHANGE): Outcome.ALREADY_DELETED,
    (Standing.UNKNOWN, Verb.CHANGE): Outcome.INVALID,
    (Standing.HELD, Verb.DELETE): Outcome.DELETED,
    (Standing.LATE, Verb.DELETE): Outcome.DELETED,
    (Standing.RELEASED, Verb.DELETE): Outcome.DELETED,
    (Standing.POSTPONED, Verb.DELETE): Outcome.DELETED,
    (Standing.REPLACED, Verb.DELETE): Outcome.STALE,
    (Standing.SUPERSEDED, Verb.DELETE): Outcome.STALE,
    (Standing.DELETED, Verb.DELETE): Outcome.ALREADY_DELETED,
    (Standing.UNKNOWN, Verb.DELETE): Outcome.INVALID,
}
#: V9: where queues with LateChange=accept differ. Recorded: "The recorded service says 200 on standard queues".
LATE_TABLE = {
    **TABLE,
    (Standing.LATE, Verb.CHANGE): Outcome.CHANGED,
    (Standing.RELEASED, Verb.CHANGE): Outcome.CHANGED,
}
#: V8: where queues with Receipts=recorded differ: "The recorded service lets the change through". The deadline changes
#: and the newer receipt stays the message's; where none is (a lock, a restore, a move), there is nothing to change.
RECORDED_TABLE = {**LATE_TABLE, (Standing.REPLACED, Verb.CHANGE): Outcome.CHANGED}
#: V10: where FIFO queues differ. Recorded: "Reason: The receipt handle has expired." No late change is ever accepted
#: there, and none through a replaced receipt: others of its group may be in flight under another receipt by then, and
#: a group has one receiver.
FIFO_TABLE = {
    **TABLE,
    (Standing.LATE, Verb.DELETE): Outcome.EXPIRED,
    (Standing.RELEASED, Verb.DELETE): Outcome.EXPIRED,
}
_STANDARD = {Receipts.FENCED: TABLE, Receipts.LATE: LATE_TABLE, Receipts.RECORDED: RECORDED_TABLE}


def table(
    *, fifo: bool, receipts: Receipts = Receipts.FENCED, whole_claim: bool = False
) -> dict[tuple[Standing, Verb], Outcome]:
    """The table of a queue. Its `receipts` have no effect on FIFO queues. What is done to a whole claim never changes
    what another receiver has by now, whatever a queue takes handle by handle."""
    if fifo:
        return FIFO_TABLE
    return _STANDARD[Receipts.LATE if whole_claim and receipts is Receipts.RECORDED else receipts]


def standing(record: Record, receipt_id: str, now: int) -> Standing:
    """How `receipt_id` stands to a message of which `record` is recorded."""
    if record.deleted_at is not None:
        return Standing.DELETED
    if record.moved_to is not None:
        return Standing.SUPERSEDED
    if record.receipt_id is None and record.visible_at is None:
        return Standing.UNKNOWN
    if record.receipt_id != receipt_id:
        return Standing.SUPERSEDED if record.receipt_id is None else Standing.REPLACED
    in_flight = status(record, 0, now) is Status.IN_FLIGHT
    if record.released_at is not None:
        return Standing.POSTPONED if in_flight else Standing.RELEASED
    return Standing.HELD if in_flight else Standing.LATE


def receive(record: Record, receipt_id: str, attempt_id: str | None, timeout: int, now: int) -> Record:
    """V2, V3, V14: what a receive of a visible message records; the count and the first receive are kept."""
    return Record(
        receipt_id=receipt_id,
        attempt_id=attempt_id,
        receive_count=record.receive_count + 1,
        first_received_at=record.first_received_at if record.first_received_at is not None else now,
        received_at=now,
        visible_at=now + timeout * MILLISECONDS,
        origin_queue=record.origin_queue,
        enqueued_at=record.enqueued_at,
    )


def change(
    record: Record,
    receipt_id: str,
    timeout: int,
    now: int,
    *,
    ceiling: int | None,
    receipts: Receipts = Receipts.FENCED,
    fifo: bool = False,
    whole_claim: bool = False,
    only_later: bool = False,
    postpones: bool = False,
    counted: bool = True,
    mark: int = 0,
) -> tuple[Outcome, Record]:
    """V4 to V9: the deadline becomes `timeout` seconds from `now`; 0 releases. `receipts`, `fifo`: see `table`.

    V7, S4: "If you attempt to set the VisibilityTimeout to a value greater than the maximum time left, Amazon SQS
    returns an error": `ceiling` is in seconds from the receive that granted the receipt, None for no ceiling.
    `whole_claim`: what was settled one by one before (deleted, released) is no longer part of the claim.
    `only_later`: as a heartbeat asks for it. A deadline that is later already stays, so that it never shortens what its
    body gave longer; and it goes no further than to the ceiling, however long it waited for its turn.
    `postpones`: the holder gives the message back now, and it stays hidden until the deadline. From then on it is no
    part of the claim, and no heartbeat extends it. Its handle still changes or deletes it.
    `counted`: False takes the receive back from the count when the message is given back: its holder did not fail on
    it. The count never falls below 0, and `first_received_at` stays.
    `mark`: the deadline of what is given back lies so many milliseconds earlier. So messages that one commit gives back
    for different reasons have different deadlines, by which the views find the reason of each.
    """
    stands = standing(record, receipt_id, now)
    if whole_claim and _settled(record, stands, receipt_id):
        return Outcome.SETTLED, record
    outcome = table(fifo=fifo, receipts=receipts, whole_claim=whole_claim or only_later)[stands, Verb.CHANGE]
    if outcome is not Outcome.CHANGED:
        return outcome, record
    gives_back = postpones or not timeout
    visible_at = now + timeout * MILLISECONDS - (mark if gives_back else 0)
    granted_at = record.received_at
    latest = visible_at if ceiling is None or granted_at is None else granted_at + ceiling * MILLISECONDS
    if timeout and visible_at > latest:
        if not only_later:
            return Outcome.BEYOND_CEILING, record
        visible_at = latest
    if only_later and deadline(record) >= visible_at:
        return outcome, record
    if stands is Standing.REPLACED:
        # V8, recorded: the deadline changes. Whether the newer receipt has given it back stays what it is.
        return outcome, record._replace(visible_at=visible_at)
    if gives_back and not counted and record.released_at is None:
        record = record._replace(receive_count=max(0, record.receive_count - 1))
    return outcome, record._replace(visible_at=visible_at, released_at=now if gives_back else None)


def delete(
    record: Record, receipt_id: str, now: int, *, whole_claim: bool = False, fifo: bool = False
) -> tuple[Outcome, Record]:
    """V8, V10, V13: deletes what this receipt was the last to get; through any other receipt nothing changes."""
    stands = standing(record, receipt_id, now)
    if whole_claim and _settled(record, stands, receipt_id):
        return Outcome.SETTLED, record
    outcome = table(fifo=fifo)[stands, Verb.DELETE]
    return outcome, record._replace(deleted_at=now) if outcome is Outcome.DELETED else record


def reject(record: Record, receipt_id: str, now: int, mark: int) -> Record | None:
    """What a message records that its holder gives back to send it to the dead-letter queue: what a release records.

    None: the receipt does not hold it, or it is in doubt (see `in_doubt`), and its output table is to be asked first.
    """
    if in_doubt(record) or not is_held(record, receipt_id, now):
        return None
    _, given_back = change(record, receipt_id, 0, now, ceiling=None, whole_claim=True, mark=mark)
    return given_back


def _settled(record: Record, stands: Standing, receipt_id: str) -> bool:
    """Whether a message left its claim by being released or deleted, and not because another receiver deleted it.

    Deleted long ago, its receipt is no longer recorded; then nothing says that it was another's.
    """
    given_back = stands in (Standing.RELEASED, Standing.POSTPONED)
    # Given back under this receipt, and moved to another queue since.
    given_back |= record.moved_to is not None and record.released_at is not None and record.receipt_id == receipt_id
    return given_back or (stands is Standing.DELETED and record.receipt_id in (None, receipt_id))


def lock(record: Record, timeout: int, now: int) -> Record | None:
    """V12: hides a message that nobody holds; it keeps its receive count and no receipt works on it. None: refused.

    S0: "the message immediately becomes invisible (it is locked) for the duration of the timeout". What is in doubt is
    refused, as it keeps its receipt (see `in_doubt`): its output table is to be asked first.
    """
    if status(record, 0, now) in (Status.IN_FLIGHT, Status.DELETED, Status.MOVED):
        return None
    if in_doubt(record):
        return None
    return record._replace(receipt_id=None, attempt_id=None, released_at=None, visible_at=now + timeout * MILLISECONDS)


def same_attempt(record: Record, attempt_id: str, now: int) -> bool:
    """F3: whether a retried receive with this attempt id gets this message again, under the same receipt.

    True for what the earlier attempt still holds; its deadline starts anew (see `restart`).
    """
    if record.attempt_id != attempt_id or record.released_at is not None:
        return False
    return status(record, 0, now) is Status.IN_FLIGHT


def last_receipt(records: Iterable[Record]) -> str | None:
    """F3: the receipt of the claim that an attempt gets again, which holds messages with these records. With late
    changes accepted an attempt may hold two claims; its last one is meant. None: there are no records."""
    return max(records, key=lambda one: one.received_at or 0, default=UNTOUCHED).receipt_id


def is_held(record: Record, receipt_id: str, now: int | None = None) -> bool:
    """Whether a message still belongs to the claim of a receipt: it was neither deleted, given back nor moved, nor did
    another receive or a lock come after it. With `now`: and its deadline has not passed."""
    gone = record.deleted_at is not None or record.moved_to is not None or record.released_at is not None
    if gone or record.receipt_id != receipt_id:
        return False
    return now is None or standing(record, receipt_id, now) is Standing.HELD


def is_postponed(record: Record, now: int) -> bool:
    """Whether a message was given back and is hidden until a deadline that has not passed."""
    return record.receipt_id is not None and standing(record, record.receipt_id, now) is Standing.POSTPONED


def restart(record: Record, timeout: int, now: int) -> Record:
    """F3: the same receipt with the timeout restarted, as if received now for the first time (the ceiling too)."""
    return record._replace(received_at=now, visible_at=now + timeout * MILLISECONDS)


def purge(record: Record, now: int) -> Record:
    """Deleted, and under no receipt: what a purge deletes was not acknowledged, and no receipt restores it."""
    return record._replace(receipt_id=None, attempt_id=None, deleted_at=now)


def restore(record: Record, receipt_id: str, now: int) -> Record | None:
    """The owner's change of mind: what was deleted under this receipt is visible again, and no receipt works on it; and
    so is what nobody holds any more and is in doubt. Its table is to be asked before, see `output_doubts.to_fence`.

    None: neither, or not under this receipt. The counts stay; a message that another queue has is not touched.
    """
    doubtful = in_doubt(record) and deadline(record) <= now
    if record.receipt_id != receipt_id or (record.deleted_at is None and not doubtful):
        return None
    return record._replace(
        receipt_id=None,
        attempt_id=None,
        deleted_at=None,
        released_at=None,
        visible_at=now,
        writing_to=None,
        write_id=None,
    )
