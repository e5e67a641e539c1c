"""Random programs of verbs, run side by side on a store under test and on the oracle; after each step both must agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledger import Claim, HandleOutcome, Ledger, Queue
from ledger.errors import LedgerError
from tests.clock import FrozenClock
from tests.properties.following import Oracle

CEILING = 100
TIMEOUTS = st.sampled_from([0, 1, 5, 20, 60, CEILING])
ATTEMPTS = st.sampled_from([None, None, None, "one", "other"])
PART = st.tuples(st.integers(0, 3), st.integers(1, 4))


@dataclass
class Pair:
    """The same claim on both sides; `handles` by body."""

    tested: Claim
    expected: Claim
    tested_handles: dict[str, str] = field(default_factory=dict)
    expected_handles: dict[str, str] = field(default_factory=dict)

    def part(self, part: tuple[int, int]) -> list[str]:
        """The bodies of some messages of the claim: from an offset on, every n-th."""
        return sorted(self.tested_handles, key=int)[part[0]::part[1]]


def answered(call: Callable[[], Any]) -> Any:
    """What a call answers in terms that both sides share: the kind of its error, or its value."""
    try:
        value = call()
    except LedgerError as error:
        return type(error).__name__
    if isinstance(value, list):
        return [(o.outcome, o.error_code) if isinstance(o, HandleOutcome) else "an id" for o in value]
    return value


class Programs(RuleBasedStateMachine):
    """Override `open`, which answers the ledger under test; `looks` is how many messages are peeked at per step."""

    looks = 3

    def open(self, clock: FrozenClock) -> Ledger:
        raise NotImplementedError

    @initialize(lanes=st.sampled_from([1, 3]), late=st.sampled_from(["reject", "accept"]))
    def begin(self, lanes: int, late: str) -> None:
        self.clock = FrozenClock()
        self.name = f"queue-{id(self):x}-{lanes}-{late}"
        attributes = {
            "Lanes": lanes, "LateChange": late, "VisibilityTimeout": 10, "MaximumVisibilityTimeout": CEILING,
        }
        self.ledger, self.oracle = self.open(self.clock), Oracle(self.clock)
        self.tested: Queue = self.ledger.create_queue(self.name, attributes)
        self.expected: Queue = self.oracle.ledger.create_queue(self.name, attributes)
        self.ids: list[tuple[str, str]] = []
        self.pairs: list[Pair] = []
        self.sends: set[str] = set()
        self.steps = 0

    @rule(count=st.sampled_from([1, 1, 2, 3, 10, 150]), attempt=st.sampled_from([None, None, "send-1", "send-2"]))
    def send(self, count: int, attempt: str | None) -> None:
        first = len(self.ids)
        bodies = [str(n) for n in range(first, first + count)]
        tested = self.tested.send(bodies, attempt_id=attempt)
        expected = self.expected.send(bodies, attempt_id=attempt)
        assert len(tested) == len(expected)
        if attempt in self.sends:
            assert set(zip(tested, expected)) <= set(self.ids), "a repeated send answers the ids of then"
        else:
            self.ids += zip(tested, expected)
            self.sends |= {attempt} - {None}

    @rule(asked=st.sampled_from([1, 1, 2, 7, 50, None]), timeout=st.one_of(st.none(), TIMEOUTS), attempt=ATTEMPTS)
    def receive(self, asked: int | None, timeout: int | None, attempt: str | None) -> None:
        tested = self.tested.receive(asked, timeout, attempt_id=attempt)
        messages = tested.messages()
        expected = self.oracle.follow(self.expected, [m.body for m in messages], asked, timeout, attempt)
        assert tested.deadline == expected.deadline
        ours = {m.body: m for m in messages}
        theirs = {m.body: m for m in expected}
        for body, message in ours.items():
            other = theirs[body]
            assert message.receive_count == other.receive_count
            assert (message.first_received_at, message.sent_at) == (other.first_received_at, other.sent_at)
            assert message.message_id == self.ids[int(body)][0]
        if tested:
            self.pairs.append(Pair(
                tested, expected, {b: m.receipt_handle for b, m in ours.items()},
                {b: m.receipt_handle for b, m in theirs.items()},
            ))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), verb=st.sampled_from(["extend", "extend", "release", "delete"]), timeout=TIMEOUTS)
    def act_on_a_whole_claim(self, data: Any, verb: str, timeout: int) -> None:
        pair = self._pair(data)
        arguments = (timeout,) if verb == "extend" else ()
        tested = answered(lambda: getattr(pair.tested, verb)(*arguments))
        assert tested == answered(lambda: getattr(pair.expected, verb)(*arguments))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), delete=PART, release=PART, extend=PART, timeout=TIMEOUTS)
    def settle(self, data: Any, delete: tuple, release: tuple, extend: tuple, timeout: int) -> None:
        pairs = [self._pair(data) for _ in range(3)]
        parts = [pair.part(part) for pair, part in zip(pairs, (delete, release, extend))]
        ours = [[pair.tested_handles[b] for b in part] for pair, part in zip(pairs, parts)]
        theirs = [[pair.expected_handles[b] for b in part] for pair, part in zip(pairs, parts)]

        def run(queue: Queue, handles: list[list[str]]) -> Any:
            names = ("delete", "release", "extend")
            return queue.settle(**dict(zip(names, handles)), visibility_timeout=timeout)

        assert answered(lambda: run(self.tested, ours)) == answered(lambda: run(self.expected, theirs))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), part=PART, timeout=TIMEOUTS)
    def change_some(self, data: Any, part: tuple, timeout: int) -> None:
        pair = self._pair(data)
        bodies = pair.part(part)
        tested = answered(lambda: self.tested.change_visibility([pair.tested_handles[b] for b in bodies], timeout))
        expected = answered(lambda: self.expected.change_visibility([pair.expected_handles[b] for b in bodies], timeout))
        assert tested == expected

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), at=st.integers(0, 200), timeout=st.one_of(st.none(), TIMEOUTS))
    def act_on_one_handle(self, data: Any, at: int, timeout: int | None) -> None:
        pair = self._pair(data)
        body = sorted(pair.tested_handles)[at % len(pair.tested_handles)]

        def run(queue: Queue, handle: str) -> Any:
            return queue.delete(handle) if timeout is None else queue.change_visibility(handle, timeout)

        tested = answered(lambda: run(self.tested, pair.tested_handles[body]))
        assert tested == answered(lambda: run(self.expected, pair.expected_handles[body]))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def find_a_claim_by_its_receipt(self, data: Any) -> None:
        pair = self._pair(data)
        tested = self.tested.claim(pair.tested.receipt_id)
        expected = self.expected.claim(pair.expected.receipt_id)
        assert (tested.count, sorted(m.body for m in tested)) == (expected.count, sorted(m.body for m in expected))

    @precondition(lambda self: self.ids)
    @rule(at=st.integers(0, 200), timeout=TIMEOUTS)
    def lock(self, at: int, timeout: int) -> None:
        ours, theirs = self.ids[at % len(self.ids)]
        assert answered(lambda: self.tested.lock(ours, timeout)) == answered(lambda: self.expected.lock(theirs, timeout))

    @rule(seconds=st.sampled_from([0.001, 1, 5, 9.999, 20, 60]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.steps % 7 == 6)
    @rule()
    def purge(self) -> None:
        assert self.tested.purge() == self.expected.purge()

    @precondition(lambda self: self.ids)
    @rule()
    def another_process_goes_on(self) -> None:
        self.ledger = self.reopen()
        self.tested = self.ledger.queue(self.name)

    def reopen(self) -> Ledger:
        """The ledger under test as another process would open it."""
        return self.ledger

    @invariant()
    def both_sides_look_the_same(self) -> None:
        if not hasattr(self, "ids"):
            return
        self.steps += 1
        assert self.tested.counts() == self.expected.counts()
        for n in range(min(self.looks, len(self.ids))):
            self._compare(*self.ids[(self.steps * 31 + n * 7) % len(self.ids)])

    def teardown(self) -> None:
        if hasattr(self, "ids"):
            for ours, theirs in self.ids[:: max(1, len(self.ids) // (10 * self.looks))]:
                self._compare(ours, theirs)

    def _pair(self, data: Any) -> Pair:
        # Mostly young claims, but stale ones too.
        return self.pairs[-1 - data.draw(st.integers(0, len(self.pairs) - 1))]

    def _compare(self, ours: str, theirs: str) -> None:
        tested, expected = self.tested.peek(ours), self.expected.peek(theirs)
        for name in ("body", "status", "receive_count", "first_received_at", "sent_at", "visible_at"):
            assert getattr(tested, name) == getattr(expected, name), (tested, expected)
