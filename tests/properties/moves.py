"""The part of the random programs that is about time, dead letters, and what an owner does to a queue as a whole."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.properties.worlds import QUEUES, World, answered

DESTINATIONS = st.sampled_from([None, None, "main", "beside", "dead"])


class Moves(World):
    """Time passes; messages are moved, purged and restored; policies change; upkeep runs."""

    @rule(seconds=st.sampled_from([0.001, 1, 5, 9.999, 20, 60, 100, 299.999, 900]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(receives=st.sampled_from([None, 1, 2, 3]))
    def the_redrive_policy_changes(self, receives: int | None) -> None:
        policy = "" if receives is None else self.policy(receives)
        self.both("main", lambda queue: queue.set_attributes({"RedrivePolicy": policy}))

    @rule(source=st.sampled_from(["dead", "dead", "beside"]), destination=DESTINATIONS)
    def redrive_all(self, source: str, destination: str | None) -> None:
        to = destination and self.names[destination]
        self.both(source, lambda queue: queue.redrive(destination=to))

    @precondition(lambda self: self.ids)
    @rule(
        source=st.sampled_from(["dead", "dead", "beside"]),
        destination=DESTINATIONS,
        at=st.integers(0, 200),
        step=st.integers(1, 9),
    )
    def redrive_chosen(self, source: str, destination: str | None, at: int, step: int) -> None:
        to, chosen = destination and self.names[destination], self.ids[at % len(self.ids) :: step]
        tested = answered(lambda: self.tested[source].redrive([ours for ours, _ in chosen], to))
        assert tested == answered(lambda: self.expected[source].redrive([theirs for _, theirs in chosen], to))

    @precondition(lambda self: self.fifo)
    @rule(destination=DESTINATIONS, most=st.integers(1, 3))
    def redrive_the_first(self, destination: str | None, most: int) -> None:
        # Only FIFO queues have an order that says which those are.
        to = destination and self.names[destination]
        self.both("dead", lambda queue: queue.redrive(destination=to, max_messages=most))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        pair = self.pair(data)
        tested = self.tested[pair.queue].restore(pair.tested.receipt_id)
        assert tested == self.expected[pair.queue].restore(pair.expected.receipt_id)

    @precondition(lambda self: self.steps % 7 == 6)
    @rule(queue=QUEUES)
    def purge(self, queue: str) -> None:
        self.both(queue, lambda q: q.purge())

    @precondition(lambda self: self.ids)
    @rule()
    def another_process_goes_on(self) -> None:
        self.ledger = self.reopen()
        self.tested = {key: self.ledger.queue(name) for key, name in self.names.items()}
        # A claim knows what was ended through the queue object that it came from: the other side's is another one, too.
        self.expected = {key: self.oracle.ledger.queue(name) for key, name in self.names.items()}

    @precondition(lambda self: self.steps % 5 == 4 and self.retention is None)
    @rule()
    def upkeep(self) -> None:
        """Rewrites small files; nothing is finished for so long that it is dropped."""
        self.keep()

    def keep(self) -> None:
        """Upkeep of the ledger under test, if it has one."""
