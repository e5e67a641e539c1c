"""What happens to clients at their points: drawn from a seed, or read from the list of a run that is played again.

An event is named by its client and by how many points that client has met, so that it stays where it was when steps of
other clients, or other events, are left out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.simulation.engine import Fault


class Event(NamedTuple):
    """Something that happens at a point. `number`: of the client to switch to, how many milliseconds, or what a cut
    loses."""

    kind: str  # switch, stall, skew, kill, cut, fault
    number: int = 0
    fault: Fault | None = None


Place = tuple[str, int]
STALLS = (200, 2_000, 7_000, 33_000, 95_000)


@dataclass(frozen=True)
class Rates:
    """How likely each event is at a point; faults at a commit."""

    switch: float = 0.2
    stall: float = 0.01
    skew: float = 0.002
    kill: float = 0.002
    fault: float = 0.03
    unseen: float = 0.0
    cut: float = 0.0


#: Calls about tables that are none of the ledger's, which a process may not see for a while.
UNSEEN = ("output_log", "fence_output", "append_output")
#: What may become of a commit.
OF_COMMITS = (Fault.REFUSED, Fault.CONFLICT, Fault.LOST, Fault.NEVER)


class Plan:
    """Events by a seed. `happened` is what came of it, enough to play the run again."""

    def __init__(self, seed: str, rates: Rates) -> None:
        self._seed, self._rates = seed, rates
        self._dice: dict[str, random.Random] = {}
        self.happened: dict[Place, Event] = {}
        self._order = random.Random(f"{seed}/order")

    def dice(self, client: str) -> random.Random:
        """Where a client's randomness comes from, its own and the product's on its behalf."""
        known = self._dice.get(client)
        if known is None:
            known = self._dice[client] = random.Random(f"{self._seed}/{client}")
        return known

    def at(self, client: Any, call: str, scheduler: Any) -> Event | None:
        """What happens to a client now."""
        event = self._drawn(self.dice(client.name + "!"), call, len(scheduler.clients))
        if event is not None:
            self.happened[client.name, client.points] = event
        return event

    def first(self, clients: Sequence[Any]) -> Any:
        """Who begins."""
        return self.choose(clients)

    def choose(self, ready: Sequence[Any]) -> Any:
        """Who goes on when one cannot."""
        return ready[0] if len(ready) == 1 else ready[self._order.randrange(len(ready))]

    def _drawn(self, dice: random.Random, call: str, clients: int) -> Event | None:
        rates, luck = self._rates, dice.random()
        if luck < rates.switch:
            return Event("switch", dice.randrange(clients))
        luck -= rates.switch
        if luck < rates.stall:
            return Event("stall", dice.choice(STALLS))
        luck -= rates.stall
        if luck < rates.skew:
            # Within the bound; now and then far beyond it.
            return Event("skew", dice.choice((-9_000, -2_000, 0, 2_000, 9_000, 9_000, 60_000)))
        luck -= rates.skew
        if luck < rates.kill:
            return Event("kill")
        luck -= rates.kill
        if luck < rates.cut:
            return Event("cut", dice.randrange(1 << 16))
        if call.startswith("commit ") and dice.random() < rates.fault:
            return Event("fault", 0, dice.choice(OF_COMMITS))
        if call in UNSEEN and dice.random() < rates.unseen:
            return Event("fault", 0, Fault.UNSEEN)
        return None


class Script(Plan):
    """Exactly the events of a list."""

    def __init__(self, seed: str, events: Mapping[Place, Event]) -> None:
        super().__init__(seed, Rates())
        self._events = events

    def at(self, client: Any, call: str, scheduler: Any) -> Event | None:
        event = self._events.get((client.name, client.points))
        if event is not None:
            self.happened[client.name, client.points] = event
        return event
