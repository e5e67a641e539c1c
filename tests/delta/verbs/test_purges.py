"""A purge of a FIFO queue beside a send: the send is before it or after it, as a whole."""

import pytest

from tests.simulation.engine import RULES
from tests.simulation.log import Storage
from tests.simulation.worlds import open_ledger as open_simulated


def entries(*names):
    return [{"MessageBody": name, "MessageGroupId": name, "MessageDeduplicationId": name} for name in names]


@pytest.fixture(params=RULES)
def two(request, clock):
    storage = Storage(clock)
    one, other = (open_simulated(storage, request.param, clock) for _ in range(2))
    one.create_queue("q.fifo", {"FifoQueue": True, "Lanes": 2, "Limits": "SQS"}).send(entries("a"))
    return one, other


def once_decided(ledger, verb, deed, at=0):
    """Does `deed` once, when the decision number `at` of the ledger is made and about to be committed."""
    left = [None] * at + [deed]

    def step(name):
        if name == "chosen" and left:
            (left.pop(0) or (lambda: None))()

    ledger.store.transactions.on_step = step
    return verb(ledger.queue("q.fifo"))


def visible(ledger):
    ids = ledger.queue("q.fifo").receive(None, 60).messages()
    return sorted(message.body for message in ids)


def test_m3_a_send_that_knew_what_a_purge_deletes_decides_again(two):
    """It had "a" as a duplicate, and "b" is new: after the purge both are there."""
    one, other = two
    purge = lambda: other.queue("q.fifo").purge()  # noqa: E731
    once_decided(one, lambda queue: queue.send(entries("a", "b")), purge)
    assert visible(one) == ["a", "b"]


@pytest.mark.parametrize("at", [0, 1], ids=["before it deletes", "before it forgets"])
def test_m3_a_purge_that_a_send_comes_in_between_deletes_that_too_and_forgets_it(two, at):
    one, other = two
    send = lambda: other.queue("q.fifo").send(entries("a", "b"))  # noqa: E731
    # "a" is a duplicate of what the purge deletes, or of what it is about to.
    assert once_decided(one, lambda queue: queue.purge(), send, at) == 2
    assert visible(one) == []
    one.queue("q.fifo").send(entries("a", "b"))
    assert visible(other) == ["a", "b"]


def test_m3_a_purge_that_ends_between_its_commits_forgets_nothing(two):
    one, other = two

    def killed():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once_decided(one, lambda queue: queue.purge(), killed, 1)
    other.queue("q.fifo").send(entries("a"))
    assert visible(other) == []
    other.queue("q.fifo").purge()
    other.queue("q.fifo").send(entries("a"))
    assert visible(other) == ["a"]


def test_one_mark_is_committed_next_and_is_of_two_transactions(one, other):
    """On every engine: as a send's transaction, and with another one beside it, in a commit without rows."""
    said = {"operation": "marked", "verb": "purge"}
    assert one.mark("messages", said, ("fifo/q", 1), ("purged/q", 0)) == other.version("messages")
    read = [other.transaction_version("messages", name) for name in ("fifo/q", "purged/q")]
    assert read == [1, 0]
    assert other.history("messages", other.version("messages") - 1)[0].metadata["operation"] == "marked"
    from ledger.delta_log.protocol import Conflict

    with pytest.raises(Conflict):
        other.mark("messages", said, ("fifo/q", 1), ("purged/q", 0))
    other.mark("messages", said, ("fifo/q", 2), ("purged/q", 1))
    assert [one.transaction_version("messages", name) for name in ("fifo/q", "purged/q")] == [2, 1]
