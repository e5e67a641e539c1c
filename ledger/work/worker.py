"""The loop of a worker, and its work on one claim: as a whole, or in parts if the user's function raises.

A culprit is a message for which the function raises when it is tried alone (see `isolation`). A failed message is a
culprit or, if the function names failed messages, a message without a done row. A failed message is released, or parked
if it was received too often (see `redrive.receives_before_parking`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ledger.claim import Claim
from ledger.client.access import Access
from ledger.client.tables import is_spark
from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError, OutputNotWritten
from ledger.output_tables.row_errors import is_of_function, make_row_error, parse_row_error
from ledger.outputs.failures import NO_RESULT, Failures, make_failed_rows
from ledger.outputs.messages import (
    CARRIED,
    HANDLE_COLUMN,
    choose_messages,
    compare_with_claim,
    find_other_messages,
    give_back_each,
)
from ledger.outputs.write import Acknowledgement, retry_lost_races, write_output
from ledger.outputs.writers import Writer, parse_schema_argument, require_declared
from ledger.results import Worked
from ledger.rules import limits as bounds
from ledger.rules import message_id as ids
from ledger.rules import redrive
from ledger.rules.attributes import limits_of, receipts_of
from ledger.rules.visibility import Outcome
from ledger.runtime.progress import Meter
from ledger.runtime.termination import describe_end, ended_by_sigterm, has_jvm_ended
from ledger.store.protocol import RUNS, Action, Grant, Postponed, QueueRecord, count_by_outcome, count_messages
from ledger.work.claim_source import STORED_STATES, ClaimSource, describe_earlier_rows
from ledger.work.isolation import LEAST_WITNESSES, Culprit, EverythingFails, Evidence, Isolation
from ledger.work.tasks import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MESSAGE_ID_COLUMN = CARRIED[0]
STAMP_COLUMNS = ("receipt_id", "claim_version", "worker", "written_at")
MOST_FAILURES_READ = 1_000
MOST_CULPRITS_LOGGED = 20


class ClaimWork:
    def __init__(self, access: Access, work: Work, claim: Claim, evidence: Evidence | None = None) -> None:
        assert claim.grant is not None
        self._evidence = evidence or Evidence()
        self._access, self._work, self._claim, self._grant = access, work, claim, claim.grant
        self._say, self._started = work.say, time.monotonic()
        self._done = self._failed = self._released = self._parked = self._lost = 0
        #: The ids that are in the table of failures.
        self._recorded: set[str] = set()
        self._check: Callable[[], None] = claim.check

    def run(self) -> Worked:
        """Work on the claim, acknowledge it, and return the counts.

        If an error ends the work, the messages that are still held are given back, and the error is raised. Their
        receive counts only if the JVM has ended or the memory ran out. LeaseLost is not raised: the counts include the
        lost messages.
        """
        claim = self._claim
        try:
            self._say(f"claimed {claim.count:,} messages (receipt {claim.receipt_id}, version {claim.version})")
            with claim.heartbeat() as beat:
                self._check = beat.check
                self._compute()
                beats = beat.beats
        except LeaseLost as lost:
            self._say(f"lost the claim, others have its messages: {lost}")
            return Worked(1, self._done, self._failed, claim.count - self._done - self._failed + self._lost)
        except BaseException as error:
            self._give_back(error)
            if isinstance(error, OutputNotWritten):
                raise error.given_back() from error
            raise
        left = "" if not self._failed else f", released {self._released:,}, parked {self._parked:,}"
        left += f", lost {self._lost:,} to others" if self._lost else ""
        self._say(f"deleted {self._done:,}{left} after {time.monotonic() - self._started:.1f} s and {beats} heartbeats")
        return Worked(1, self._done, self._failed, self._lost)

    def _compute(self) -> None:
        try:
            self._attempt(self._grant)
            self._evidence.add((), any_succeeded=True)
        except EverythingFails as everything:
            # Each row's exception was caught on an executor: there is none to raise again.
            raise LedgerError(self._say_everything_fails(everything)) from None
        except Exception as error:
            if not is_of_function(error):
                raise
            try:
                self._isolate(error)
            except EverythingFails as everything:
                self._say_everything_fails(everything)
                # Keep the error's own cause, and leave out EverythingFails, which was reported above.
                raise error from error.__cause__

    def _say_everything_fails(self, everything: EverythingFails) -> str:
        line = (
            f"everything fails alike, so the messages are not the cause: {everything.error.text}. They are given back, "
            "and this receive does not count"
        )
        self._say(line)
        return line

    def _isolate(self, error: Exception) -> None:
        """Search for the culprits, and release or park them. The search settles all other messages."""
        raised = make_row_error(error)
        self._say(f"the function raised {raised.text}: the claim is tried again in halves")
        self._require_rows_as_cause(error)
        culprits = Isolation(self._grant, self._attempt).search(error)
        self._evidence.add(culprits, any_succeeded=len(culprits) < self._grant.count)
        for culprit in culprits[:MOST_CULPRITS_LOGGED]:
            self._say(f"message {_id_of(culprit)} failed: {culprit.error.text}")
        if culprits[MOST_CULPRITS_LOGGED:]:
            self._say(f"{len(culprits) - MOST_CULPRITS_LOGGED:,} more messages failed")
        self._fail(culprits)

    def _require_rows_as_cause(self, error: Exception) -> None:
        """Raise EverythingFails if the function raises like `error` when it is called on no rows."""
        try:
            self._work.function(self._claim.dataframe.limit(0))
        except Exception as without_rows:
            if (raised := make_row_error(without_rows)).is_like(make_row_error(error)):
                raise EverythingFails(raised) from None

    def _attempt(self, grant: Grant) -> None:
        def lost(error: OutputNotWritten) -> None:
            self._say(f"another writer changed the table, the rows are computed again: {make_row_error(error).text}")

        retry_lost_races(lambda: self._attempt_once(grant), lost)

    def _attempt_once(self, grant: Grant) -> None:
        self._check()
        record, frames = self._access.record(), self._access.spark("Queue.work")
        rows, failed = self._split_answer(self._work.function(frames.messages(record, grant)))
        judge = _Judge(self, grant, failed)
        rows, table, reason = self._stamp_rows(rows), self._work.output, self._work.reason
        ending = self._claim.endings.ending
        schema = self._work.schema
        written = write_output(
            self._access, grant, rows, table, judge.decide, ending, reason, parse_schema_argument(schema)
        )
        if written.earlier:
            raise LeaseLost(describe_earlier_rows(written.done))
        self._add_counts(written.done, judge.released, judge.parked, written.changed)

    def _fail(self, culprits: list[Culprit]) -> None:
        """Release or park the culprits in one commit, each for its own reason."""
        if not culprits:
            return
        self._check()
        record, access = self._access.record(), self._access
        runs = pa.concat_tables([culprit.run for culprit in culprits])
        columns = [[_id_of(culprit) for culprit in culprits], [culprit.error.text for culprit in culprits]]
        reasons = pa.table([pa.array(column, pa.string()) for column in columns], [MESSAGE_ID_COLUMN, "reason"])
        released, parked, actions = self.verdict(record, self._grant, runs, reasons)
        with self._claim.endings.ending(runs.select(RUNS.names)):
            limits, receipts = limits_of(record.attributes), receipts_of(record.attributes)
            answers = access.store.apply(record, actions, limits, receipts, access.clock)
        self._add_counts(0, released, parked, sum(count_by_outcome(answer)[Outcome.CHANGED] for answer in answers))

    def _add_counts(self, done: int, released: int, parked: int, changed: int) -> None:
        self._done += done
        self._released, self._parked, self._failed = (
            self._released + released,
            self._parked + parked,
            self._failed + released + parked,
        )
        self._lost += max(0, released + parked - changed)

    def verdict(
        self, record: QueueRecord, grant: Grant, left: pa.Table, reasons: pa.Table | None
    ) -> tuple[int, int, list[Action]]:
        """Decide which failed messages are released and which are parked. Append them to the table of failures.

        Args:
            left: the messages of `grant` that failed (`store.protocol.GRANTED_RUNS`).

        Returns:
            How many messages are released, how many are parked, and the actions that do both.
        """
        most = redrive.receives_before_parking(record.attributes, self._work.maximum_receives)
        is_released = pc.less(left["receive_count"], most) if most else pa.repeat(True, left.num_rows)
        parts = left.filter(is_released), left.filter(pc.invert(is_released))
        if self._work.failures is not None:
            policy = redrive.policy_of(record.attributes)
            is_last = pc.greater_equal(parts[0]["receive_count"], policy.maximum_receives) if policy else None
            verdicts = [(parts[0], "release"), (parts[1], "park")]
            if is_last is not None:
                # Messages with the verdict `dead_letter` are released: the next receive moves them.
                verdicts[:1] = [
                    (parts[0].filter(pc.invert(is_last)), "release"),
                    (parts[0].filter(is_last), "dead_letter"),
                ]
            for part, verdict in verdicts:
                self._record_failures(record, replace(grant, runs=part, order=None), reasons, verdict)
        actions = list[Action]()
        for part, hidden in zip(parts, (0, self._work.park)):
            how = (NO_RESULT, Postponed.PARKED, len(actions))
            actions += give_back_each(record.id, grant, part, hidden, reasons, *how)
        return count_messages(parts[0]), count_messages(parts[1]), actions

    def _record_failures(self, record: QueueRecord, failed: Grant, reasons: pa.Table | None, verdict: str) -> None:
        table = Failures(self._access, self._work.failures)
        for first in range(0, failed.count, MOST_FAILURES_READ):
            chunk = failed.part(first, MOST_FAILURES_READ)
            rows = make_failed_rows(record, chunk, self._access.store.read(record, chunk), reasons, verdict)
            is_new = [message not in self._recorded for message in rows["message_id"].to_pylist()]
            rows = rows.filter(pa.array(is_new, pa.bool_()))
            if rows.num_rows:
                table.append(self._stamp_table(rows), self._claim.receipt_id, self._claim.version)
                self._recorded.update(rows["message_id"].to_pylist())

    def _split_answer(self, answer: Any) -> tuple[DataFrame, DataFrame | None]:
        """Return (done, failed) of the function's answer; failed is None if the answer has only one DataFrame."""
        parts = (answer,) if is_spark(answer) else answer
        if not isinstance(parts, (tuple, list)) or not 1 <= len(parts) <= 2 or not all(map(is_spark, parts)):
            shown = (
                [type(part).__name__ for part in parts] if isinstance(parts, (tuple, list)) else type(parts).__name__
            )
            bound = "It returned this, and must return a DataFrame of Spark's, or two of them: (done, failed)"
            fix = "See Queue.work. A function of pandas frames is given to messages.mapInPandas(function, schema)."
            raise InvalidParameterValue("function", shown, bound, fix)
        required = {MESSAGE_ID_COLUMN} if self._work.reason is None else {MESSAGE_ID_COLUMN, self._work.reason}
        for part, needed in zip(parts, (required, {MESSAGE_ID_COLUMN, "reason"})):
            missing = sorted(needed - set(part.columns))
            if missing:
                which = "as failed" if part is not parts[0] else "as done" if parts[1:] else "as its rows"
                bound = f"It returned a DataFrame with these columns {which}, without {' and '.join(missing)}"
                raise InvalidParameterValue("function", ", ".join(part.columns), bound, "See Queue.work.")
        if parts[1:] and self._work.reason is not None:
            raise InvalidParameterValue(
                "reason", self._work.reason, "The function returned (done, failed), which has its reasons apart"
            )
        return parts[0], parts[1] if parts[1:] else None

    def _make_stamp(self) -> dict[str, Any]:
        now = datetime.now(timezone.utc)
        owner = self._access.store.outputs.owner
        return dict(zip(STAMP_COLUMNS, (self._claim.receipt_id, self._claim.version, owner, now)))

    def _stamp_rows(self, rows: DataFrame) -> DataFrame:
        rows = rows.drop(HANDLE_COLUMN)
        if not self._work.stamped:
            return rows
        _require_no_stamp("function", rows.columns)
        from pyspark.sql import functions as F

        kinds = {"claim_version": "bigint"}
        stamp = [
            (F.lit(value).cast(kinds[name]) if name in kinds else F.lit(value)).alias(name)
            for name, value in self._make_stamp().items()
        ]
        return rows.select("*", *stamp)

    def _stamp_table(self, rows: pa.Table) -> pa.Table:
        kinds = {"claim_version": pa.int64(), "written_at": pa.timestamp("us", "UTC")}
        for name, value in self._make_stamp().items() if self._work.stamped else ():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kinds.get(name, pa.string())), rows.num_rows))
        return rows

    def _give_back(self, why: BaseException) -> None:
        # A message may have exhausted the memory. Other errors that end the work are no message's fault.
        counts = has_jvm_ended(why) or isinstance(why, MemoryError)
        try:
            reason = make_row_error(why).text if is_of_function(why) else describe_end(why)
            messages = self._claim.release(reason, counted=counts).messages
            line = f"gives back {messages:,} messages: {reason}"
        except Exception as error:
            line = f"could not give the claim back, it runs out by {self._claim.deadline}: {error}"
        # The report function may be what failed.
        with contextlib.suppress(Exception):
            self._say(line)

    @property
    def work(self) -> Work:
        return self._work

    def check(self) -> None:
        self._check()


