"""Random programs of verbs, run on a store under test and on the oracle; after each step both must agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from ledger import Queue
from ledger.client.handles import HandleList, requests_of_list
from ledger.client.settling import apply
from ledger.rules.attributes import limits_of
from ledger.rules.limits import Limits
from ledger.rules.visibility import Verb
from ledger.store.protocol import Postponed, count_by_outcome
from tests.properties.moves import Moves
from tests.properties.worlds import CEILING, QUEUES, Pair, answered

TIMEOUTS = st.sampled_from([0, 1, 5, 20, 60, CEILING])
ATTEMPTS = st.sampled_from([None, None, None, "one", "other"])
PART = st.tuples(st.integers(0, 3), st.integers(1, 4))


class Programs(Moves):
    """Sending, receiving, and acting on what was received."""

    @rule(
        count=st.sampled_from([1, 1, 2, 3, 10, 150]),
        attempt=st.sampled_from([None, None, "send-1", "send-2"]),
        delay=st.sampled_from([None, None, None, 0, 5, 900]),
        retry=st.booleans(),
    )
    def send(self, count: int, attempt: str | None, delay: int | None, retry: bool) -> None:
        """Under an attempt id that was used before: the same again, or other messages, which are refused."""
        if self.fifo:
            return
        bodies, more = [str(self.bodies + n) for n in range(count)], {"attempt_id": attempt, "delay_seconds": delay}
        before = self.attempts.get(attempt)
        if before is not None and not retry:
            tested = answered(lambda: self.tested["main"].send(bodies, **more))
            assert tested == answered(lambda: self.expected["main"].send(bodies, **more)) == "InvalidParameterValue"
            return
        bodies, more = before or (bodies, more)
        known = len(self.ids)
        self._sent(self._send(bodies, **more))
        assert len(self.ids) == known + (0 if before else count)
        if attempt is not None:
            self.attempts[attempt] = bodies, more
        self.bodies += count

    @rule(entries=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, None, "1", "2"])), max_size=5))
    def send_in_order(self, entries: list[tuple[str, str | None]]) -> None:
        if not self.fifo:
            return
        messages = []
        for n, (group, deduplication) in enumerate(entries):
            message = {"MessageBody": str(self.bodies + n), "MessageGroupId": group}
            messages.append(message | ({"MessageDeduplicationId": deduplication} if deduplication else {}))
        self._sent(self._send(messages))
        self.bodies += len(entries)

    def _send(self, messages: list[Any], **more: Any) -> list[tuple[str, str]]:
        tested, expected = self.tested["main"].send(messages, **more), self.expected["main"].send(messages, **more)
        assert len(tested) == len(expected)
        return list(zip(tested, expected))

    def _sent(self, pairs: list[tuple[str, str]]) -> None:
        """A duplicate is answered the id of the message that it repeats, on both sides."""
        ours, theirs = (dict.fromkeys(one[side] for one in self.ids) for side in (0, 1))
        for pair in pairs:
            assert (pair[0] in ours) == (pair[1] in theirs), "only one side took it for a duplicate"
            if pair[0] in ours:
                assert pair in self.ids
            else:
                self.ids.append(pair)
                ours[pair[0]], theirs[pair[1]] = None, None

    @rule(
        queue=QUEUES,
        asked=st.sampled_from([1, 1, 2, 7, 50, None]),
        timeout=st.one_of(st.none(), TIMEOUTS),
        attempt=ATTEMPTS,
    )
    def receive(self, queue: str, asked: int | None, timeout: int | None, attempt: str | None) -> None:
        tested = answered(lambda: self.tested[queue].receive(asked, timeout, attempt_id=attempt))
        if isinstance(tested, str):
            assert tested == answered(lambda: self.expected[queue].receive(asked, timeout, attempt_id=attempt))
            return
        messages = tested.messages()
        bodies = [m.body for m in messages]
        expected = self.oracle.follow(self.expected[queue], bodies, asked, timeout, attempt)
        others = expected.messages()
        assert tested.deadline == expected.deadline and {m.body for m in others} == set(bodies)
        ours, theirs = {m.body: m for m in messages}, {m.body: m for m in others}
        by_id = dict(self.ids)
        for body, message in ours.items():
            other = theirs[body]
            for name in ("receive_count", "first_received_at", "sent_at", "status", "message_group_id"):
                assert getattr(message, name) == getattr(other, name), name
            assert by_id[message.message_id] == other.message_id
        assert not self.fifo or bodies == [m.body for m in others], "also when an attempt is given its claim again"
        if tested:
            self.pairs.append(
                Pair(
                    queue,
                    tested,
                    expected,
                    {b: m.receipt_handle for b, m in ours.items()},
                    {b: m.receipt_handle for b, m in theirs.items()},
                )
            )

    @precondition(lambda self: self.fifo)
    @rule(queue=QUEUES, requests=st.lists(st.tuples(st.sampled_from([1, 2, 7, None]), TIMEOUTS, ATTEMPTS), max_size=4))
    def receive_many(self, queue: str, requests: list[tuple[int | None, int, str | None]]) -> None:
        # Only FIFO queues have an order that says which messages each of them gets.
        tested = answered(lambda: self.tested[queue].receive_many(requests))
        expected = answered(lambda: self.expected[queue].receive_many(requests))
        if isinstance(tested, str) or isinstance(expected, str):
            assert tested == expected
            return
        for ours, theirs in zip(tested, expected, strict=True):
            (mine, others), errors = (ours.messages(), theirs.messages()), [type(one.error) for one in (ours, theirs)]
            assert [m.body for m in mine] == [m.body for m in others] and errors[0] is errors[1]
            assert [m.receive_count for m in mine] == [m.receive_count for m in others]
            assert ours.deadline == theirs.deadline
            if ours:
                handles = [{m.body: m.receipt_handle for m in side} for side in (mine, others)]
                self.pairs.append(Pair(queue, ours, theirs, *handles))

    @precondition(lambda self: self.pairs)
    @rule(
        data=st.data(),
        verb=st.sampled_from(["extend", "extend", "release", "delete"]),
        timeout=TIMEOUTS,
        counted=st.booleans(),
    )
    def act_on_a_whole_claim(self, data: Any, verb: str, timeout: int, counted: bool) -> None:
        pair = self.pair(data)
        arguments = (timeout,) if verb == "extend" else ()
        more = {"counted": counted} if verb == "release" else {}
        tested = answered(lambda: getattr(pair.tested, verb)(*arguments, **more))
        assert tested == answered(lambda: getattr(pair.expected, verb)(*arguments, **more))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), part=PART, timeout=TIMEOUTS, counted=st.booleans(), mark=st.integers(0, 2))
    def postpone_some(self, data: Any, part: tuple, timeout: int, counted: bool, mark: int) -> None:
        """Gives messages of a claim back, hidden until a deadline, as claim.write and Queue.work do."""
        pair = self.pair(data)
        how = (pair.part(part), timeout, counted, mark)
        tested = answered(lambda: self._postpone(self.tested[pair.queue], pair.tested_handles, *how))
        assert tested == answered(lambda: self._postpone(self.expected[pair.queue], pair.expected_handles, *how))

    @staticmethod
    def _postpone(
        queue: Queue, known: dict[str, str], part: list[str], timeout: int, counted: bool, mark: int
    ) -> list[tuple[Any, ...]]:
        handles: list[str | None] = [known[body] for body in part]
        access, record = queue.access, queue.access.record()
        asked = HandleList(
            record, requests_of_list(handles, Verb.CHANGE, timeout, limits_of(record.attributes)), Limits()
        )
        how = {"whole_claim": True, "counted": counted, "mark": mark, "postponed": Postponed.RETRY if timeout else None}
        answers = apply(access, record, [replace(action, **how) for action in asked.actions])
        return sorted((outcome.value, count) for one in answers for outcome, count in count_by_outcome(one).items())

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), part=PART)
    def reject_some(self, data: Any, part: tuple) -> None:
        """Makes dead letters of messages of a claim at once, as a consumer does whose handler raises Reject."""
        pair = self.pair(data)
        chosen = pair.part(part)
        tested = answered(lambda: self._reject(self.tested[pair.queue], pair.tested_handles, chosen))
        assert tested == answered(lambda: self._reject(self.expected[pair.queue], pair.expected_handles, chosen))

    @staticmethod
    def _reject(queue: Queue, known: dict[str, str], part: list[str]) -> int | None:
        handles: list[str | None] = [known[body] for body in part]
        access, record = queue.access, queue.access.record()
        wishes = requests_of_list(handles, Verb.CHANGE, 0, limits_of(record.attributes))
        actions = HandleList(record, wishes, Limits()).actions
        return access.store.reject(record, [replace(one, whole_claim=True) for one in actions], access.clock)

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), delete=PART, release=PART, extend=PART, timeout=TIMEOUTS)
    def settle(self, data: Any, delete: tuple, release: tuple, extend: tuple, timeout: int) -> None:
        first = self.pair(data)
        pairs = [first, *(pair for pair in (self.pair(data), self.pair(data)) if pair.queue == first.queue)]
        parts = [pair.part(part) for pair, part in zip(pairs, (delete, release, extend))]
        ours = [[pair.tested_handles[b] for b in part] for pair, part in zip(pairs, parts)]
        theirs = [[pair.expected_handles[b] for b in part] for pair, part in zip(pairs, parts)]

        def run(queue: Queue, handles: list[list[str]]) -> Any:
            return queue.settle(**dict(zip(("delete", "release", "extend"), handles)), visibility_timeout=timeout)

        tested = answered(lambda: run(self.tested[first.queue], ours))
        assert tested == answered(lambda: run(self.expected[first.queue], theirs))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), part=PART, timeout=TIMEOUTS)
    def change_some(self, data: Any, part: tuple, timeout: int) -> None:
        pair = self.pair(data)
        ours, theirs = ([side[b] for b in pair.part(part)] for side in (pair.tested_handles, pair.expected_handles))
        tested = answered(lambda: self.tested[pair.queue].change_visibility(ours, timeout))
        assert tested == answered(lambda: self.expected[pair.queue].change_visibility(theirs, timeout))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), at=st.integers(0, 200), timeout=st.one_of(st.none(), TIMEOUTS))
    def act_on_one_handle(self, data: Any, at: int, timeout: int | None) -> None:
        pair = self.pair(data)
        body = sorted(pair.tested_handles)[at % len(pair.tested_handles)]

        def run(queue: Queue, handle: str) -> Any:
            return queue.delete(handle) if timeout is None else queue.change_visibility(handle, timeout)

        tested = answered(lambda: run(self.tested[pair.queue], pair.tested_handles[body]))
        assert tested == answered(lambda: run(self.expected[pair.queue], pair.expected_handles[body]))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def find_a_claim_by_its_receipt(self, data: Any) -> None:
        pair = self.pair(data)
        tested = self.tested[pair.queue].claim(pair.tested.receipt_id)
        expected = self.expected[pair.queue].claim(pair.expected.receipt_id)
        ours, theirs = ([m.body for m in claim] for claim in (tested, expected))
        assert tested.count == expected.count
        assert (ours == theirs) if self.fifo else (sorted(ours) == sorted(theirs))

    @precondition(lambda self: self.ids)
    @rule(queue=QUEUES, at=st.integers(0, 200), timeout=TIMEOUTS)
    def lock(self, queue: str, at: int, timeout: int) -> None:
        ours, theirs = self.ids[at % len(self.ids)]
        tested = answered(lambda: self.tested[queue].lock(ours, timeout))
        assert tested == answered(lambda: self.expected[queue].lock(theirs, timeout))
