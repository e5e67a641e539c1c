"""The visibility rules: a message's record, state and retention, the outcome of a verb for it, and release reasons.

The state is not stored: it follows from the record, the message's delay and expiry, and the instant.

V2 to V14, F3, M2 and Q7 are rules of docs/reference/rules.md. S0, S2 and S4 are texts about SQS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ledger.errors import InvalidParameterValue
from ledger.rules.limits import MILLISECONDS
from ledger.rules.text import escape_surrogates


class Record(NamedTuple):
    """The facts about one message, or about several messages that share them. Instants are in milliseconds."""

    receipt_id: str | None = None
    attempt_id: str | None = None
    receive_count: int = 0
    first_received_at: int | None = None
    received_at: int | None = None
    visible_at: int | None = None
    released_at: int | None = None
    deleted_at: int | None = None
    #: The id of the queue that the message was moved from.
    origin_queue: str | None = None
    #: The id of the queue that the message was moved to. The record's own queue no longer has it.
    moved_to: str | None = None
    #: The instant of a move that restarted the message's retention. It replaces `sent_at`.
    enqueued_at: int | None = None
    #: The output table, and the id, of the write that a receiver began (`output_doubts`).
    writing_to: str | None = None
    write_id: str | None = None


UNTOUCHED = Record()


class Hold(NamedTuple):
    receipt_id: str
    received_at: int
    visible_at: int


class Status(str, Enum):
    """The state of a message (Q1). S2's "stored" is VISIBLE, DELAYED or LOCKED."""

    VISIBLE = "visible"
    DELAYED = "delayed"
    LOCKED = "locked"
    IN_FLIGHT = "in flight"
    DELETED = "deleted"
    EXPIRED = "expired"
    MOVED = "moved"


#: The states of messages that a queue no longer has.
GONE = (Status.DELETED, Status.EXPIRED, Status.MOVED)


def status(record: Record, available_at: int, now: int, expires_at: int | None = None) -> Status:
    """Return the state of a message at `now`. A deadline that equals `now` has passed.

    A message expires even if it is held (Q7).
    """
    if record.deleted_at is not None:
        return Status.DELETED
    if record.moved_to is not None:
        return Status.MOVED
    if expires_at is not None and expires_at <= now:
        return Status.EXPIRED
    if record.visible_at is not None and record.visible_at > now:
        return Status.IN_FLIGHT if record.receipt_id is not None else Status.LOCKED
    if available_at > now:
        return Status.DELAYED
    return Status.VISIBLE


def deadline(record: Record) -> int:
    """Return when the last hold or lock of a message ends or ended; -1 if there was none."""
    return -1 if record.visible_at is None else record.visible_at


def hold(record: Record) -> Hold | None:
    """Return the last hold of a message, even if it is over; None if no receipt is on record.

    A lock, a restore and a purge remove the receipt from the record. So does upkeep, some time after a delete.
    """
    if record.receipt_id is None or record.received_at is None or record.visible_at is None:
        return None
    return Hold(record.receipt_id, record.received_at, record.visible_at)


def latest_hold(records: Iterable[Record]) -> Hold | None:
    holds = [one for one in map(hold, records) if one is not None]
    return max(holds, key=lambda one: one.visible_at, default=None)


def is_in_doubt(record: Record) -> bool:
    """Return whether a write of the message's output was begun, and its end is not recorded.

    An invariant: while a message is in doubt, the receipt of the write stays on record, for a restore.
    """
    return record.write_id is not None and record.deleted_at is None and record.moved_to is None


class Retention(NamedTuple):
    """How long a queue keeps a message, in milliseconds from its arrival (Q7).

    Messages that arrived up to `expired_before` stay expired, however long `period` becomes. A change to a longer
    period sets `expired_before`, and so does upkeep before it drops messages.
    """

    period: int
    expired_before: int = -1

    def expired(self, now: int) -> int:
        """Return the latest instant of arrival that has expired at `now`."""
        return max(now - self.period, self.expired_before)

    def ends(self, arrived_at: int) -> int:
        """Return when a message expires: at the latest at `expired_before`, if it arrived up to then."""
        end = arrived_at + self.period
        return min(end, self.expired_before) if arrived_at <= self.expired_before else end

    def changed(self, period: int, now: int) -> Retention:
        return Retention(period, self.expired(now) if period > self.period else self.expired_before)

    def put_back(self, now: int) -> Retention:
        """Return the retention after the repair of a clock that was ahead, and so noted too much as expired.

        Messages that are younger than the period come back, unless upkeep has dropped them.
        """
        return self._replace(expired_before=min(self.expired_before, now - self.period))


def expires_at(record: Record, sent_at: int, retention: Retention) -> int:
    """Return when a message expires (Q7), counted from its arrival.

    The repair of a clock can record an arrival before the send. Then the send counts.
    """
    return retention.ends(max(arrived_at(record, sent_at), sent_at))


def arrived_at(record: Record, sent_at: int) -> int:
    return sent_at if record.enqueued_at is None else record.enqueued_at


