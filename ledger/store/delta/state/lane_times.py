"""How far the times of queues' lanes have come, for sends, which do not read lanes.

Where a lane's time is further ahead than clocks may be apart, every receive is refused. What was sent there meanwhile
would be answered, and could expire before anybody may receive it. So a send is refused, too. A look at the lanes takes
longer than all else that a send does, and is made once in LOOKED seconds for each queue, if anything was committed.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow.compute as pc

from ledger.clock import Clock, passing_of
from ledger.rules import instants
from ledger.rules.limits import MILLISECONDS
from ledger.settings import Settings
from ledger.store.delta.engine import Tables
from ledger.store.delta.model.tables import HEAD
from ledger.store.delta.model.where import Where
from ledger.store.delta.state.head_rows import Heads
from ledger.store.protocol import QueueRecord

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