def require_own_columns(work: Work) -> None:
    """Raise InvalidParameterValue if `schema` names a column that the worker itself adds or leaves out."""
    declared = parse_schema_argument(work.schema).declared
    names = [] if declared is None else [str(one["name"]) for one in declared["fields"]]
    if work.stamped:
        _require_no_stamp("schema", names)
    for name in names:
        if name.lower() == HANDLE_COLUMN:
            bound = "A receipt handle ends with its claim, and this column of the function's rows is not written"
            raise InvalidParameterValue("schema", name, bound, "Leave it out, or give the column another name.")


def _require_no_stamp(parameter: str, names: Sequence[str]) -> None:
    for name in names:
        if name.lower() in STAMP_COLUMNS:
            bound = "It is a column that stamped=True adds to each row"
            raise InvalidParameterValue(parameter, name, bound, "Give the column another name, or leave out stamped.")


class _Judge:
    def __init__(self, of: ClaimWork, grant: Grant, failed: DataFrame | None) -> None:
        self._of, self._grant, self._apart = of, grant, failed
        self.released = self.parked = 0

    def decide(self, record: QueueRecord, writer: Writer) -> Acknowledgement:
        """Return the messages to acknowledge, and the actions on the others.

        If the function names failed messages, acknowledge those with a row, and fail all others. Otherwise acknowledge
        the whole part.
        """
        self._of.check()
        grant, reason = self._grant, self._of.work.reason
        # Always called: `choose_messages` raises if a row names no message of the claim.
        done = choose_messages(record, grant, writer, MESSAGE_ID_COLUMN)
        if self._apart is None and reason is None:
            return Acknowledgement(grant.runs.select(RUNS.names))
        if self._apart is None:
            ambiguous = compare_with_claim(done, writer.find_named_failed(MESSAGE_ID_COLUMN, record.id).messages)[0]
            if ambiguous.num_rows:
                raise InvalidParameterValue(
                    "function",
                    reason,
                    f"Of {count_messages(ambiguous):,} messages it returned both a row with a reason and one without",
                    "A message is done or has failed.",
                )
        left = find_other_messages(grant.runs, done)
        if not left.num_rows:
            return Acknowledgement(done)
        reasons = self._read_reasons(writer)
        if self._of.work.per_row and not done.num_rows:
            _require_different(reasons, left)
        self.released, self.parked, actions = self._of.verdict(record, grant, left, reasons)
        return Acknowledgement(done, actions)

    def _read_reasons(self, writer: Writer) -> pa.Table:
        if self._apart is None:
            table = writer.failed(MESSAGE_ID_COLUMN)
            return table.rename_columns([MESSAGE_ID_COLUMN, "reason"])
        # `decide` needs only the reasons: the failed messages are those without a row.
        reasons: pa.Table = self._apart.select(MESSAGE_ID_COLUMN, "reason").toArrow()
        return reasons


