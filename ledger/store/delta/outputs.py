"""Writes of output, see `rules.output`: begun in the queue, decided by the output table, finished in the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ledger.clock import Clock
from ledger.errors import ContentionOutlastedRetries, InvalidParameterValue, LeaseLost
from ledger.rules import output
from ledger.rules.output import Part
from ledger.rules.state import Record
from ledger.rules.visibility import same_attempt
from ledger.settings import Settings
from ledger.store import QueueRecord
from ledger.store.delta import axis
from ledger.store.delta.axis import Pieces, Runs
from ledger.store.delta.deciding import Loaded, in_order, load
from ledger.store.delta.engine import Conflict, Engine, tuple_of
from ledger.store.delta.events import Events
from ledger.store.delta.locks import table_lock
from ledger.store.delta.transaction import Plan, Transactions, pause

ATTEMPTS = 20


class Outputs:
    """The writes of claims to Delta tables."""

    def __init__(self, engine: Engine, transactions: Transactions, settings: Settings) -> None:
        self._engine, self._transactions, self._settings = engine, transactions, settings

    def step(self, name: str) -> None:
        """Tells whoever listens that a write has come so far."""
        self._transactions.step(name)

    @property
    def owner(self) -> str:
        """Who writes."""
        return self._transactions.owner

    def without_spark(self) -> Any:
        """The engine, when it can write an Arrow table to any Delta table. Raises InvalidParameterValue."""
        if not hasattr(self._engine, "append_output"):
            raise InvalidParameterValue(
                "rows",
                "a pyarrow.Table",
                "This ledger commits through Spark and writes DataFrames",
                "Make it a DataFrame.",
            )
        return self._engine

    def begin(self, queue: QueueRecord, receipt_id: str, runs: pa.Table, table: str, clock: Clock) -> str | None:
        """Records that the messages of `runs` (RUNS) are about to be written; answers the write's id.

        None: an earlier call has written them all. Raises LeaseLost when the receipt does not hold one of them, or an
        earlier call wrote only some of them: then nothing is to be written.
        """
        identifier = output.new_write_id()

        def decide(losses: int) -> Plan[str | None]:
            loaded, pieces = self._pieces(queue, runs, clock)
            lanes, events, parts = loaded.lanes, Events(), {}
            for code in set(pieces.code.tolist()):
                record = lanes.record(code)
                written = output.in_doubt(record) and self.written(record.writing_to, record.write_id)
                parts[code] = output.part(record, receipt_id, loaded.now, written=written)
            kinds = set(parts.values())
            if kinds == {Part.WRITTEN}:
                return self._finishing(loaded, pieces, events, lambda record: record.write_id, lambda version: None)
            if kinds != {Part.HELD}:
                found = " and some ".join(sorted(kind.value for kind in kinds))
                raise LeaseLost(
                    f"Of these messages of the claim {receipt_id}, some are {found}; nothing was written "
                    "now. Take queue.claim(receipt_id) or receive anew, and write what is held"
                )
            new = {code: lanes.code(output.begin(lanes.record(code), table, identifier)) for code in parts}
            code = np.array([new[old] for old in pieces.code.tolist()], dtype=np.int64)
            over = in_order(Runs(pieces.first, pieces.last, code))
            events.add("writing", lanes.record(over.code[0]), over)
            return loaded.plan(over, events, lambda version: identifier)

        return self._transactions.run("begin_write", "visibility", queue.id, decide)

    def finish(self, queue: QueueRecord, receipt_id: str, runs: pa.Table, identifier: str, clock: Clock) -> None:
        """Deletes what was written, unless whoever took the messages over has recorded that already."""

        def decide(losses: int) -> Plan[None]:
            loaded, pieces = self._pieces(queue, runs, clock)
            return self._finishing(loaded, pieces, Events(), lambda record: identifier, lambda version: None)

        self._transactions.run("finish_write", "visibility", queue.id, decide)

    def _pieces(self, queue: QueueRecord, runs: pa.Table, clock: Clock) -> tuple[Loaded, Pieces]:
        loaded = load(self._engine, self._settings, queue, clock, tuple_of(runs["lane"].to_pylist()))
        first = loaded.lanes.positions(runs["lane"], runs["segment"], runs["first_seq"])
        last = first + runs["last_seq"].to_numpy() - runs["first_seq"].to_numpy()
        return loaded, axis.cut(loaded.lanes.runs, first, last)

    @staticmethod
    def _finishing(
        loaded: Loaded,
        pieces: Pieces,
        events: Events,
        write: Callable[[Record], str | None],
        answer: Callable[[int], Any],
    ) -> Plan[Any]:
        lanes = loaded.lanes
        ended = lambda r: output.finish(r, write(r), loaded.now)  # noqa: E731
        open_ones = lanes.per_code(pieces.code, lambda r: ended(r) is not None, bool)
        code = lanes.per_code(pieces.code[open_ones], lambda r: lanes.code(ended(r)), np.int64)
        over = in_order(Runs(pieces.first[open_ones], pieces.last[open_ones], code))
        if len(over.first):
            events.add("deleted", lanes.record(over.code[0]), over)
        return loaded.plan(over, events, answer)

    def written(self, table: str, identifier: str) -> bool:
        """Whether a write is in. If not, it never will be from now on: it is fenced off."""
        application = output.application(identifier)
        for losses in range(ATTEMPTS):
            known = self._engine.output_version(table, application)
            if known is not None:
                return known == output.WRITTEN
            try:
                with table_lock(table).exclusive():
                    if not self._engine.fence_output(table, application, output.FENCED):
                        return False
            except Conflict:
                pause(losses)
        raise ContentionOutlastedRetries("fence", ATTEMPTS, 0.0)

    def decide_doubts(self, loaded: Loaded, events: Events, attempt_id: str | None = None) -> None:
        """Asks the tables about what is free, or held by an earlier run of this attempt, and in doubt; from then on
        `loaded` has it as deleted, or as never written."""
        lanes, runs = loaded.lanes, loaded.lanes.runs

        def asked(record: Record) -> bool:
            mine = attempt_id is not None and same_attempt(record, attempt_id, loaded.now)
            free = record.visible_at is None or record.visible_at <= loaded.now
            return output.in_doubt(record) and (mine or free)

        def answered(record: Record) -> int:
            written = self.written(record.writing_to, record.write_id)
            return lanes.code(output.decided(record, written=written, now=loaded.now))

        doubtful = lanes.per_code(runs.code, asked, bool)
        if doubtful.any():
            over = Runs(
                runs.first[doubtful], runs.last[doubtful], lanes.per_code(runs.code[doubtful], answered, np.int64)
            )
            deleted = lanes.per_code(over.code, lambda r: r.deleted_at is not None, bool)
            if deleted.any():
                events.add("deleted", lanes.record(over.code[deleted][0]), Runs(*(column[deleted] for column in over)))
            lanes.supersede(over)