#: The most characters of a reason for a release.
LONGEST = 500
#: How many different reasons one commit names, besides FURTHER.
MOST = 100
FURTHER = f"a reason that fewer messages have than the {MOST} that are named"


def clean_reason(given: object) -> str | None:
    """Return a reason as it is stored: one line of at most LONGEST characters. Return None for None or a blank text.

    Raises InvalidParameterValue for a value that is no text.
    """
    if given is not None and not isinstance(given, str):
        raise InvalidParameterValue("reason", type(given).__name__, "Must be a text", "Give str(error), say.")
    text = escape_surrogates(" ".join((given or "").split()))
    return _cut(text) or None


def list_frequent_reasons(reasons: Iterable[object]) -> list[str]:
    """Return the different reasons as they are stored: at most MOST, the most frequent first."""
    counted: Counter[str] = Counter()
    for text, count in Counter(str(reason) for reason in reasons if reason is not None).items():
        reason = clean_reason(text)
        if reason is not None:
            counted[reason] += count
    ordered = sorted(counted, key=lambda reason: (-counted[reason], reason))
    return ordered[:MOST]


def clean_any_reason(given: object) -> str | None:
    return None if given is None else clean_reason(str(given))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


class Standing(Enum):
    """How a receipt relates to its message."""

    UNKNOWN = "nothing is recorded about the message"
    DELETED = "the message is deleted"
    REPLACED = "another receipt came after it"
    SUPERSEDED = "a lock, a restore or a move came after it"
    RELEASED = "given back under this receipt, and not received again"
    POSTPONED = "given back under this receipt, and hidden until a deadline that has not passed"
    LATE = "its deadline has passed, and the message was not received again"
    HELD = "in flight under this receipt"


class Verb(str, Enum):
    CHANGE = "change_visibility"
    DELETE = "delete"


class Outcome(str, Enum):
    """A verb's outcome for one message. Only CHANGED and DELETED mean that something changed."""

    CHANGED = "changed"
    DELETED = "deleted"
    ALREADY_DELETED = "already deleted"
    SETTLED = "settled before"
    STALE = "stale"
    NOT_IN_FLIGHT = "not in flight"
    BEYOND_CEILING = "beyond the ceiling"
    INVALID = "invalid"
    EXPIRED = "the receipt handle has expired"
    #: M2: two actions of one call contradict each other, so neither has an effect. SQS has no rule for this case.
    CONTRADICTED = "contradicted"


class Receipts(str, Enum):
    """The receipts through which a standard queue accepts changes (V8, V9)."""

    FENCED = "only those of a receipt that holds its message, or postponed it"
    LATE = "also those of a receipt whose message nobody received since"
    RECORDED = "also those of a receipt that a later receive replaced"


#: V8, V9, V13: the outcomes on a standard queue by default. An invariant: only a receipt that is HELD, LATE, RELEASED
#: or POSTPONED changes anything.
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
#: V9, LateChange=accept. Recorded: "The recorded service says 200 on standard queues".
LATE_TABLE = {
    **TABLE,
    (Standing.LATE, Verb.CHANGE): Outcome.CHANGED,
    (Standing.RELEASED, Verb.CHANGE): Outcome.CHANGED,
}
#: V8, Receipts=recorded: "The recorded service lets the change through". The deadline changes, and the message keeps
#: the newer receipt.
RECORDED_TABLE = {**LATE_TABLE, (Standing.REPLACED, Verb.CHANGE): Outcome.CHANGED}
#: V10, FIFO queues. Recorded: "Reason: The receipt handle has expired." After the deadline the group may have another
#: receiver.
FIFO_TABLE = {
    **TABLE,
    (Standing.LATE, Verb.DELETE): Outcome.EXPIRED,
    (Standing.RELEASED, Verb.DELETE): Outcome.EXPIRED,
}
_STANDARD = {Receipts.FENCED: TABLE, Receipts.LATE: LATE_TABLE, Receipts.RECORDED: RECORDED_TABLE}


def choose_table(
    *, fifo: bool, receipts: Receipts = Receipts.FENCED, whole_claim: bool = False
) -> dict[tuple[Standing, Verb], Outcome]:
    """Return the table of outcomes of a queue.

    A verb on a whole claim never changes another receiver's message.
    """
    if fifo:
        return FIFO_TABLE
    return _STANDARD[Receipts.LATE if whole_claim and receipts is Receipts.RECORDED else receipts]


