"""Sending a DataFrame: every task writes segments of its own, one commit. Only what must be in order is shuffled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ledger.clock import Clock
from ledger.delta_log.spark_sessions import arrow_frame, parallelism
from ledger.rules import fifo, instants
from ledger.rules import message_id as ids
from ledger.rules.attempts import Attempt, content_of_rows
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.rules.message_fields import GIVEN
from ledger.store.delta.commit.holdings import releasing
from ledger.store.delta.dataframes import columns
from ledger.store.delta.dataframes.bulk_rows import (
    Fingerprint,
    Watch,
    checked,
    fingerprint,
    message_columns,
    place_of_bodies,
    refusal,
)
from ledger.store.delta.dataframes.evaluation import evaluated_once, require_readable
from ledger.store.delta.dataframes.placed_rows import (
    Placed,
    Unplaced,
    absent_columns,
    by_task,
    for_tasks,
    with_columns,
)
from ledger.store.delta.dataframes.spark_append import SparkAppend
from ledger.store.delta.dataframes.staging import Staging
from ledger.store.delta.model.where import Where
from ledger.store.delta.state.send_history import last_send, not_set_aside, sent_before, without_set_aside
from ledger.store.protocol import QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ledger.store.delta.state.listing import Listing
    from ledger.store.delta.verbs.store import DeltaStore

#: Up to so many messages that may make others duplicates are read by the driver, and told to every task. More of them
#: Spark reads sooner by itself.
FEW = 100_000


@dataclass(frozen=True)
class Sent:
    """What a bulk send stored: how many messages, in which segments."""

    count: int
    segments: tuple[str, ...]
    _messages: Callable[[], DataFrame] = field(repr=False)

    def ids(self) -> DataFrame:
        """A row per message: message_id (string), body (string)."""
        from pyspark.sql import functions as F

        return self._messages().select(columns.message_id(F.col("segment"), F.col("seq")).alias("message_id"), "body")


@dataclass(frozen=True)
class Rows:
    """What the rows of a DataFrame say: `bulk_rows.message_columns`.

    `plan` returns them, and is told whether to plan the check of bodies, too, and which fields are wanted (None: all).
    `fields`: those that the DataFrame says something of. `is_unplaced`: tasks check bodies and
    place the rows, where they can. `absent`: see Placed. `bodies_at`: where the DataFrame has the bodies, in words.
    `has_delays`: it has a column of delays.
    """

    plan: Callable[[bool, frozenset[str] | None], DataFrame]
    fields: frozenset[str]
    is_unplaced: bool
    absent: frozenset[str]
    bodies_at: str
    has_delays: bool

    @cached_property
    def checked(self) -> DataFrame:
        """The rows, all fields of which are checked when they are computed."""
        return self.plan(True, None)

    @cached_property
    def unchecked(self) -> DataFrame:
        """The same, but for the bodies: the fields that the DataFrame says something of."""
        return self.plan(False, self.fields)


class BulkSender:
    """Writes DataFrames into sealed segments: never appended to again, by construction."""

    def __init__(self, spark: SparkSession, store: DeltaStore, locations: Mapping[str, str]) -> None:
        self._spark, self._store, self._path = spark, store, locations["messages"]
        engine = store.engine.publishing()
        self._writer: Staging | SparkAppend = SparkAppend(store) if engine is None else Staging(store, engine, spark)

    @releasing
    def send(
        self, queue: QueueRecord, frame: DataFrame, body: str | None, clock: Clock, attempt_id: str | None
    ) -> Sent:
        """Sends every row; see Queue.send."""
        # Before anything is computed or staged.
        self._store.transactions.require_writable("send")
        self._writer.require_takes(queue)
        self._store.times.require(queue, clock)
        try:
            rows = self._rows(queue, frame, body)
        except Exception as error:
            raise refusal(error, queue.attributes) or error from None
        if is_fifo(queue.attributes):
            return self._send_in_order(queue, rows, clock)
        if attempt_id is not None:
            return self._send_once(queue, rows, clock, attempt_id)
        key, tries = ids.new_send_key(), self._store.transactions.attempts("send")
        for losses in tries:
            with self._writer.turn(queue, losses):
                if self._writer.write(self._by_task(queue, rows, key, clock()), None, losses, clock):
                    return self._sent(queue, key)
        raise tries.outlasted()

    def _rows(self, queue: QueueRecord, frame: DataFrame, body: str | None) -> Rows:
        absent = absent_columns(queue, frame.columns, self._store.sender_id)
        has_delays = "delay_seconds" in frame.columns
        fields = {field.name for field in GIVEN if field.column not in absent} - (
            set() if has_delays else {"delay_seconds"}
        )

        def plan(checks_bodies: bool, fields: frozenset[str] | None) -> DataFrame:
            columns = message_columns(frame, queue.attributes, body, checks_bodies=checks_bodies, fields=fields)
            return frame.select(*(column.alias(name) for name, column in columns.items()))

        rows = Rows(
            plan,
            frozenset(fields),
            not is_fifo(queue.attributes) and self._writer.takes_unplaced(frame),
            absent,
            place_of_bodies(frame.columns, body),
            has_delays,
        )
        # Spark looks at the columns now: an error of theirs is a refusal, before anything is staged.
        _ = rows.unchecked if rows.is_unplaced else rows.checked
        return rows

    def _send_once(self, queue: QueueRecord, rows: Rows, clock: Clock, attempt_id: str) -> Sent:
        """Under an attempt id: the rows are counted and hashed before, so that any other send is told from a retry.

        They are evaluated again to be written, and other rows than were counted are refused before the commit. Where
        Spark commits there is no moment before it: the rows are computed once, and kept by the executors until then.
        """
        with contextlib.ExitStack() as until_sent:
            try:
                if not self._writer.compares_rows:
                    kept = until_sent.enter_context(evaluated_once(rows.checked))
                    rows = replace(rows, plan=lambda *_: kept)
                (values,) = rows.checked.agg(*fingerprint()).collect()
            except Exception as error:
                raise refusal(error, queue.attributes) or error from None
            return self._send_counted(queue, rows, Fingerprint.of(values), clock, attempt_id)

    def _send_counted(
        self,
        queue: QueueRecord,
        rows: Rows,
        counted: Fingerprint,
        clock: Clock,
        attempt_id: str,
    ) -> Sent:
        attempt = Attempt(attempt_id, queue.id, content_of_rows(queue.id, *counted))
        tries = self._store.transactions.attempts("send")
        for losses in tries:
            with self._writer.turn(queue, losses):
                before = sent_before(self._store.engine, attempt)
                # Where another process was first this one commits nothing; what that one sent is looked at again.
                if before or not counted.rows or self._write_once(queue, rows, counted, clock, attempt, losses):
                    # Some of them may be finished and dropped by now.
                    return replace(self._sent(queue, before or attempt.key), count=counted.rows)
        raise tries.outlasted()

    def _write_once(
        self,
        queue: QueueRecord,
        rows: Rows,
        counted: Fingerprint,
        clock: Clock,
        attempt: Attempt,
        losses: int,
    ) -> bool:
        expected = counted if self._writer.compares_rows else None
        placed = self._by_task(queue, rows, attempt.key, clock(), expected)
        return self._writer.write(placed, attempt.transaction, losses, clock)

    def _by_task(
        self, queue: QueueRecord, rows: Rows, key: str, at: int, expected: Fingerprint | None = None
    ) -> Placed:
        """`expected`: the rows that are to be written, and no others."""
        sender, unplaced, watch = self._store.sender_id, None, Watch(expected)

        def by_spark() -> DataFrame:
            placed = by_task(watch.over(rows.checked), parallelism(self._spark), self._store.settings)
            return with_columns(placed, at, sender)

        if rows.is_unplaced:
            delay = None if rows.has_delays else int(queue.attributes["DelaySeconds"]) * MILLISECONDS
            # To watch them takes all fields that rows are known by.
            unchecked = rows.unchecked if expected is None else watch.over(rows.plan(False, None))
            given = for_tasks(unchecked, rows.absent, sender, has_delays=rows.has_delays)
            unplaced = Unplaced(given, rows.bodies_at, delay)
        first_lane = int(key[:6], 16)
        return Placed(
            by_spark, queue, key, at, first_lane, absent=rows.absent, require_same=watch.require_same, unplaced=unplaced
        )

    def _send_in_order(self, queue: QueueRecord, rows: Rows, clock: Clock) -> Sent:
        """As `Sender` does for a few: duplicates are left out, and a send that did not see the one before it does not
        commit. Bodies are shuffled to their groups' lanes; before that to their deduplication ids, where those count
        beyond the group."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        lanes, settings, engine = int(queue.attributes["Lanes"]), self._store.settings, self._store.engine
        # A lane is a segment, and has its ordinal.
        lane = (F.crc32(F.col("message_group_id").cast("binary")) % F.lit(lanes)).cast("bigint")
        keyed = rows.checked.select("*", lane.alias("ordinal"), F.monotonically_increasing_id().alias("place"))
        identity, together = ["message_deduplication_id"], []
        if queue.attributes["DeduplicationScope"] == "messageGroup":
            # A group is in one lane: what lies together for that does so for this.
            identity, together = ["message_group_id", *identity], ["ordinal"]
            keyed = keyed.repartition(*together)
        same = Window.partitionBy(*together, *identity).orderBy("place")
        in_lane = Window.partitionBy("ordinal").orderBy("place")
        first = keyed.withColumn("copy", F.row_number().over(same)).where("copy = 1")
        attempts = self._store.transactions.attempts("send")
        for losses in attempts:
            key = ids.new_send_key()
            with self._writer.turn(queue, losses):
                count = engine.transaction_version("messages", fifo.sends(queue.id)) or 0
                # The clock is read behind it: whoever stands still in between is not behind the last send.
                listing = self._store.listings.newest()
                now, skew = clock(), settings.maximum_clock_skew
                last = last_send(engine, queue.id, listing.last_sent(queue.id), now, skew)
                at = instants.not_before(now, last, skew)
                known, fresh = self._remembered(queue, listing, at), first
                if known is not None:
                    fresh = first.join(known.select(*identity), identity, "left_anti")
                placed = fresh.withColumn("seq", F.row_number().over(in_lane).cast("bigint") - 1)
                number = _sequence_number(count + 1, F.col("seq") * F.lit(lanes) + F.col("ordinal"), lanes)
                stored = with_columns(placed, at, self._store.sender_id, number)
                ready = Placed(partial(_same, stored), queue, key, at, in_order=True, absent=rows.absent)
                if self._writer.write(ready, (fifo.sends(queue.id), count + 1), losses, clock):
                    return self._sent(queue, key)
        raise attempts.outlasted()

    def _remembered(self, queue: QueueRecord, listing: Listing, now: int) -> DataFrame | None:
        """Twin of rules.fifo.is_duplicate: the messages of a queue that make a send with the same id a duplicate; None:
        there are none. A send or a purge that they miss has counted up, so that theirs does not commit."""
        from pyspark.sql import functions as F

        since = now - DEDUPLICATION_INTERVAL * MILLISECONDS
        most = listing.sent_since(queue.id, since)
        if most == 0:
            return None
        if most is not None and most <= FEW:
            columns = ["message_group_id", "message_deduplication_id", "sequence_number"]
            recent = self._store.engine.messages(Where(queue.id), [*columns, "sent_at"], sent_after=since)
            recent = without_set_aside(self._store.engine, queue.id, recent)
            there = F.broadcast(arrow_frame(self._spark, recent.select(columns)))
        else:
            counted = not_set_aside(self._store.engine, queue.id)

            def stored(session: SparkSession) -> DataFrame:
                mine = session.read.format("delta").load(self._path).where(Where(queue.id).sql())
                return mine.where(f"sent_at > timestamp_millis({since}) AND {counted}")

            require_readable(self._spark, stored, self._store.engine, "send")
            there = stored(self._spark)
        purged = self._store.engine.transaction_version("messages", fifo.purges(queue.id)) or 0
        return there.where(f"sequence_number >= {fifo.first_remembered(purged)}")

    def _sent(self, queue: QueueRecord, key: str) -> Sent:
        first, last = ids.segment(key, 0), ids.segment(key, ids.ORDINAL_BOUND - 1)
        count, segments = self._store.listings.newest().sent(first, last)

        def messages() -> DataFrame:
            # By the range of their names: a predicate that named each would grow with the send.
            there = self._spark.read.format("delta").load(self._path).where(Where(queue.id).sql())
            return there.where(f"segment BETWEEN '{first}' AND '{last}'")

        return Sent(count, segments, messages)


def _same(rows: DataFrame) -> DataFrame:
    return rows


def _sequence_number(send: int, ordinal: Column, lanes: int) -> Column:
    """Twin of rules.fifo.sequence_number; beyond the bound the numbers would run into the next send's."""
    from pyspark.sql import functions as F

    most = (1 << fifo.ORDINAL_BITS) // lanes
    return checked(
        F.lit(fifo.sequence_number(send, 0)) + ordinal,
        ordinal < F.lit(1 << fifo.ORDINAL_BITS),
        "MessageGroupId",
        f"One send takes at most {most:,} messages of groups that share a lane. Send the DataFrame in parts",
        "bigint",
    )
