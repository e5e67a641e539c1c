"""Where claims come from: whether there is more to do is decided at one instant, and of one state of the queue."""

import pytest

from ledger import Ledger, RetryLater
from ledger.work.claim_source import ClaimSource
from tests.clock import FrozenClock


class HastyClock(FrozenClock):
    """Passes so many milliseconds with each look at it."""

    step = 0

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture(params=["memory", "delta-rs"])
def ledger(request, tmp_path):
    clock = HastyClock()
    opened = (
        Ledger.in_memory(clock) if request.param == "memory" else Ledger.open(str(tmp_path / "ledger"), clock=clock)
    )
    opened.time = clock
    return opened


def busy(message):
    raise RetryLater(1)


def source(queue):
    return ClaimSource(queue.access, 30, None, print)


@pytest.mark.parametrize("given_back", [True, False], ids=["postponed", "leased"])
def test_a_message_that_comes_back_while_it_is_looked_for_is_not_missed(ledger, given_back):
    queue = ledger.create_queue("work", {"VisibilityTimeout": 1})
    queue.send("1")
    if given_back:
        queue.consume(busy, until="once", visibility_timeout=30)
    else:
        queue.receive(1)
    ledger.time.step = 600
    assert source(queue).may_get_more()


def test_a_message_that_others_give_back_while_it_is_looked_for_is_not_missed(ledger):
    queue = ledger.create_queue("work", {"VisibilityTimeout": 600})
    queue.send("1")
    claim = queue.receive(1)
    counts = queue.access.store.counts

    def given_back_behind(record, clock):
        found = counts(record, clock)
        if claim.held:
            claim.release()
        return found

    queue.access.store.counts = given_back_behind
    assert source(queue).may_get_more()


def test_what_is_done_or_hidden_for_longer_than_a_claim_is_held_is_no_more_to_do(ledger):
    queue = ledger.create_queue("work", {"VisibilityTimeout": 600})
    queue.send(["1", "2"])
    claim = queue.receive(2)
    first, second = (message.receipt_handle for message in claim.messages())
    queue.delete(first)
    assert not source(queue).may_get_more()
    queue.change_visibility(second, 31)
    assert not source(queue).may_get_more()
    queue.change_visibility(second, 30)
    assert source(queue).may_get_more()


def test_what_stands_behind_a_hidden_message_of_its_group_is_not_waited_for(ledger):
    """It is visible, and nobody receives it before that one comes back."""
    queue = ledger.create_queue("work.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"})
    queue.send([{"MessageBody": str(n), "MessageGroupId": "g"} for n in range(3)])
    claims = source(queue)
    claims.receive(None, 1, 0)
    queue.consume(lambda message: None, until="once")

    def hide(message):
        raise RetryLater(3_600)

    ledger.time.advance(40)
    queue.consume(hide, until="once")
    claims = source(queue)
    assert not claims.receive(None, 10, 0) and not claims.may_get_more()
    assert queue.counts().visible
    assert not claims.receive(None, 10, 0)
    queue.send([{"MessageBody": "new", "MessageGroupId": "other"}])
    assert claims.may_get_more(), "it came behind the receive"
    ledger.time.advance(3_580)
    assert claims.receive(None, 10, 0).count == 1 and not claims.receive(None, 10, 0)
    assert claims.may_get_more(), "the hidden one comes back within the timeout"
