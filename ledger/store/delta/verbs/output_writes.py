"""Writes of claims to output tables. The output table decides whether a write is in.

A write is begun in the queue, committed in its output table, and finished in the queue. Until it is finished, its
messages are *in doubt* (see `rules.output_doubts`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.delta_log.protocol import Conflict, reason
from ledger.delta_log.storage import table_files
from ledger.errors import InvalidParameterValue, LeaseLost, OutputUnreadable, StorageFailed
from ledger.output_tables.protocol import ForeignTables, OutputPublishing
from ledger.rules import attributes as attribute_rules
from ledger.rules import output_doubts
from ledger.rules.limits import Limits
from ledger.rules.location import DELTA_RS_COMMITS, FILE, S3, SAFE_FOR_BOTH, recorded
from ledger.rules.output_doubts import Part
from ledger.rules.visibility import UNTOUCHED, Receipts, Record, deadline, is_in_doubt, is_same_attempt
from ledger.settings import Settings
from ledger.store.delta.commit.locks import StillLocked, releasing, table_lock
from ledger.store.delta.commit.storage_safety import TRUSTED_SECONDS, require_conditional_puts, require_safe_output
from ledger.store.delta.commit.transactions import Attempts, Plan
from ledger.store.delta.model.message_runs import Pieces, Runs, distinct_codes
from ledger.store.delta.model.tables import TABLES, sort_distinct
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.snapshot import Events, Loaded, OpenTables
from ledger.store.protocol import Action, ArrowOutputs, QueueRecord, apply_action, count_messages

if TYPE_CHECKING:
    from ledger.output_tables.tables_of_spark import SparkOutputTables

log = logging.getLogger("ledger.output")
ATTEMPTS = 20
Answer = TypeVar("Answer")
#: The seconds that a verb in its turn waits for an output table. After a longer wait in vain, receives, redrives and
#: locks skip the table for SILENT_FACTOR times the wait.
WAIT_SECONDS, SILENT_FACTOR = 1.0, 10


class OutputTables:
    def __init__(self, engine: ForeignTables, by_spark: SparkOutputTables | None, settings: Settings) -> None:
        self._engine, self._by_spark, self._settings, self._fences = engine, by_spark, settings, True
        self._silent: dict[str, tuple[float, OutputUnreadable]] = {}
        self._puts_checked_at: dict[str, float] = {}

    def copy_without_fences(self) -> OutputTables:
        """Return the same tables, but never commit a fence: a write that is not in counts as fenced off."""
        looking = OutputTables(self._engine, self._by_spark, self._settings)
        looking._fences = False
        return looking

    def require_safe(self, table: str, why: str) -> None:
        """See OutputWrites.require_safe."""
        require_safe_output(table, self._settings, why)

    def publishing(self, table: str) -> OutputPublishing | None:
        """See OutputWrites.publishing. Also raises StorageFailed."""
        scheme, publishing = recorded(table).scheme, self._engine.output_publishing(table)
        if publishing is None or scheme not in DELTA_RS_COMMITS:
            return None
        if scheme in S3 and time.monotonic() - self._puts_checked_at.get(table, -TRUSTED_SECONDS) >= TRUSTED_SECONDS:
            from ledger.delta_log.object_store import ObjectStore

            require_conditional_puts(ObjectStore(table, publishing.storage_options))
            self._puts_checked_at[table] = time.monotonic()
        return publishing

    def table_id(self, table: str) -> str:
        return self._ask_first(table, lambda engine: engine.read_output_log(table, "").table_id)

    def committed(self, table: str, write_id: str) -> int | None:
        return self._ask_first(
            table, lambda engine: engine.read_output_log(table, output_doubts.application(write_id)).committed
        )

    def confirm_or_fence(self, table: str, write_id: str, patience: float | None = WAIT_SECONDS) -> bool:
        """Return whether a write is in. If not, commit a fence to the table, so that the write can never get in.

        Waits up to `patience` seconds (None: without a limit) for other writers. Raises OutputUnreadable if the answer
        cannot be known.
        """
        if not self._fences:
            return self.committed(table, write_id) == output_doubts.WRITTEN
        until = None if patience is None else time.monotonic() + patience
        keep = partial(self._make_durable, table)
        return self._ask_first(table, lambda engine: _confirm_or_fence(engine, table, write_id, until, keep))

    def _make_durable(self, table: str, version: int) -> None:
        if recorded(table).is_local:
            table_files(table, None, sync=self._settings.sync).make_durable(version)

    def confirm_or_fence_for_others(self, table: str, write_id: str) -> bool:
        """Answer as `confirm_or_fence`, for a verb that may have other messages to serve.

        If the table recently took longer than WAIT_SECONDS and gave no answer, raise its last error again.
        """
        until, problem = self._silent.get(table, (0.0, None))
        began = time.monotonic()
        if problem is not None and began < until:
            raise problem
        try:
            return self.confirm_or_fence(table, write_id)
        except OutputUnreadable as error:
            log.warning("%s", error)
            now = time.monotonic()
            if now - began > WAIT_SECONDS:
                self._silent[table] = now + SILENT_FACTOR * (now - began), error
            raise

    def _ask_first(self, table: str, ask: Callable[[ForeignTables], Answer]) -> Answer:
        """Return the answer of the first engine that can answer. If none can, raise the first error."""
        engine, *others = self._engines(table)
        try:
            return ask(engine)
        except OutputUnreadable:
            for other in others:
                with contextlib.suppress(OutputUnreadable):
                    return ask(other)
            raise

    def _engines(self, table: str) -> list[ForeignTables]:
        """Return the engines that may commit to a table, the preferred one first."""
        try:
            scheme = recorded(table).scheme
        except InvalidParameterValue as error:
            raise OutputUnreadable(table, str(error)) from error
        spark: list[ForeignTables] = [] if self._by_spark is None else [self._by_spark]
        if scheme in (FILE, *SAFE_FOR_BOTH):
            # delta-rs does not support every feature of Spark's tables.
            return list({engine.name: engine for engine in (self._engine, *spark)}.values())
        if scheme in S3:
            return self._engines_on_s3(table, spark)
        if not spark:
            raise OutputUnreadable(table, f"only Spark can tell on {scheme}:, and the ledger was opened without it")
        return spark

    def _engines_on_s3(self, table: str, spark: list[ForeignTables]) -> list[ForeignTables]:
        safe = [] if self._engine.output_publishing(table) is None else [self._engine]
        engines = [*safe, *spark] if self._settings.single_driver else safe
        if not engines:
            raise OutputUnreadable(table, "only delta-rs can fence off a write on S3, and the ledger's engine is Spark")
        return engines


@releasing
def _confirm_or_fence(
    engine: ForeignTables, table: str, write_id: str, until: float | None, keep: Callable[[int], None]
) -> bool:
    application, before, attempts = (
        output_doubts.application(write_id),
        None,
        Attempts(f"the fence of {table}", ATTEMPTS),
    )
    for _ in attempts:
        output_log = engine.read_output_log(table, application)
        if output_log.committed is not None:
            # The rows (or the fence) must be durable before anything is recorded about the messages.
            keep(output_log.version)
            return output_log.committed == output_doubts.WRITTEN
        if output_doubts.table_of(write_id) not in (None, output_log.table_id):
            # The rows may be in the earlier table, which may come back, say, with a disk that is not mounted now.
            raise OutputUnreadable(
                table, "another table lies there than the one that the write was begun for", gone=True
            )
        if before is not None and before[0] == output_log.version:
            # Nobody else has committed since the last try, so that try lost no race.
            raise OutputUnreadable(table, f"it cannot be committed to ({before[1]})")
        try:
            with table_lock(table).exclusive(until):
                engine.fence_output(table, application, output_doubts.FENCED)
        except Conflict as conflict:
            before = output_log.version, reason(conflict)
        except StillLocked as error:
            raise OutputUnreadable(table, "others are writing to it, or stand still while they do") from error
        except (OSError, StorageFailed) as error:
            raise OutputUnreadable(table, reason(error)) from error
    raise OutputUnreadable(table, f"{ATTEMPTS} commits lost to other writers in {attempts.seconds:.1f} s")


class Outputs:
    """The writes of claims (see OutputWrites), and the decisions of other verbs about messages in doubt."""

    def __init__(self, opened: OpenTables, foreign: ForeignTables, by_spark: SparkOutputTables | None) -> None:
        self._opened, self._transactions = opened, opened.transactions
        self.foreign = foreign
        self.tables = OutputTables(foreign, by_spark, opened.settings)
        self._known: set[str] = set()

    def require_writable(self) -> None:
        self._transactions.require_writable("write")

    def step(self, name: str) -> None:
        self._transactions.step(name)

    @property
    def owner(self) -> str:
        return self._transactions.owner

    def require_allowed(self, location: str) -> None:
        for table in TABLES:
            own, output = f"{self._opened.tables.place(table)}/", f"{location.rstrip('/')}/"
            # A VACUUM of an output folder around a table of the ledger would remove that table's files.
            if output.startswith(own) or own.startswith(output):
                problem = "It is, contains or lies in one of the ledger's own tables"
                raise InvalidParameterValue("table", location, problem, "Name another place.")

    def require_safe(self, location: str, why: str) -> None:
        self.tables.require_safe(location, why)

    def publishing(self, location: str) -> OutputPublishing | None:
        return self.tables.publishing(location)

    def writes_arrow(self) -> bool:
        return self.foreign.arrow_outputs() is not None

    def is_new_here(self, location: str) -> bool:
        is_new = location not in self._known
        self._known.add(location)
        return is_new

    def require_arrow_writer(self) -> ArrowOutputs:
        writer = self.foreign.arrow_outputs()
        if writer is None:
            raise InvalidParameterValue(
                "rows",
                "a pyarrow.Table",
                "This ledger commits through Spark and writes DataFrames",
                "Make it a DataFrame.",
            )
        return writer

    def table_id(self, location: str) -> str:
        return self.tables.table_id(location)

    def is_fenced(self, location: str, identifier: str) -> bool:
        return self.tables.committed(location, identifier) == output_doubts.FENCED

    def confirm_or_fence(self, location: str, identifier: str) -> bool:
        # The caller holds no turn, so the wait needs no limit.
        return self.tables.confirm_or_fence(location, identifier, patience=None)

    def require_held(self, queue: QueueRecord, receipt_id: str, runs: pa.Table, clock: Clock) -> None:
        loaded, pieces = self._pieces(queue, runs, clock)
        records = [loaded.lanes.record(code) for code in set(pieces.code.tolist())]
        # `begin` asks the output table about messages for which this receipt began a write.
        decided = [one for one in records if not output_doubts.must_ask(one, receipt_id)]
        kinds = {output_doubts.classify_part(one, receipt_id, loaded.now, written=False) for one in decided}
        if not kinds <= {Part.HELD}:
            raise _make_lost_error(receipt_id, kinds)

    def begin(
        self, queue: QueueRecord, receipt_id: str, runs: pa.Table, table: str, table_id: str, clock: Clock
    ) -> str | None:
        identifier = output_doubts.new_write_id(table_id)

        def decide(losses: int) -> Plan[str | None]:
            loaded, pieces = self._pieces(queue, runs, clock)
            lanes, events, parts = loaded.lanes, Events(), {}
            for code in set(pieces.code.tolist()):
                record = lanes.record(code)
                write = output_doubts.find_begun_write(record) if output_doubts.must_ask(record, receipt_id) else None
                written = write is not None and self.tables.confirm_or_fence(*write)
                if written and record.writing_to != table:
                    raise InvalidParameterValue(
                        "table", table, f"An earlier call wrote these messages to {record.writing_to}", "Name it."
                    )
                parts[code] = output_doubts.classify_part(record, receipt_id, loaded.now, written=written)
            kinds = set(parts.values())
            if kinds == {Part.WRITTEN}:
                return _plan_of(loaded, pieces, lambda r: output_doubts.finish(r, r.write_id, loaded.now), "deleted")
            if kinds != {Part.HELD}:
                raise _make_lost_error(receipt_id, kinds)
            new = {code: lanes.code(output_doubts.begin(lanes.record(code), table, identifier)) for code in parts}
            code = np.array([new[old] for old in pieces.code.tolist()], dtype=np.int64)
            replacement = pieces.recode(code).in_order()
            events.add("writing", lanes.record(replacement.code[0]), replacement)
            return loaded.plan(replacement, events, lambda version: identifier)

        return self._transactions.run("begin_write", "visibility", queue.id, decide)

    def finish(
        self, queue: QueueRecord, runs: pa.Table, identifier: str, clock: Clock, further_actions: Sequence[Action] = ()
    ) -> int:
        limits, receipts = attribute_rules.limits_of(queue.attributes), attribute_rules.receipts_of(queue.attributes)
        # For lane 0, see `Applier.apply`.
        counted = limits.maximum_in_flight is not None and any(action.timeout for action in further_actions)
        lane_numbers = sort_distinct(
            [*(0,) * counted, *(lane for some in (runs, *(a.runs for a in further_actions)) for lane in _lanes(some))]
        )

        def decide(losses: int) -> Plan[int]:
            loaded = self._opened.load(queue, clock, lane_numbers)
            lanes, events = loaded.lanes, Events()
            pieces = lanes.cut(runs)
            if not lanes.per_code(pieces.code, lambda r: r.write_id == identifier, bool).any():
                raise _unknown_write_error(runs)
            written = _record_pieces(lanes, pieces, lambda r: output_doubts.finish(r, identifier, loaded.now))
            if len(written):
                events.add("deleted", lanes.record(written.code[0]), written)
            parts = [written]
            for action in further_actions:
                act = partial(_record_after, queue, action, limits, receipts, loaded.now)
                parts.append(_record_pieces(lanes, lanes.cut(action.runs), act))
                events.note_action(action, lanes, parts[-1])
            changed = sum(part.count for part in parts[1:])
            replacement = Runs.concatenate(parts).in_order()
            return loaded.plan(replacement, events, lambda version: changed, (0,) if counted else ())

        return self._transactions.run("finish_write", "visibility", queue.id, decide)

    def undo(self, queue: QueueRecord, runs: pa.Table, identifier: str, clock: Clock) -> None:
        def decide(losses: int) -> Plan[None]:
            loaded, pieces = self._pieces(queue, runs, clock)
            return _plan_of(loaded, pieces, lambda r: output_doubts.undo(r, identifier), None)

        self._transactions.run("undo_write", "visibility", queue.id, decide)

    def _pieces(self, queue: QueueRecord, runs: pa.Table, clock: Clock) -> tuple[Loaded, Pieces]:
        loaded = self._opened.load(queue, clock, sort_distinct(runs["lane"].to_pylist()))
        return loaded, loaded.lanes.cut(runs)

    def fence_doubts(
        self, loaded: Loaded, events: Events, attempts: Collection[str] = (), only: Record | None = None
    ) -> OutputUnreadable | None:
        """Ask the output tables about messages in doubt that a receive could take. Fence off writes that are not in.

        A receive could take a message whose deadline has passed, or a message held under one of the ids `attempts`.
        `only`: ask only about messages with this record. In `loaded`, messages become deleted if their rows are in, and
        otherwise are no longer in doubt. If a table does not answer, its messages stay in doubt (`Lanes.undecided`),
        and the error is returned.
        """
        lanes, runs = loaded.lanes, loaded.lanes.runs
        silent: dict[str, OutputUnreadable] = {}

        def is_to_ask(record: Record) -> bool:
            if not is_in_doubt(record):
                return False
            attempt = record.attempt_id
            is_of_attempt = attempt is not None and attempt in attempts and is_same_attempt(record, attempt, loaded.now)
            is_free = deadline(record) <= loaded.now
            return (is_of_attempt or is_free) and only in (None, record)

        def code_after(code: int) -> int:
            record = lanes.record(code)
            write = output_doubts.find_begun_write(record)
            if write is None:
                return code
            table, write_id = write
            try:
                if table in loaded.silent:
                    raise loaded.silent[table]
                written = self.tables.confirm_or_fence_for_others(table, write_id)
            except OutputUnreadable as problem:
                silent[table] = loaded.silent[table] = problem
                lanes.undecided.add(code)
                return code
            return lanes.code(output_doubts.decide_doubt(record, written=written, now=loaded.now))

        begun = lanes.records.is_there("write_id")
        doubtful = (
            runs.where(lanes.per_code(runs.code, is_to_ask, bool, begun)) if begun.any() else runs.where(slice(0))
        )
        if len(doubtful):
            new = {code: code_after(code) for code in set(doubtful.code.tolist())}
            replacement = doubtful.recode(np.array([new[code] for code in doubtful.code.tolist()], dtype=np.int64))
            deleted = replacement.where(lanes.per_code(replacement.code, lambda r: r.deleted_at is not None, bool))
            codes_by_receipt: dict[str | None, list[int]] = {}
            for code in distinct_codes(deleted.code):
                codes_by_receipt.setdefault(lanes.record(code).receipt_id, []).append(code)
            for codes in codes_by_receipt.values():
                events.add("deleted", lanes.record(codes[0]), deleted.where(np.isin(deleted.code, codes)))
            lanes.supersede(replacement)
        if len(silent) > 1:
            return OutputUnreadable(" and ".join(sorted(silent)), "; ".join(p.reason for p in silent.values()))
        return next(iter(silent.values()), None)

    def fence_writes(self, loaded: Loaded, receipt_id: str) -> None:
        """Fence off the unfinished writes of messages that a restore under a receipt makes visible.

        A table that is gone or replaced is no error: the owner's restore decides about its messages. Raises
        OutputUnreadable for any other table that does not answer.
        """
        records = loaded.lanes.records.all()
        writes = {
            output_doubts.find_begun_write(r) for r in records if output_doubts.must_fence(r, receipt_id, loaded.now)
        }
        for table, write_id in sorted(write for write in writes if write is not None):
            try:
                self.tables.confirm_or_fence(table, write_id)
            except OutputUnreadable as problem:
                if not problem.gone:
                    raise


def _make_lost_error(receipt_id: str, kinds: Collection[Part]) -> LeaseLost:
    in_words = " and some ".join(sorted(kind.value for kind in kinds))
    which = f"some are {in_words}" if len(kinds) > 1 else f"all are {in_words}"
    way = "Take queue.claim(receipt_id), and write what is held" if Part.HELD in kinds else "Receive anew"
    return LeaseLost(f"Of these messages of the claim {receipt_id}, {which}; nothing was written now. {way}")


def _unknown_write_error(runs: pa.Table) -> LeaseLost:
    return LeaseLost(
        f"The rows of this write are in its table, and none of its {count_messages(runs)} messages was acknowledged: "
        "the ledger does not know of the write. It was replaced by a backup or made anew meanwhile, or the "
        "messages expired or were restored. Whoever receives the messages writes rows for them again"
    )


def _lanes(runs: pa.Table) -> list[int]:
    lanes: list[int] = runs["lane"].unique().to_pylist()
    return lanes


def _record_after(
    queue: QueueRecord, action: Action, limits: Limits, receipts: Receipts, now: int, record: Record
) -> Record | None:
    if record is UNTOUCHED:
        return None
    changed = apply_action(queue, action, record, limits, receipts, now)[1]
    return None if changed == record else changed


def _record_pieces(lanes: Lanes, pieces: Pieces, rule: Callable[[Record], Record | None]) -> Runs:
    open_ones = pieces.where(lanes.per_code(pieces.code, lambda r: rule(r) is not None, bool))
    code = lanes.per_code(open_ones.code, lambda r: lanes.code(rule(r) or r), np.int64)
    return open_ones.recode(code).in_order()


def _plan_of(loaded: Loaded, pieces: Pieces, rule: Callable[[Record], Record | None], event: str | None) -> Plan[None]:
    """Return the plan that records what `rule` returns for each piece, and notes `event` about the changed ones."""
    lanes, events = loaded.lanes, Events()
    replacement = _record_pieces(lanes, pieces, rule)
    if event and len(replacement):
        events.add(event, lanes.record(replacement.code[0]), replacement)
    return loaded.plan(replacement, events, lambda version: None)
