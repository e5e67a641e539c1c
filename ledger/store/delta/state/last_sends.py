"""When the last message was sent to a FIFO queue, whose sends follow each other, as the messages themselves tell it.

A clock that was ahead may have sent some. After a repair (`verbs.clock_repair`) the instants of all sends before it do
not count any more: it notes in the log how many these were. So what is asked is asked again only where an instant is
ahead of the caller's clock.
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
    """Return when the last message was sent, in milliseconds, of sends that no repair of the clock has set aside.

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
    of the queue's clock; 0: there are none. Raises what the storage does."""
    counted = rows.filter(pc.greater_equal(rows["sequence_number"], first_counted(tables, queue)))
    return (pc.max(counted["sent_at"].cast(pa.int64())).as_py() or 0) // 1_000


def first_counted(tables: Tables, queue: str) -> int:
    """Return the lowest sequence number of a send behind the last repair of a queue's clock."""
    return fifo.first_remembered(tables.transaction_version("messages", fifo.clock_repairs(queue)) or 0)
