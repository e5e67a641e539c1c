"""Bulk sends of DataFrames: tasks write segments of their own, and one commit publishes them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.clock import Clock
from ledger.delta_log.failures import message_of
from ledger.delta_log.spark_sessions import arrow_frame, parallelism
from ledger.errors import LedgerError, StorageFailed
from ledger.rules import fifo, instants
from ledger.rules import message_id as ids
from ledger.rules.attempts import Attempt, hash_row_content
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from ledger.rules.location import OBJECT_STORES, recorded
from ledger.rules.message import GIVEN
from ledger.store.delta.commit.locks import releasing
from ledger.store.delta.commit.transactions import after_commit
from ledger.store.delta.dataframes import columns
from ledger.store.delta.dataframes.bulk_rows import (
    Fingerprint,
    Watch,
    checked,
    describe_bodies_place,
    explain_row_failure,
    fingerprint,
    message_columns,
)
from ledger.store.delta.dataframes.evaluation import evaluated_once, require_readable
from ledger.store.delta.dataframes.placed_rows import (
    Placed,
    Unplaced,
    absent_columns,
    add_message_columns,
    place_by_task,
    prepare_for_tasks,
)
from ledger.store.delta.dataframes.spark_append import SparkAppend
from ledger.store.delta.dataframes.staging import Staging
from ledger.store.delta.model.tables import Where
from ledger.store.delta.state.send_history import (
    build_set_aside_condition,
    drop_set_aside,
    find_earlier_send,
    find_last_send,
)
from ledger.store.protocol import QueueRecord

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ledger.store.delta.state.listing import Listing
    from ledger.store.delta.verbs.store import DeltaStore

#: Up to this many stored messages are broadcast to find duplicates.
FEW = 100_000
#: If there are more files, Delta's reader reads them.
MOST_FILES = 1_000
#: LTZ: a session may take "timestamp" for a time without a zone.
_REMEMBERED = "message_group_id string, message_deduplication_id string, sequence_number bigint, sent_at timestamp_ltz"
#: Spark takes a path with these characters for a pattern.
_PATTERN = re.compile(r"[\\*?\[\]{}]")


@dataclass(frozen=True)
class Sent:
    """The result of a bulk send: the number of messages that the send stored, and their segments."""

    count: int
    segments: tuple[str, ...]
    _messages: Callable[[], DataFrame] = field(repr=False)

    def ids(self) -> DataFrame:
        """Return a row per message: message_id (string), body (string)."""
        from pyspark.sql import functions as F

        return self._messages().select(columns.message_id(F.col("segment"), F.col("seq")).alias("message_id"), "body")


@dataclass(frozen=True)
class Rows:
    """The messages of a DataFrame, as `bulk_rows.message_columns` reads them.

    `plan`: returns the rows, with or without checked bodies, and with some fields (None: all).
    `fields`: the fields that the DataFrame has values of.
    `is_unplaced`: tasks may check the bodies and place the rows.
    `absent`, `bodies_at`: see Placed and Unplaced.
    """

    plan: Callable[[bool, frozenset[str] | None], DataFrame]
    fields: frozenset[str]
    is_unplaced: bool
    absent: frozenset[str]
    bodies_at: str
    has_delays: bool

    @cached_property
    def checked(self) -> DataFrame:
        """The rows with all fields."""
        return self.plan(True, None)

    @cached_property
    def unchecked(self) -> DataFrame:
        """The rows with the DataFrame's own fields, and unchecked bodies."""
        return self.plan(False, self.fields)