def find_standing(record: Record, receipt_id: str, now: int) -> Standing:
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
    """Return the record after a receive of a visible message (V2, V3, V14)."""
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
    """Set the deadline to `timeout` seconds from `now` (V4 to V9). A timeout of 0 releases the message.

    Args:
        ceiling: The latest deadline, in seconds from the receive. V7, S4: "If you attempt to set the VisibilityTimeout
            to a value greater than the maximum time left, Amazon SQS returns an error".
        whole_claim: True for a verb on a whole claim. A message that left the claim before has the outcome SETTLED.
        only_later: True for heartbeats, which never shorten a deadline. The ceiling bounds their deadline without an
            error.
        postpones: True for a release of a message that stays hidden until the deadline, while its handle still works.
        counted: False if a release takes its receive back from the receive count. A second release takes nothing back.
        mark: A release's deadline is this many milliseconds earlier, by which the views find the release's reason.

    Returns:
        The outcome, and the record, which is unchanged unless the outcome is CHANGED.
    """
    relation = find_standing(record, receipt_id, now)
    if whole_claim and _has_left_claim(record, relation, receipt_id):
        return Outcome.SETTLED, record
    outcome = choose_table(fifo=fifo, receipts=receipts, whole_claim=whole_claim or only_later)[relation, Verb.CHANGE]
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
    if relation is Standing.REPLACED:
        # A release under the newer receipt stays on record.
        return outcome, record._replace(visible_at=visible_at)
    if gives_back and not counted and record.released_at is None:
        record = record._replace(receive_count=max(0, record.receive_count - 1))
    return outcome, record._replace(visible_at=visible_at, released_at=now if gives_back else None)


def delete(
    record: Record, receipt_id: str, now: int, *, whole_claim: bool = False, fifo: bool = False
) -> tuple[Outcome, Record]:
    """Delete a message through its last receipt (V8, V10, V13), on a FIFO queue only before the deadline."""
    relation = find_standing(record, receipt_id, now)
    if whole_claim and _has_left_claim(record, relation, receipt_id):
        return Outcome.SETTLED, record
    outcome = choose_table(fifo=fifo)[relation, Verb.DELETE]
    return outcome, record._replace(deleted_at=now) if outcome is Outcome.DELETED else record


def reject(record: Record, receipt_id: str, now: int, mark: int) -> Record | None:
    """Return the record of a message that its holder releases into the dead-letter queue.

    Return None if the receipt does not hold the message, or if the message is in doubt.
    """
    if is_in_doubt(record) or not is_held(record, receipt_id, now):
        return None
    _, given_back = change(record, receipt_id, 0, now, ceiling=None, whole_claim=True, mark=mark)
    return given_back


def _has_left_claim(record: Record, relation: Standing, receipt_id: str) -> bool:
    """Return whether a message left its claim by its holder's release or delete.

    After a purge, and long after a delete, no receipt is recorded. Such a message counts as deleted through this claim.
    """
    given_back = relation in (Standing.RELEASED, Standing.POSTPONED)
    given_back |= record.moved_to is not None and record.released_at is not None and record.receipt_id == receipt_id
    return given_back or (relation is Standing.DELETED and record.receipt_id in (None, receipt_id))


def lock(record: Record, timeout: int, now: int) -> Record | None:
    """Hide a message that nobody holds (V12). Return None if the lock is refused.

    S0: "the message immediately becomes invisible (it is locked) for the duration of the timeout".
    """
    if status(record, 0, now) in (Status.IN_FLIGHT, Status.DELETED, Status.MOVED):
        return None
    if is_in_doubt(record):
        return None
    return record._replace(receipt_id=None, attempt_id=None, released_at=None, visible_at=now + timeout * MILLISECONDS)


def is_same_attempt(record: Record, attempt_id: str, now: int) -> bool:
    """Return whether a repeated receive with this attempt id gets the message again (F3)."""
    if record.attempt_id != attempt_id or record.released_at is not None:
        return False
    return status(record, 0, now) is Status.IN_FLIGHT


def last_receipt(records: Iterable[Record]) -> str | None:
    """Return the receipt of the claim that a repeated attempt gets (F3).

    If late changes are accepted, an attempt may hold two claims. The claim that was received last counts.
    """
    return max(records, key=lambda one: one.received_at or 0, default=UNTOUCHED).receipt_id


def is_held(record: Record, receipt_id: str, now: int | None = None) -> bool:
    """Return whether a message still belongs to a receipt's claim and, given `now`, its deadline has not passed."""
    gone = record.deleted_at is not None or record.moved_to is not None or record.released_at is not None
    if gone or record.receipt_id != receipt_id:
        return False
    return now is None or find_standing(record, receipt_id, now) is Standing.HELD


def is_postponed(record: Record, now: int) -> bool:
    return record.receipt_id is not None and find_standing(record, record.receipt_id, now) is Standing.POSTPONED


def restart(record: Record, timeout: int, now: int) -> Record:
    """Count the timeout and the ceiling from `now`, under the same receipt (F3)."""
    return record._replace(received_at=now, visible_at=now + timeout * MILLISECONDS)


def purge(record: Record, now: int) -> Record:
    return record._replace(receipt_id=None, attempt_id=None, deleted_at=now)


def restore(record: Record, receipt_id: str, now: int) -> Record | None:
    """Undo a delete under this receipt, or end a doubt after the deadline; None for any other message.

    If a write was begun for the message, its output table must be asked first: see `output_doubts.must_fence`.
    """
    doubtful = is_in_doubt(record) and deadline(record) <= now
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
