"""The loop of a worker: claim, run the function, write, acknowledge, under a heartbeat; until nothing is left to do."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ledger import receiving
from ledger.access import Access
from ledger.claim import Claim
from ledger.errors import InvalidParameterValue, LeaseLost
from ledger.output import Decision, given_back, write_output
from ledger.output_failures import NO_RESULT, Failures, failed_messages
from ledger.output_messages import CARRIED, messages_of
from ledger.output_writers import Writer
from ledger.results import Worked
from ledger.rules import limits as bounds
from ledger.rules.attempts import LONGEST, claim_number, shortened
from ledger.rules.attributes import limits_of
from ledger.rules.limits import MILLISECONDS
from ledger.rules.reasons import summary
from ledger.rules.state import Status
from ledger.store import RUNS, QueueRecord, count_messages
from ledger.tabular import is_spark
from ledger.termination import ended_by_sigterm, why_ended

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("ledger.work")
#: An attempt's claims have numbers behind it.
LONGEST_ATTEMPT = LONGEST - len("/1000000000")
#: How long a receive waits for messages before the worker looks whether any may come, in seconds.
WAIT = 2.0
#: The states of messages that somebody may receive, now or soon.
STORED = (Status.VISIBLE, Status.DELAYED, Status.LOCKED)
UNTIL = ("empty", "once", "forever")
NAMES_MESSAGES = CARRIED[0]


@dataclass(frozen=True)
class Work:
    """What a worker is told; as in Queue.work."""

    function: Callable[[DataFrame], Any]
    output: Any
    failures: Any = None
    reason: str | None = None
    max_messages: int | None = None
    visibility_timeout: int | None = None
    attempt_id: str | None = None
    until: str = "empty"
    maximum_receives: int = 3
    park: int = 3_600
    stamped: bool = False
    say: Callable[[str], None] = log.info

    def __post_init__(self) -> None:
        for name, given in (("function", self.function), ("report", self.say)):
            if not callable(given):
                raise InvalidParameterValue(name, type(given).__name__, "Must be a function")
        if self.failures is not None and str(self.failures) == str(self.output):
            raise InvalidParameterValue(
                "failures", str(self.failures), "It is the output table", "Name another table for what failed."
            )
        if self.until not in UNTIL:
            raise InvalidParameterValue("until", self.until, f"Must be one of {', '.join(UNTIL)}")
        if type(self.maximum_receives) is not int or self.maximum_receives < 1:
            raise InvalidParameterValue("maximum_receives", self.maximum_receives, "Must be a number from 1 on")


class Worker:
    """Works through claims of one queue."""

    def __init__(self, access: Access, work: Work) -> None:
        record = access.record()
        timeout = work.visibility_timeout
        timeout = int(record.attributes["VisibilityTimeout"]) if timeout is None else timeout
        self._access, self._work, self._timeout = access, replace(work, visibility_timeout=timeout), timeout
        self._owner = access.store.outputs.owner
        if not timeout:
            raise InvalidParameterValue(
                "visibility_timeout", timeout, "A claim that is held for no time cannot be worked on"
            )
        bounds.visibility_timeout(work.park, limits_of(record.attributes), "park")
        self.say = work.say

    def run(self) -> Worked:
        """Works until there is nothing left, as `Work.until` says."""
        self._access.spark("Queue.work")
        worked = Worked(0, 0, 0)
        with ended_by_sigterm():
            for attempt_id, most in self.attempts():
                claim = self.receive(attempt_id, most)
                if claim.count:
                    worked = worked.and_then(self.work(claim))
                if self._work.until == "once" or (
                    not claim.count and self._work.until != "forever" and not self.may_get_more()
                ):
                    return worked
        return worked

    def attempts(self) -> Iterator[tuple[str | None, int | None]]:
        """For each receive, the attempt id and the most messages: first what a failed run of this attempt still holds,
        then new work under numbers that no earlier claim has."""
        if not self._work.attempt_id:
            yield from itertools.repeat((None, self._work.max_messages))
        attempt, most = shortened(str(self._work.attempt_id), LONGEST_ATTEMPT), self._work.max_messages
        held = self._held(attempt)
        soon = self._soon()
        for number, (messages, visible_at) in sorted(held.items()):
            # A run beats within its timeout: what is hidden for longer it had parked, and was done with.
            if visible_at <= soon:
                self.say(f"carries on with {messages:,} messages that a failed run of {attempt} holds")
                yield f"{attempt}/{number}", None if most is None else max(most, messages)
        for number in itertools.count(max(held, default=-1) + 1):
            yield f"{attempt}/{number}", most

    def receive(self, attempt_id: str | None, most: int | None) -> Claim:
        """The next claim; an empty one after a moment without messages."""
        wait = 0 if self._work.until == "once" else WAIT
        return receiving.receive(self._access, most, self._timeout, wait, attempt_id)

    def may_get_more(self) -> bool:
        """Whether there are messages, or a lease ends within the visibility timeout: its holder beats in time, or is
        dead and leaves work."""
        record, clock = self._access.record(), self._access.clock
        counted = self._access.store.counts(record, clock).by_status
        if any(counted.get(status, 0) for status in STORED):
            return True
        return any(lease.visible_at <= self._soon() for lease in self._access.store.leases(record, clock))

    def work(self, claim: Claim) -> Worked:
        """Works on a claim and acknowledges it. Whatever goes wrong, what is still held is given back at once."""
        started = time.monotonic()
        try:
            self.say(f"claimed {claim.count:,} messages (receipt {claim.receipt_id}, version {claim.version})")
            with claim.heartbeat() as beat:
                rows, failed = self._answered(self._work.function(claim.dataframe))
                judge = _Judge(self, claim, failed, beat.check)
                assert claim.grant is not None
                rows, table, reason = self._stamped(claim, rows), self._work.output, self._work.reason
                done, changed = write_output(
                    self._access, claim.grant, rows, table, judge.decide, claim.endings.ending, reason
                )
                beats = beat.beats
        except LeaseLost as lost:
            self.say(f"lost the claim, others do its messages: {lost}")
            return Worked(1, 0, 0, claim.count)
        except BaseException as error:
            self._give_back(claim, error)
            raise
        left = "" if not judge.failed else f", released {judge.released:,}, parked {judge.parked:,}"
        lost_to_others = judge.failed - changed
        left += f", lost {lost_to_others:,} to others" if lost_to_others > 0 else ""
        self.say(f"deleted {done:,}{left} after {time.monotonic() - started:.1f} s and {beats} heartbeats")
        return Worked(1, done, judge.failed, max(0, lost_to_others))

    def judged(self, claim: Claim, left: pa.Table, reasons: pa.Table | None) -> tuple[pa.Table, pa.Table]:
        """What of messages without a row is released, and what is parked, both as runs; tells why in the table of
        failures."""
        released = pc.less(left["receive_count"], self._work.maximum_receives)
        parts = left.filter(released), left.filter(pc.invert(released))
        if self._work.failures is not None:
            rows = [
                failed_messages(self._access.record(), claim.grant, part, reasons, verdict)
                for part, verdict in zip(parts, ("release", "park"))
            ]
            Failures(self._access, self._work.failures).append(
                self._with_stamp(pa.concat_tables(rows), claim), claim.receipt_id, claim.version
            )
        return parts

    @property
    def park(self) -> int:
        """How many seconds a parked message stays hidden."""
        return self._work.park

    @property
    def reason(self) -> str | None:
        """The column that says why a message failed."""
        return self._work.reason

    @property
    def acknowledges_all(self) -> bool:
        """Whether a function that returns one frame, without a column of reasons, is done with the whole claim."""
        return self._work.reason is None

    def _answered(self, answer: Any) -> tuple[DataFrame, DataFrame | None]:
        """(done, failed) of what the function returned; failed is None when it returned one DataFrame."""
        parts = (answer,) if is_spark(answer) else answer
        if not isinstance(parts, (tuple, list)) or not 1 <= len(parts) <= 2 or not all(map(is_spark, parts)):
            shown = (
                [type(part).__name__ for part in parts] if isinstance(parts, (tuple, list)) else type(parts).__name__
            )
            bound = "It returned this, and must return a DataFrame, or two of them: (done, failed)"
            raise InvalidParameterValue("function", shown, bound, "See Queue.work.")
        asked = {NAMES_MESSAGES} if self._work.reason is None else {NAMES_MESSAGES, self._work.reason}
        for part, needed in zip(parts, (asked, {NAMES_MESSAGES, "reason"})):
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

    def _stamp(self, claim: Claim) -> dict[str, Any]:
        """Under which claim a row was written, and by whom."""
        now = datetime.now(timezone.utc)
        stamp = {"receipt_id": claim.receipt_id, "claim_version": claim.version, "worker": self._owner}
        return {**stamp, "written_at": now}

    def _stamped(self, claim: Claim, rows: DataFrame) -> DataFrame:
        rows = rows.drop("receipt_handle")
        if not self._work.stamped:
            return rows
        from pyspark.sql import functions as F

        kinds = {"claim_version": "bigint"}
        stamp = [
            (F.lit(value).cast(kinds[name]) if name in kinds else F.lit(value)).alias(name)
            for name, value in self._stamp(claim).items()
        ]
        return rows.select("*", *stamp)

    def _with_stamp(self, rows: pa.Table, claim: Claim) -> pa.Table:
        kinds = {"claim_version": pa.int64(), "written_at": pa.timestamp("us", "UTC")}
        for name, value in self._stamp(claim).items() if self._work.stamped else ():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kinds.get(name, pa.string())), rows.num_rows))
        return rows

    def _held(self, attempt: str) -> Mapping[int, tuple[int, int]]:
        """By the number of their claims: how many messages are in flight under an attempt, and their first deadline."""
        held: dict[int, tuple[int, int]] = {}
        for lease in self._access.store.leases(self._access.record(), self._access.clock):
            number = claim_number(attempt, lease.attempt_id)
            if number is not None:
                messages, visible_at = held.get(number, (0, lease.visible_at))
                held[number] = messages + lease.messages, min(visible_at, lease.visible_at)
        return held

    def _soon(self) -> int:
        return self._access.clock() + self._timeout * MILLISECONDS

    def _give_back(self, claim: Claim, why: BaseException) -> None:
        try:
            said = why_ended(why)
            done = f"gives back {claim.release(said).messages:,} messages: {said}"
        except Exception as error:
            done = f"could not give the claim back, it runs out by {claim.deadline}: {error}"
        # It may be the report that went wrong.
        with contextlib.suppress(Exception):
            self.say(done)


class _Judge:
    """Decides, once the rows of a claim are computed, what becomes of its messages."""

    def __init__(self, worker: Worker, claim: Claim, failed: DataFrame | None, check: Callable[[], None]) -> None:
        self._worker, self._claim, self._apart, self._check = worker, claim, failed, check
        self.failed = self.released = self.parked = 0

    def decide(self, record: QueueRecord, writer: Writer) -> Decision:
        """What has a row is done; if the function tells what failed, all else has failed."""
        from ledger.store.delta.dataframes.named_messages import of_claim, others_of_claim

        self._check()
        grant = self._claim.grant
        assert grant is not None
        # Each row names a message of the claim.
        done = messages_of(record, grant, writer, NAMES_MESSAGES)
        if self._apart is None and self._worker.acknowledges_all:
            return Decision(grant.runs.select(RUNS.names))
        if self._apart is None:
            both = of_claim(done, writer.named_failed(NAMES_MESSAGES, record.id).messages)[0]
            if both.num_rows:
                raise InvalidParameterValue(
                    "function",
                    self._worker.reason,
                    f"Of {count_messages(both):,} messages it returned both a row with a reason and one without",
                    "A message is done or has failed.",
                )
        left = others_of_claim(grant.runs, done)
        self.failed = count_messages(left)
        if not self.failed:
            return Decision(done)
        released, parked = self._worker.judged(self._claim, left, reasons := self._reasons(writer))
        self.released, self.parked = count_messages(released), count_messages(parked)
        why = summary(reasons["reason"].to_pylist()) or NO_RESULT
        parts = ((released, 0), (parked, self._worker.park))
        return Decision(done, [given_back(grant, runs, hidden, why) for runs, hidden in parts if runs.num_rows])

    def _reasons(self, writer: Writer) -> pa.Table:
        if self._apart is None:
            table = writer.failed(NAMES_MESSAGES)
            return table.rename_columns([NAMES_MESSAGES, "reason"])
        # Only now, and only for the reasons: which messages failed is decided.
        found: pa.Table = self._apart.select(NAMES_MESSAGES, "reason").toArrow()
        return found