class BulkSender:
    """Writes DataFrames into segments that no other send appends to."""

    def __init__(self, spark: SparkSession, store: DeltaStore, locations: Mapping[str, str]) -> None:
        self._spark, self._store, self._path = spark, store, locations["messages"]
        engine = store.engine.publishing()
        self._writer: Staging | SparkAppend = (
            SparkAppend(store, spark) if engine is None else Staging(store, engine, spark)
        )

    @releasing
    def send(
        self, queue: QueueRecord, frame: DataFrame, body: str | None, clock: Clock, attempt_id: str | None
    ) -> Sent:
        """See Queue.send."""
        self._store.transactions.require_writable("send")
        self._writer.require_takes(queue)
        self._store.times.require(queue, clock)
        try:
            rows = self._rows(queue, frame, body)
        except Exception as error:
            raise explain_row_failure(error, queue.attributes) or error from None
        if is_fifo(queue.attributes):
            return self._send_in_order(queue, rows, clock)
        if attempt_id is not None:
            return self._send_once(queue, rows, clock, attempt_id)
        key, tries = ids.new_send_key(), self._store.transactions.attempts("send")
        for losses in tries:
            with self._writer.turn(queue, losses):
                if self._writer.write(self._place_by_task(queue, rows, key, clock()), None, losses, clock):
                    return self._read_sent(queue, key)
        raise tries.give_up()

    def _rows(self, queue: QueueRecord, frame: DataFrame, body: str | None) -> Rows:
        absent = absent_columns(queue, frame.columns, self._store.sender_id)
        has_delays = "delay_seconds" in frame.columns
        fields = {field.name for field in GIVEN if field.column not in absent} - (
            set() if has_delays else {"delay_seconds"}
        )

        def plan(checks_bodies: bool, fields: frozenset[str] | None) -> DataFrame:
            by_name = message_columns(frame, queue.attributes, body, checks_bodies=checks_bodies, fields=fields)
            return frame.select(*(column.alias(name) for name, column in by_name.items()))

        rows = Rows(
            plan,
            frozenset(fields),
            not is_fifo(queue.attributes) and self._writer.takes_unplaced(frame),
            absent,
            describe_bodies_place(frame.columns, body),
            has_delays,
        )
        # Spark's analysis refuses a wrong send before anything is staged.
        _ = rows.unchecked if rows.is_unplaced else rows.checked
        return rows

    def _send_once(self, queue: QueueRecord, rows: Rows, clock: Clock, attempt_id: str) -> Sent:
        """Send rows under an attempt id. Their count and hashes recognize a retry.

        Spark evaluates the rows again to write them, and `Watch.require_same` compares both evaluations before the
        commit. If Spark itself commits, the executors keep the rows instead.
        """
        with contextlib.ExitStack() as until_sent:
            try:
                if not self._writer.compares_rows:
                    kept = until_sent.enter_context(evaluated_once(rows.checked))
                    rows = replace(rows, plan=lambda *_: kept)
                (values,) = rows.checked.agg(*fingerprint()).collect()
            except Exception as error:
                raise explain_row_failure(error, queue.attributes) or error from None
            return self._send_counted(queue, rows, Fingerprint.of(values), clock, attempt_id)

    def _send_counted(
        self,
        queue: QueueRecord,
        rows: Rows,
        counted: Fingerprint,
        clock: Clock,
        attempt_id: str,
    ) -> Sent:
        attempt = Attempt(attempt_id, queue.id, hash_row_content(queue.id, *counted))
        tries = self._store.transactions.attempts("send")
        for losses in tries:
            with self._writer.turn(queue, losses):
                earlier_key = find_earlier_send(self._store.engine, attempt)
                # If another process sends under the attempt id first, the next try finds its segments.
                if earlier_key or not counted.rows or self._write_once(queue, rows, counted, clock, attempt, losses):
                    # Upkeep may have dropped some of the messages.
                    return replace(self._read_sent(queue, earlier_key or attempt.key), count=counted.rows)
        raise tries.give_up()

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
        placed = self._place_by_task(queue, rows, attempt.key, clock(), expected)
        return self._writer.write(placed, attempt.transaction, losses, clock)

    def _place_by_task(
        self, queue: QueueRecord, rows: Rows, key: str, at: int, expected: Fingerprint | None = None
    ) -> Placed:
        """Place the rows, and refuse the send if they differ from `expected`."""
        sender, unplaced, watch = self._store.sender_id, None, Watch(expected)

        def by_spark() -> DataFrame:
            placed = place_by_task(watch.over(rows.checked), parallelism(self._spark), self._store.settings)
            return add_message_columns(placed, at, sender)

        if rows.is_unplaced:
            delay = None if rows.has_delays else int(queue.attributes["DelaySeconds"]) * MILLISECONDS
            unchecked = rows.unchecked if expected is None else watch.over(rows.plan(False, None))
            rows_for_tasks = prepare_for_tasks(unchecked, rows.absent, sender, has_delays=rows.has_delays)
            unplaced = Unplaced(rows_for_tasks, rows.bodies_at, delay)
        first_lane = int(key[:6], 16)
        return Placed(
            by_spark, queue, key, at, first_lane, absent=rows.absent, require_same=watch.require_same, unplaced=unplaced
        )

    def _send_in_order(self, queue: QueueRecord, rows: Rows, clock: Clock) -> Sent:
        """Send rows to a FIFO queue, without duplicates. Twin of `verbs.sending.Sender`.

        If another send or purge was committed since this send read the count of sends, this send decides again.

        Spark shuffles bodies to the lanes of their groups. If the whole queue is the scope of deduplication, it first
        shuffles them by deduplication id.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        lanes, settings, engine = int(queue.attributes["Lanes"]), self._store.settings, self._store.engine
        lane = (F.crc32(F.col("message_group_id").cast("binary")) % F.lit(lanes)).cast("bigint")
        keyed = rows.checked.select("*", lane.alias("ordinal"), F.monotonically_increasing_id().alias("place"))
        identity, shuffled_by = ["message_deduplication_id"], []
        if queue.attributes["DeduplicationScope"] == "messageGroup":
            # A group is in one lane, so duplicates meet there.
            identity, shuffled_by = ["message_group_id", *identity], ["ordinal"]
            keyed = keyed.repartition(*shuffled_by)
        copies = Window.partitionBy(*shuffled_by, *identity).orderBy("place")
        in_lane = Window.partitionBy("ordinal").orderBy("place")
        distinct = keyed.withColumn("copy", F.row_number().over(copies)).where("copy = 1")
        attempts = self._store.transactions.attempts("send")
        for losses in attempts:
            key = ids.new_send_key()
            with self._writer.turn(queue, losses):
                count = engine.transaction_version("messages", fifo.sends_application(queue.id)) or 0
                # Count first: a process that pauses before it reads the clock must not send before the last send.
                listing = self._store.listings.newest()
                now, skew = clock(), settings.maximum_clock_skew
                last = find_last_send(engine, queue.id, listing.find_last_send_time(queue.id), now, skew)
                at = instants.advance_to_last_commit(now, last, skew)
                remembered, fresh = self._find_remembered(queue, listing, at), distinct
                if remembered is not None:
                    fresh = distinct.join(remembered.select(*identity), identity, "left_anti")
                placed = fresh.withColumn("seq", F.row_number().over(in_lane).cast("bigint") - 1)
                number = _sequence_number(count + 1, F.col("seq") * F.lit(lanes) + F.col("ordinal"), lanes)
                stored = add_message_columns(placed, at, self._store.sender_id, number)
                ready = Placed(partial(_return_unchanged, stored), queue, key, at, in_order=True, absent=rows.absent)
                if self._writer.write(ready, (fifo.sends_application(queue.id), count + 1), losses, clock):
                    return self._read_sent(queue, key)
        raise attempts.give_up()

    def _find_remembered(self, queue: QueueRecord, listing: Listing, now: int) -> DataFrame | None:
        """Return the stored messages that make sent messages duplicates. Twin of rules.fifo.is_duplicate.

        A send or purge that this read misses raises the count of sends, so the caller's send does not commit.
        """
        from pyspark.sql import functions as F

        since = now - DEDUPLICATION_INTERVAL * MILLISECONDS
        bound = listing.count_sent_since(queue.id, since)
        if bound == 0:
            return None
        if bound is not None and bound <= FEW:
            names = ["message_group_id", "message_deduplication_id", "sequence_number"]
            recent = self._store.engine.messages(Where(queue.id), [*names, "sent_at"], sent_after=since)
            recent = drop_set_aside(self._store.engine, queue.id, recent)
            recent_rows = F.broadcast(arrow_frame(self._spark, recent.select(names)))
        else:
            recent_rows = self._read_since(queue, since)
        purged = self._store.engine.transaction_version("messages", fifo.purges_application(queue.id)) or 0
        return recent_rows.where(f"sequence_number >= {fifo.first_remembered(purged)}")

    def _read_since(self, queue: QueueRecord, since: int) -> DataFrame:
        """Return a queue's stored messages after an instant, without those that a clock repair set aside.

        Delta's reader would take three jobs to find the files that the ledger's client knows.
        """
        engine = self._store.engine
        condition = f"sent_at > timestamp_millis({since}) AND {build_set_aside_condition(engine, queue.id)}"
        files = self.find_files_since(queue, since)
        if files is None:

            def stored(session: SparkSession) -> DataFrame:
                rows = session.read.format("delta").load(self._path).where(Where(queue.id).sql())
                return rows.where(condition)

            require_readable(self._spark, stored, engine, "send")
            return stored(self._spark)
        reader = self._spark.read.schema(_REMEMBERED).options(ignoreMissingFiles=False, ignoreCorruptFiles=False)
        try:
            return reader.parquet(*files).where(condition)
        except Exception as error:
            raise self._make_read_error(message_of(error)) from error

    def find_files_since(self, queue: QueueRecord, since: int) -> list[str] | None:
        """Return the files that may have messages sent to a queue after an instant, or None if Delta's reader must find
        them.

        Spark's reader skips an empty file, and Delta's does not. So the result is None where a storage may lose the end
        of a file, and on a local path the sizes are checked.
        """
        place = recorded(self._path)
        if not (place.is_local or place.scheme in OBJECT_STORES) or _PATTERN.search(self._path):
            return None
        sizes = self._store.engine.files_sent_after(queue.id, since)
        if sizes is None or len(sizes) > MOST_FILES:
            return None
        for file, size in sizes.items() if place.is_local else ():
            try:
                is_whole = Path(place.text, file).stat().st_size == size
            except OSError as error:
                raise self._make_read_error(str(error)) from error
            if not is_whole:
                raise self._make_read_error(f"{file} does not have the size that the log says")
        return [f"{self._path}/{file}" for file in sizes]

    def _make_read_error(self, reason: str) -> LedgerError:
        engine = self._store.engine
        return engine.damage("messages") or StorageFailed(engine.place("messages"), reason, "send")

    def _read_sent(self, queue: QueueRecord, key: str) -> Sent:
        """Return the result of a committed send. Raises QueueDoesNotExist, or StorageFailed with `unknown`.

        A deletion of the queue does not conflict with the send's commit, and deletes the messages. So look the queue up
        last: if it exists, every deletion comes later.
        """
        first, last = ids.segment(key, 0), ids.segment(key, ids.ORDINAL_BOUND - 1)
        with after_commit("send"):
            count, segments = self._store.listings.newest().sent(first, last)
            self._store.require_queue(queue)

        def messages() -> DataFrame:
            # A predicate that names each segment would grow with the send.
            rows = self._spark.read.format("delta").load(self._path).where(Where(queue.id).sql())
            return rows.where(f"segment BETWEEN '{first}' AND '{last}'")

        return Sent(count, segments, messages)


def _return_unchanged(rows: DataFrame) -> DataFrame:
    return rows


def _sequence_number(send: int, number_in_send: Column, lanes: int) -> Column:
    """Return sequence numbers. Twin of rules.fifo.sequence_number.

    A row beyond the bound, whose number would be one of the next send, fails its task.
    """
    from pyspark.sql import functions as F

    most_per_lane = (1 << fifo.ORDINAL_BITS) // lanes
    return checked(
        F.lit(fifo.sequence_number(send, 0)) + number_in_send,
        number_in_send < F.lit(1 << fifo.ORDINAL_BITS),
        "MessageGroupId",
        f"One send takes at most {most_per_lane:,} messages of groups that share a lane. Send the DataFrame in parts",
        "bigint",
    )