def _require_different(reasons: pa.Table, failed: pa.Table) -> None:
    """Raise EverythingFails if all reasons are alike, and are errors of the surroundings or have enough witnesses.

    See `isolation` for both. `failed` has all messages of the part.
    """
    errors = [parse_row_error(text) for text in reasons["reason"].unique().to_pylist() if text is not None]
    if not errors or not all(one.is_like(errors[0]) for one in errors):
        return
    witnesses = count_messages(failed.filter(pc.less_equal(failed["receive_count"], 1)))
    if witnesses >= LEAST_WITNESSES or errors[0].is_of_surroundings:
        raise EverythingFails(errors[0])


def _id_of(culprit: Culprit) -> str:
    run = culprit.run
    return ids.message_id(run["segment"][0].as_py(), run["first_seq"][0].as_py())


#: How long a receive waits for messages.
WAIT_SECONDS = 2.0


class Worker:
    def __init__(self, access: Access, work: Work) -> None:
        require_own_columns(work)
        require_declared(access, work.output, work.schema)
        self._access = access
        self._source = ClaimSource(access, work.visibility_timeout, work.attempt_id, work.say)
        self._work = replace(work, visibility_timeout=self._source.timeout)
        bounds.check_visibility_timeout(work.park, limits_of(access.record().attributes), "park")
        self._evidence = Evidence()

    def run(self) -> Worked:
        self._access.spark("Queue.work")
        worked, once = Worked(0, 0, 0), self._work.until == "once"
        with ended_by_sigterm(), self._open_meter() as meter:
            for attempt_id, held in self._source.attempts():
                most = self._work.max_messages
                most = None if most is None else max(most, held)
                claim = self._source.receive(attempt_id, most, 0 if once else WAIT_SECONDS)
                if claim.count:
                    done = self.work(claim)
                    if done.lost:
                        self._source.part_ways()
                    worked = worked.and_then(done)
                    meter.update(worked.messages, worked.failed)
                if once or (not claim.count and self._work.until != "forever" and not self._source.may_get_more()):
                    return worked
        return worked

    def _open_meter(self) -> Meter:
        counts = self._access.store.counts(self._access.record(), self._access.clock).by_status
        stored = sum(counts.get(status, 0) for status in STORED_STATES)
        return Meter("messages", stored, self._work.say, show=self._work.bar)

    def work(self, claim: Claim) -> Worked:
        return ClaimWork(self._access, self._work, claim, self._evidence).run()
