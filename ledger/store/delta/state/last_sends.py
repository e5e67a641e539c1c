"""When the last message was sent to a FIFO queue, whose sends follow each other, as the messages themselves tell it.

A clock that was ahead may have sent some. After a repair (`verbs.clock_repair`) the instants of all sends before it do
not count any more: the log has how many these were, and when they arrived as the repair sees it, which is before any
send that follows. So what is asked is asked again only where an instant is ahead of the caller's clock.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ledger.rules import fifo
from ledger.rules.limits import MILLISECONDS
from ledger.store.delta.engine import Engine, Tables
from ledger.store.delta.model.where import Where

_COLUMNS = ["sequence_number", "sent_at"]


def last_send(engine: Engine, queue: str, last: int, now: int, maximum_skew: float) -> int:
    """Return the instant that no send may be before, in milliseconds, by the sends that no repair of the clock has set
    aside.

    Args:
        engine: Of the ledger.
        queue: The id of a FIFO queue.
        last: The newest instant of a send of all in the queue.
        now: By the caller's clock.
        maximum_skew: So many seconds `last` may be ahead of `now`.

    Raises what the storage does.
    """
    if last <= now + round(maximum_skew * MILLISECONDS):
        return last
    return last_counted(engine, queue, engine.messages(Where(queue), _COLUMNS, sent_after=now))


def last_counted(tables: Tables, queue: str, rows: pa.Table) -> int:
    """Of some messages, with their sequence numbers, the newest instant of those that were sent behind the last repair
    of the queue's clock, or the one behind that repair; 0: there is neither. Raises what the storage does."""
    repaired, at = max(repairs(tables, queue), default=(0, None))
    counted = rows.filter(pc.greater_equal(rows["sequence_number"], fifo.first_remembered(repaired)))
    newest = (pc.max(counted["sent_at"].cast(pa.int64())).as_py() or 0) // 1_000
    return newest if at is None else max(newest, at + 1)


def without_set_aside(tables: Tables, queue: str, rows: pa.Table) -> pa.Table:
    """Of some messages, with their sequence numbers and instants, those that a send can be a duplicate of: not those of
    a clock that was ahead of the last repair. Nobody knows how long ago they were sent.

    Raises what the storage does."""
    for repaired, at in repairs(tables, queue):
        is_counted = pc.greater_equal(rows["sequence_number"], fifo.first_remembered(repaired))
        rows = rows.filter(pc.or_(is_counted, pc.less_equal(rows["sent_at"].cast(pa.int64()), at * 1_000)))
    return rows


def not_set_aside(tables: Tables, queue: str) -> str:
    """Twin of `without_set_aside`: the condition in Spark's SQL. Raises what the storage does."""
    conditions = (
        f"(sequence_number >= {fifo.first_remembered(repaired)} OR sent_at <= timestamp_millis({at}))"
        for repaired, at in repairs(tables, queue)
    )
    return " AND ".join(["true", *conditions])


def repairs(tables: Tables, queue: str) -> list[tuple[int, int]]:
    """Return of the last repairs of a queue's clock, by their slots, how many sends were before each, and when these
    arrived as it saw it."""
    found = []
    for slot in range(fifo.REPAIRS):
        repaired = tables.transaction_version("messages", fifo.clock_repairs(queue, slot))
        at = tables.transaction_version("messages", fifo.repaired_at(queue, slot))
        if repaired is None or at is None:
            break
        found.append((repaired, at))
    return found


def slot_of_next(known: list[tuple[int, int]]) -> int:
    """Return the slot of the next repair: a free one, or that of the first of those that are known."""
    return len(known) if len(known) < fifo.REPAIRS else known.index(min(known))
