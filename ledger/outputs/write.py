"""The write of a claim's rows to an output table, and the acknowledgement of its messages.

Rows and acknowledgement take effect as one (see `rules.output_doubts`). Messages are given as RUNS.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from ledger.client.access import Access
from ledger.client.tables import is_spark
from ledger.delta_log.protocol import reason
from ledger.errors import InvalidParameterValue, LeaseLost, OutputNotWritten, OutputUnreadable
from ledger.output_tables.row_errors import is_lost_race
from ledger.outputs.messages import choose_all_but, choose_messages, find_id_column, give_back_each
from ledger.outputs.targets import not_written
from ledger.outputs.writers import Writer, make_writer
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules import output_doubts
from ledger.rules.output_columns import NOTHING_ASKED, ColumnsAsked
from ledger.rules.visibility import Outcome
from ledger.store.protocol import Action, Grant, OutputWrites, QueueRecord, count_by_outcome, count_messages

if TYPE_CHECKING:
    from ledger.clock import Clock


class Acknowledgement(NamedTuple):
    """The messages that a write acknowledges with its rows, and its actions on other messages of the claim."""

    done: pa.Table
    beside: Sequence[Action] = ()


Answer = TypeVar("Answer")
RACES = 3


def retry_lost_races(
    write: Callable[[], Answer], on_lost_race: Callable[[OutputNotWritten], None] = lambda error: None
) -> Answer:
    """Call `write` again after a lost race, at most RACES times in all."""
    for _ in range(RACES - 1):
        try:
            return write()
        except OutputNotWritten as error:
            if not is_lost_race(error):
                raise
            on_lost_race(error)
    return write()


class WrittenOutput(NamedTuple):
    """How many messages were acknowledged with rows, and how many others were changed.

    `earlier`: an earlier call under the same receipt wrote the rows, and this call's rows are not in the table.
    """

    done: int
    changed: int
    earlier: bool = False


def make_decider(
    grant: Grant, messages: Any, failed: Any, timeout: int
) -> Callable[[QueueRecord, Writer], Acknowledgement]:
    """Return the function that decides what becomes of the messages, by the arguments of Claim.write."""
    if messages is not None and failed is not None:
        raise InvalidParameterValue(
            "failed", "and messages", "One names what is acknowledged, the other what is not", "Give one of them."
        )
    if timeout and failed is None:
        raise InvalidParameterValue(
            "visibility_timeout", timeout, "It is for failed messages, and none are named", "Give failed=, too."
        )

    def decide(record: QueueRecord, writer: Writer) -> Acknowledgement:
        bounds.check_visibility_timeout(timeout, attribute_rules.limits_of(record.attributes))
        if failed is None:
            return Acknowledgement(choose_messages(record, grant, writer, messages))
        done, exceptions = choose_all_but(record, grant, writer, failed)
        if not exceptions.num_rows:
            return Acknowledgement(done)
        why = writer.failed(find_id_column(writer)) if isinstance(failed, str) else None
        return Acknowledgement(done, give_back_each(record.id, grant, exceptions, timeout, why))

    return decide


def write_output(
    access: Access,
    grant: Grant,
    rows: Any,
    table: object,
    decide: Callable[[QueueRecord, Writer], Acknowledgement],
    open_ending: Callable[[pa.Table], contextlib.AbstractContextManager[Any]],
    failed: str | None = None,
    asked: ColumnsAsked = NOTHING_ASKED,
) -> WrittenOutput:
    """Write `rows` to `table`, and acknowledge the messages that `decide` returns as done. See Claim.write.

    Args:
        grant: the claim, or a part of it.
        decide: is called after the rows are computed.
        open_ending: takes the messages that are acknowledged or released, and returns the context for the write.
        failed: a column of the rows, or None. Rows with a value in this column are not written.
    """
    record, writer = access.record(), make_writer(access, rows, table, failed, asked)
    access.store.outputs.require_writable()
    with access.named_jobs("write", grant.receipt_id), writer.evaluated():
        if is_spark(rows) and access.frames is not None:
            # A file of messages that was missing while the rows were computed is still missing now.
            access.frames.require_readable(record, grant, rows.sparkSession)
        done, beside = decide(record, writer)
        if done.num_rows:
            access.store.require_messages(record, grant, done)
        ended = pa.concat_tables([done, *(action.runs for action in beside if action.ends)])
        with open_ending(ended) if ended.num_rows else contextlib.nullcontext():
            changed, earlier = _write_if_done(access, record, grant.receipt_id, writer, table, done, beside)
    return WrittenOutput(count_messages(done), changed, earlier)


def _write_if_done(
    access: Access,
    record: QueueRecord,
    receipt_id: str,
    writer: Writer,
    table: object,
    done: pa.Table,
    beside: Sequence[Action],
) -> tuple[int, bool]:
    """Return how many messages `beside` changed, and whether an earlier call wrote the rows for `done`."""
    if done.num_rows:
        outputs = access.store.outputs
        location = writer.make(lambda: outputs.require_held(record, receipt_id, done, access.clock)).text
        with not_written(table):
            table_id = writer.table_id(location)
        changed = _write(
            access.store.outputs, record, receipt_id, writer, done, location, table_id, access.clock, beside
        )
        if changed is not None:
            return changed, False
    else:
        # Make the table all the same, for its readers, if the rows allow it.
        with contextlib.suppress(OutputNotWritten):
            writer.make(lambda: None)
    limits, receipts = attribute_rules.limits_of(record.attributes), attribute_rules.receipts_of(record.attributes)
    answers = access.store.apply(record, beside, limits, receipts, access.clock) if beside else []
    changed = sum(count_by_outcome(answer)[Outcome.CHANGED] for answer in answers)
    return changed, done.num_rows > 0


def _write(
    outputs: OutputWrites,
    record: QueueRecord,
    receipt_id: str,
    writer: Writer,
    runs: pa.Table,
    location: str,
    table_id: str,
    clock: Clock,
    beside: Sequence[Action],
) -> int | None:
    """Return how many messages `beside` changed, or None if an earlier call wrote the rows for all of `runs`."""
    identifier = outputs.begin(record, receipt_id, runs, location, table_id, clock)
    if identifier is None:
        return None
    outputs.step("begun")
    metadata = {"queue": record.name, "receipt_id": receipt_id, "write_id": identifier, "owner": outputs.owner}
    failure = _try_write(writer, location, identifier, metadata)
    outputs.step("written")
    if failure is not None:
        # A write that raised an error may have committed all the same.
        try:
            fenced = outputs.is_fenced(location, identifier)
            written = outputs.confirm_or_fence(location, identifier)
        except OutputUnreadable as unreadable:
            if isinstance(failure, _OutcomeUnknown):
                raise
            both_reasons = f"{unreadable.reason}; the write itself failed: {reason(failure)}"
            raise OutputUnreadable(location, both_reasons, unreadable.gone) from failure
        writer.ended(written=written)
        if not written:
            outputs.undo(record, runs, identifier, clock)
            if not fenced and not isinstance(failure, _OutcomeUnknown):
                raise writer.make_error(location, failure) from failure
            raise LeaseLost(
                f"The claim {receipt_id} was lost before its output was written: others receive the messages, or "
                "another call of write took this call's place, and nothing of this write is in the table. Receive "
                "again; keep a claim with a longer timeout or a heartbeat"
            )
    return outputs.finish(record, runs, identifier, clock, beside)


class _OutcomeUnknown(Exception):
    """The write raised no error, but the writer does not know whether the rows are in the table."""


def _try_write(writer: Writer, location: str, identifier: str, metadata: Mapping[str, Any]) -> Exception | None:
    """Write the rows. Return None if they are certainly in the table, or an error after which they may be in."""
    try:
        if not writer.write(location, output_doubts.application(identifier), metadata):
            return _OutcomeUnknown()
    except Exception as error:
        return error
    return None
