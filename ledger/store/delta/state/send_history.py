"""What a send has to know of earlier sends and receives: its attempt, the queue's newest send, the times of its lanes.

*The newest send to a FIFO queue*, whose sends follow each other (`last_send`). A clock that was ahead may have sent
some. After a repair (`verbs.clock_repair`) the instants of all sends before it do not count any more: the log has how
many these were, and when they arrived as the repair sees it, which is before any send that follows. So the log is read
again only where an instant is ahead of the caller's clock.

*The times of lanes* (`LaneTimes`). Where a lane's time is further ahead than clocks may be apart, every receive is
refused. A message that was sent there meanwhile could expire before anybody may receive it. So a send is refused, too.
A look at the lanes takes longer than all else that a send does, and is made once in LOOKED seconds for each queue, if
anything was committed.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ledger.clock import Clock, passing_of
from ledger.rules import fifo, instants
from ledger.rules.attempts import Attempt
from ledger.rules.limits import MILLISECONDS
from ledger.settings import Settings
from ledger.store.delta.engine import Engine, Tables
from ledger.store.delta.model.tables import HEAD
from ledger.store.delta.model.where import Where
from ledger.store.delta.state.head_rows import Heads
from ledger.store.protocol import QueueRecord


def sent_before(tables: Tables, attempt: Attempt) -> str | None:
    """The key of the segments that a send under this attempt wrote, which survive a power cut; None when none was
    committed.

    Raises InvalidParameterValue when what was committed under it is another send.
    """
    content = tables.transaction_version("messages", attempt.transaction[0])
    if content is None:
        return None
    attempt.require_same(content)
    tables.make_durable("messages", tables.version("messages"))
    return attempt.key


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


#: For so many seconds a look counts.
LOOKED = 60.0
#: Of more queues than this nothing is remembered, until it is looked again.
MOST_QUEUES = 10_000


class _Look(NamedTuple):
    version: int
    latest: int
    at: float


class LaneTimes:
    """Threads share it."""

    def __init__(self, tables: Tables, settings: Settings) -> None:
        self._tables, self._skew = tables, settings.maximum_clock_skew
        self._looks: dict[str, _Look] = {}

    def require(self, queue: QueueRecord, clock: Clock) -> None:
        """Raise ClocksDisagree where a lane of the queue, or what has expired there, is further ahead of the clock than
        clocks may be apart."""
        look, passed, now = self._looks.get(queue.id), passing_of(clock)(), clock()
        if look is None or passed - look.at > LOOKED or look.latest - now > self._skew * MILLISECONDS:
            look = self._look(queue.id, look, passed)
            # Read again after the look: a thread that stood still before it finds later commits of others there.
            now = clock()
        instants.not_before(now, look.latest, self._skew)
        instants.require_expiry(now, queue.noted_at, self._skew)

    def forget(self, queue: str) -> None:
        """Look again at the next send: a verb was refused there."""
        self._looks.pop(queue, None)

    def _look(self, queue: str, known: _Look | None, passed: float) -> _Look:
        if known is not None and known.version == self._tables.version("visibility"):
            look = known._replace(at=passed)
        else:
            snapshot = self._tables.load("visibility", Where(queue))
            heads = Heads(queue, snapshot.rows.filter(pc.equal(snapshot.rows["segment"], HEAD)))
            look = _Look(snapshot.version, heads.latest, passed)
        if len(self._looks) >= MOST_QUEUES:
            self._looks = {}
        self._looks[queue] = look
        return look
