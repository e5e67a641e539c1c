"""Two ledgers side by side, the one under test and the oracle's, with the same queues; and how they are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from ledger import Claim, HandleOutcome, Ledger, Queue
from ledger.errors import LedgerError
from ledger.settings import Settings
from tests.clock import FrozenClock
from tests.properties.following import Oracle

CEILING = 100
YEAR = 31_536_000
#: Which queue a step is about: mostly the one with the traffic, then its dead-letter queue, then the one beside.
QUEUES = st.sampled_from(["main", "main", "main", "dead", "beside"])
PEEKED = ("body", "status", "receive_count", "first_received_at", "sent_at", "visible_at", "message_group_id")


@dataclass
class Pair:
    """The same claim on both sides; `handles` by body. `queue`: main, dead or beside."""

    queue: str
    tested: Claim
    expected: Claim
    tested_handles: dict[str, str] = field(default_factory=dict)
    expected_handles: dict[str, str] = field(default_factory=dict)

    def part(self, part: tuple[int, int]) -> list[str]:
        """The bodies of some messages of the claim: from an offset on, every n-th."""
        return sorted(self.tested_handles, key=int)[part[0] :: part[1]]


def answered(call: Callable[[], Any]) -> Any:
    """What a call answers in terms that both sides share: the kind of its error, or its value."""
    try:
        value = call()
    except LedgerError as error:
        return type(error).__name__
    if isinstance(value, list) and not any(isinstance(one, Claim) for one in value):
        return [(o.outcome, o.error_code) if isinstance(o, HandleOutcome) else "an id" for o in value]
    return value


class World(RuleBasedStateMachine):
    """Override `open`, which answers the ledger under test; `looks` is how many messages are peeked at per step."""

    looks = 2

    def open(self, clock: FrozenClock, settings: Settings) -> Ledger:
        raise NotImplementedError

    def reopen(self) -> Ledger:
        """The ledger under test as another process would open it."""
        return self.ledger

    @initialize(
        fifo=st.booleans(),
        lanes=st.sampled_from([1, 3, 8]),
        receipts=st.sampled_from([{"LateChange": "reject"}, {"LateChange": "accept"}, {"Receipts": "recorded"}]),
        limits=st.sampled_from(["UNBOUNDED", "UNBOUNDED", "SQS"]),
        retention=st.sampled_from([None, None, 100]),
        delay=st.sampled_from([0, 0, 5]),
        receives=st.sampled_from([None, 1, 2]),
        dead_in=st.sampled_from(["dead", "dead", "main"]),
        segment=st.sampled_from([2, YEAR]),
    )
    def begin(
        self,
        fifo: bool,
        lanes: int,
        receipts: dict[str, str],
        limits: str,
        retention: int | None,
        delay: int,
        receives: int | None,
        dead_in: str,
        segment: int,
    ) -> None:
        self.clock, self.fifo, self.retention, self.lanes = FrozenClock(), fifo, retention, lanes
        # Kept for long, so that upkeep changes nothing that can be seen; messages still expire.
        self.settings = Settings(open_segment_seconds=segment, keep_deleted_receipts=YEAR)
        self.ledger, self.oracle = self.open(self.clock, self.settings), Oracle(self.clock)
        attributes: dict[str, object] = {
            "Lanes": lanes,
            **receipts,
            "VisibilityTimeout": 10,
            "MaximumVisibilityTimeout": CEILING,
            "Limits": limits,
        }
        attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if fifo else {}
        attributes |= {} if retention is None else {"MessageRetentionPeriod": retention}
        self.names = {key: f"{key}-{id(self):x}" + (".fifo" if fifo else "") for key in ("main", "dead", "beside")}
        self.tested: dict[str, Queue] = {}
        self.expected: dict[str, Queue] = {}
        for key in ("dead", "beside", "main"):
            more: dict[str, object] = {"DelaySeconds": delay} if key == "main" else {}
            if key == "main" and receives is not None:
                more["RedrivePolicy"] = self.policy(receives)
            self.tested[key] = self.ledger.create_queue(self.names[key], {**attributes, **more})
            self.expected[key] = self.oracle.ledger.create_queue(self.names[key], {**attributes, **more})
        if receives is not None and dead_in == "main":
            # M4: its own dead-letter queue, which has to be there first.
            self.both("main", lambda q: q.set_attributes({"RedrivePolicy": self.policy(receives, "main")}))
        self.bodies = 0
        self.ids: list[tuple[str, str]] = []
        self.attempts: dict[str, tuple[list[str], dict[str, Any]]] = {}
        self.pairs: list[Pair] = []
        self.steps = 0

    def policy(self, receives: int, target: str = "dead") -> dict[str, object]:
        """A redrive policy, to the dead-letter queue or another one."""
        return {"deadLetterTargetArn": self.names[target], "maxReceiveCount": receives}

    def both(self, queue: str, call: Callable[[Queue], Any]) -> Any:
        """What a call that is the same on both sides answers; they must agree."""
        tested, expected = answered(lambda: call(self.tested[queue])), answered(lambda: call(self.expected[queue]))
        assert tested == expected
        return tested

    def pair(self, data: Any) -> Pair:
        """A claim: mostly a young one, but stale ones too."""
        return self.pairs[-1 - data.draw(st.integers(0, len(self.pairs) - 1))]

    @invariant()
    def both_sides_look_the_same(self) -> None:
        if not hasattr(self, "ids"):
            return
        self.steps += 1
        for queue in self.names:
            if queue == "main" or self.steps % 3 == 0:
                # Of small sends that were joined the age may be that of one that is done.
                self.both(queue, lambda q: replace(q.counts(), age_of_oldest=None))
        for n in range(min(self.looks, len(self.ids))):
            self.compare("main", *self.ids[(self.steps * 31 + n * 7) % len(self.ids)])

    def teardown(self) -> None:
        if hasattr(self, "ids"):
            for queue in self.names if self.looks > 1 else ["main"]:
                for ours, theirs in self.ids[:: max(1, len(self.ids) // (5 * self.looks))]:
                    self.compare(queue, ours, theirs)

    def compare(self, queue: str, ours: str, theirs: str) -> None:
        """Peeks at a message, which may be in that queue or not."""
        tested = answered(lambda: self.tested[queue].peek(ours))
        expected = answered(lambda: self.expected[queue].peek(theirs))
        if isinstance(expected, str):
            assert tested == expected
            return
        for name in PEEKED:
            assert getattr(tested, name) == getattr(expected, name), (name, tested, expected)
        assert (tested.dead_letter_source or "")[:4] == (expected.dead_letter_source or "")[:4]
