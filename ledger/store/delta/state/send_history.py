"""The facts about earlier sends that a send needs: attempts, the newest send, the times of lanes.

*The newest send to a FIFO queue* (`find_last_send`): no send may be earlier than the send before it. A clock repair
(`verbs.clock_repair`) sets all earlier sends aside: their instants do not count any more. The log has the number of
these sends, and the instant at which they count as arrived. Every later send is after this instant.

*The times of lanes* (`LaneTimes`). A lane's time is the instant of its last commit. While this time is too far ahead,
receives are refused. Sends are refused, too: their messages could expire before a receiver may get them. Reading the
lanes takes longer than the rest of a send, so their times are kept for LOOK_SECONDS.
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
from ledger.store.delta.model.tables import HEAD, Where
from ledger.store.delta.state.lane_records import Heads
from ledger.store.protocol import QueueRecord


def find_earlier_send(tables: Tables, attempt: Attempt) -> str | None:
    """Return the key of the segments that an earlier send under this attempt id wrote, or None.

    Makes the earlier send durable. Raises InvalidParameterValue if that send had other content.
    """
    content = tables.transaction_version("messages", attempt.transaction[0])
    if content is None:
        return None
    attempt.require_same(content)
    tables.make_durable("messages", tables.version("messages"))
    return attempt.key


_COLUMNS = ["sequence_number", "sent_at"]


def find_last_send(engine: Engine, queue: str, last: int, now: int, maximum_skew: float) -> int:
    """Return the earliest instant for the next send to a FIFO queue, in milliseconds.

    The result is `last`, the newest instant of all sends, unless `last` is more than `maximum_skew` seconds ahead of
    `now`. Then the sends that a clock repair set aside do not count.
    """
    if last <= now + round(maximum_skew * MILLISECONDS):
        return last
    return find_last_counted(engine, queue, engine.messages(Where(queue), _COLUMNS, sent_after=now))


def find_last_counted(tables: Tables, queue: str, rows: pa.Table) -> int:
    """Return the newest instant, in milliseconds, of the messages in `rows` that were sent after the last clock repair.

    The result is later than the instant that the repair noted. The result is 0 if there is neither a repair nor such a
    message.
    """
    repaired, at = max(repairs(tables, queue), default=(0, None))
    counted = rows.filter(pc.greater_equal(rows["sequence_number"], fifo.first_remembered(repaired)))
    newest = (pc.max(counted["sent_at"].cast(pa.int64())).as_py() or 0) // 1_000
    return newest if at is None else max(newest, at + 1)


def drop_set_aside(tables: Tables, queue: str, rows: pa.Table) -> pa.Table:
    """Return the rows (`sequence_number`, `sent_at`) of the messages of which a new send can be a duplicate.

    A message from before a clock repair is left out if its instant is later than the instant that the repair noted.
    """
    for repaired, at in repairs(tables, queue):
        is_counted = pc.greater_equal(rows["sequence_number"], fifo.first_remembered(repaired))
        rows = rows.filter(pc.or_(is_counted, pc.less_equal(rows["sent_at"].cast(pa.int64()), at * 1_000)))
    return rows


def build_set_aside_condition(tables: Tables, queue: str) -> str:
    """Return the condition of `drop_set_aside` in SQL."""
    conditions = (
        f"(sequence_number >= {fifo.first_remembered(repaired)} OR sent_at <= timestamp_millis({at}))"
        for repaired, at in repairs(tables, queue)
    )
    return " AND ".join(["true", *conditions])


def repairs(tables: Tables, queue: str) -> list[tuple[int, int]]:
    """Return the last clock repairs by slot: the number of sends before each repair, and the instant that it noted."""
    last_repairs = []
    for slot in range(fifo.REPAIRS):
        repaired = tables.transaction_version("messages", fifo.clock_repairs_application(queue, slot))
        at = tables.transaction_version("messages", fifo.repair_time_application(queue, slot))
        if repaired is None or at is None:
            break
        last_repairs.append((repaired, at))
    return last_repairs


def choose_slot(repairs: list[tuple[int, int]]) -> int:
    return len(repairs) if len(repairs) < fifo.REPAIRS else repairs.index(min(repairs))


LOOK_SECONDS = 60.0
MOST_QUEUES = 10_000


class _Look(NamedTuple):
    version: int
    latest: int
    at: float


class LaneTimes:
    """The time of the last commit to each queue's lanes. Threads share the object."""

    def __init__(self, tables: Tables, settings: Settings) -> None:
        self._tables, self._skew = tables, settings.maximum_clock_skew
        self._looks: dict[str, _Look] = {}

    def require(self, queue: QueueRecord, clock: Clock) -> None:
        """Raise ClocksDisagree if a lane's time, or the queue's `noted_at`, is too far ahead of the clock."""
        look, passed, now = self._looks.get(queue.id), passing_of(clock)(), clock()
        if look is None or passed - look.at > LOOK_SECONDS or look.latest - now > self._skew * MILLISECONDS:
            look = self._look(queue.id, look, passed)
            # The thread may have been suspended before it read the lanes.
            now = clock()
        instants.advance_to_last_commit(now, look.latest, self._skew)
        instants.require_expiry(now, queue.noted_at, self._skew)

    def forget(self, queue: str) -> None:
        self._looks.pop(queue, None)

    def _look(self, queue: str, last: _Look | None, passed: float) -> _Look:
        if last is not None and last.version == self._tables.version("visibility"):
            look = last._replace(at=passed)
        else:
            snapshot = self._tables.load("visibility", Where(queue))
            heads = Heads(queue, snapshot.rows.filter(pc.equal(snapshot.rows["segment"], HEAD)))
            look = _Look(snapshot.version, heads.latest, passed)
        if len(self._looks) >= MOST_QUEUES:
            self._looks = {}
        self._looks[queue] = look
        return look
