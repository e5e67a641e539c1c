"""What a worker does with one claim: run the function, write, acknowledge; all under a heartbeat."""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.results import append_once
from ledger.errors import InvalidParameterValue, LeaseLost
from ledger.rules.attempts import LONGEST, shortened
from ledger.store.delta.dataframes.evaluated import evaluated_once
from ledger.tabular import is_spark

if TYPE_CHECKING:
    from ledger.claim import Claim
    from ledger.ledger import Ledger
    from ledger.queue import Queue

#: An attempt's claims have numbers behind it.
LONGEST_ATTEMPT = LONGEST - len("/1000000000")
NO_RESULT = "the function returned neither a result nor a reason"


class Worker:
    """Works through claims of one queue; `options` are the arguments of jobs/work.py."""

    def __init__(
        self, ledger: Ledger, queue: Queue, function: Callable[[DataFrame], Any], options: argparse.Namespace
    ) -> None:
        self._ledger, self._queue, self._function, self._options = ledger, queue, function, options
        self._name = options.owner or f"worker {os.getpid()}"
        self._timeout = options.visibility_timeout or int(queue.attributes()["VisibilityTimeout"])
        self._output = options.output
        self._failed = options.failed or options.output.rstrip("/") + "_failed"

    def say(self, what: str) -> None:
        """A line in the log."""
        print(f"{datetime.now():%H:%M:%S} {self._name} {what}", flush=True)

    def attempts(self) -> Iterator[tuple[str | None, int | None]]:
        """For each receive, the attempt id and the most messages: first what a failed run of this attempt still holds,
        then new work under numbers that no earlier claim has."""
        if not self._options.attempt_id:
            yield from itertools.repeat((None, self._options.claim))
        attempt, most = shortened(self._options.attempt_id, LONGEST_ATTEMPT), self._options.claim
        held = self._held(attempt)
        soon = datetime.now(timezone.utc) + timedelta(seconds=self._timeout)
        for number, (messages, deadline) in sorted(held.items()):
            # A run beats within its timeout: what is hidden for longer it had parked, and was done with.
            if deadline <= soon:
                self.say(f"carries on with {messages:,} messages that a failed run of {attempt} holds")
                yield f"{attempt}/{number}", None if most is None else max(most, messages)
        for number in itertools.count(max(held, default=-1) + 1):
            yield f"{attempt}/{number}", most

    def receive(self, attempt_id: str | None, most: int | None) -> Claim:
        """The next claim; an empty one after a few seconds without messages."""
        wait = 0 if self._options.once else 2
        return self._queue.receive(most, self._timeout, wait=wait, attempt_id=attempt_id)

    def may_get_more(self) -> bool:
        """Whether a lease ends within the visibility timeout: its holder beats in time, or is dead and leaves work."""
        soon = datetime.now(timezone.utc) + timedelta(seconds=self._timeout)
        held = self._ledger.view("in_flight").where(
            (F.col("queue") == self._queue.name) & (F.col("earliest_deadline") <= soon)
        )
        counts = self._queue.counts()
        return counts.visible + counts.delayed + counts.locked > 0 or not held.isEmpty()

    def _held(self, attempt: str) -> dict[int, tuple[int, datetime]]:
        """By the number of their claims: how many messages are in flight under an attempt, and their first deadline."""
        prefix = f"{attempt}/"
        in_flight = self._ledger.view("in_flight").where(
            (F.col("queue") == self._queue.name) & F.col("attempt_id").startswith(prefix)
        )
        seconds = F.unix_micros("earliest_deadline") / 1_000_000
        rows = in_flight.select("attempt_id", "messages", seconds.alias("deadline")).collect()
        return {
            int(row.attempt_id.removeprefix(prefix)): (
                row.messages, datetime.fromtimestamp(row.deadline, timezone.utc),
            )
            for row in rows
            if row.attempt_id.removeprefix(prefix).isdecimal()
        }  # fmt: skip

    def work(self, claim: Claim) -> None:
        """Works on a claim and acknowledges it. Whatever goes wrong, what is still held is given back at once."""
        started = time.monotonic()
        self.say(f"claimed {claim.count:,} messages (receipt {claim.receipt_id}, version {claim.version})")
        try:
            with claim.heartbeat() as beat:
                answer = self._function(claim.dataframe)
                done, failed = self._answered(answer)
                # Computed once: what is written, acknowledged and judged are the same rows.
                with evaluated_once(done.drop("receipt_handle").select("*", *self._stamp(claim))) as done:
                    rows = done.count()
                    beat.check()
                    if failed is None:
                        outcome = f"wrote {rows:,} rows for {claim.write(done, self._output).messages:,} messages"
                    else:
                        outcome = f"wrote {rows:,} rows, {self._settle(claim, done, failed)}"
            self.say(f"{outcome} after {time.monotonic() - started:.1f} s and {beat.beats} heartbeats")
        except LeaseLost as lost:
            self.say(f"lost the claim, others do its messages: {lost}")
        except BaseException:
            self._give_back(claim)
            raise

    def _answered(self, answer: Any) -> tuple[DataFrame, DataFrame | None]:
        """(done, failed) of what the function returned; failed is None when it returned one DataFrame."""
        parts = (answer,) if isinstance(answer, DataFrame) else answer
        if not isinstance(parts, (tuple, list)) or not 1 <= len(parts) <= 2 or not all(map(is_spark, parts)):
            shown = (
                [type(part).__name__ for part in parts] if isinstance(parts, (tuple, list)) else type(parts).__name__
            )
            bound = "It returned this, and must return a DataFrame, or two of them: (done, failed)"
            raise InvalidParameterValue("--function", shown, bound, "See jobs/work.py --help.")
        for part, needed in zip(parts, ({"message_id"}, {"message_id", "reason"})):
            missing = sorted(needed - set(part.columns))
            if missing:
                bound = f"It returned a DataFrame with these columns, without {' and '.join(missing)}"
                raise InvalidParameterValue("--function", part.columns, bound, "See jobs/work.py --help.")
        return parts[0], parts[1] if parts[1:] else None

    def _stamp(self, claim: Claim) -> list[Column]:
        """Under which claim a row was written, and by whom."""
        values = {
            "receipt_id": F.lit(claim.receipt_id),
            "claim_version": F.lit(claim.version).cast("bigint"),
            "worker": F.lit(self._name),
            "written_at": F.lit(datetime.now(timezone.utc)),
        }
        return [value.alias(name) for name, value in values.items()]

    def _settle(self, claim: Claim, done: DataFrame, failed: DataFrame) -> str:
        """Writes what is done and acknowledges it, as one; then gives back or parks the rest."""
        written = claim.write(done, self._output, messages="message_id").messages
        with evaluated_once(self._judged(claim, done, failed)) as messages:
            return f"deleted {written:,}{self._leave(claim, messages)}"

    def _leave(self, claim: Claim, messages: DataFrame) -> str:
        """Gives back or parks what has no row, with its reason; in words."""
        left = messages.where("verdict <> 'delete'")
        if left.isEmpty():
            return ""
        rows = left.select("message_id", "reason", "verdict", "receive_count", "receipt_handle", *self._stamp(claim))
        append_once(rows, self._failed, f"claim/{claim.receipt_id}", claim.version)
        outcomes = claim.settle(
            release=messages.where("verdict = 'release'"), extend=messages.where("verdict = 'park'"),
            visibility_timeout=self._options.park,
        )  # fmt: skip
        counted = {
            (row.action, row.outcome): row["count"] for row in outcomes.groupBy("action", "outcome").count().collect()
        }
        released, parked = counted.pop(("release", "changed"), 0), counted.pop(("extend", "changed"), 0)
        lost = sum(counted.values())
        given_back = f", released {released:,}, parked {parked:,}"
        return given_back + (f", lost {lost:,} to others" if lost else "")

    def _judged(self, claim: Claim, done: DataFrame, failed: DataFrame) -> DataFrame:
        """Every message of the claim with a verdict: delete, release or park.

        Only what has a row in `done` is deleted, so nothing gets lost, whatever the function filters out.
        """
        reasons = failed.groupBy("message_id").agg(F.first("reason").alias("reason"))
        written = done.select("message_id", F.lit(True).alias("written")).distinct()
        verdict = F.when(F.col("written"), "delete").when(
            F.col("receive_count") < self._options.max_receives, "release"
        )
        return (
            claim.dataframe.select("message_id", "receive_count", "receipt_handle")
            .join(written, "message_id", "left")
            .join(reasons, "message_id", "left")
            .select(
                "message_id",
                "receive_count",
                "receipt_handle",
                verdict.otherwise("park").alias("verdict"),
                F.coalesce("reason", F.lit(NO_RESULT)).alias("reason"),
            )
        )

    def _give_back(self, claim: Claim) -> None:
        try:
            self.say(f"gives back {claim.release().messages:,} messages")
        except Exception as error:
            self.say(f"could not give the claim back, it runs out by {claim.deadline}: {error}")
