"""What was given back and is hidden until later is made visible before its time."""

import pytest

from ledger import RetryLater
from ledger.client.settling import apply
from ledger.errors import InvalidParameterValue
from ledger.rules.visibility import Verb
from ledger.store.protocol import RUNS, Action, Postponed
from tests.conformance.looking import statuses

pytestmark = pytest.mark.spark_too


def postpone(queue, claim, first, count, seconds, postponed):
    """Give back some messages of a claim, as a worker does."""
    runs = claim.grant.part(first, count).runs.select(RUNS.names)
    action = Action(Verb.CHANGE, claim.receipt_id, runs, seconds, True, postponed=postponed)
    apply(queue.access, queue.access.record(), [action])


def test_all_that_is_hidden_is_released_and_what_is_held_is_not(queue, clock):
    ids = queue.send([f"{n}" for n in range(6)])
    one, other = queue.receive(4, 60), queue.receive(2, 60)
    postpone(queue, one, 0, 1, 3_600, Postponed.PARKED)
    postpone(queue, one, 1, 1, 600, Postponed.RETRY)
    postpone(queue, other, 0, 1, 600, Postponed.RETRY)
    assert queue.release_postponed("no receipt") == queue.release_postponed(None) == 0
    assert queue.release_postponed(queue.receive(1, attempt_id="nothing left").receipt_id) == 0, "an empty claim's"
    assert queue.release_postponed(other.receipt_id) == 1 and queue.counts().visible == 1
    assert queue.release_postponed(reason="mended") == 2 and queue.release_postponed() == 0
    assert sorted(statuses(queue, ids)) == ["in flight"] * 3 + ["visible"] * 3
    again = queue.receive(None)
    assert again.count == 3 and {message.receive_count for message in again} == {2}
    one.delete(), other.delete(), again.delete()
    assert queue.counts().deleted == 6


def test_what_was_locked_or_extended_is_not_released(queue, clock):
    ids = queue.send(["locked", "extended"])
    queue.lock(ids[0], 60)
    held = queue.receive()
    held.extend(600)
    assert queue.release_postponed() == 0
    clock.advance(59)
    assert not queue.receive() and queue.claim(held.receipt_id).count == 1


def test_groups_of_a_fifo_queue_go_on_where_they_were(ledger, clock):
    queue = ledger.create_queue("work.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"})
    queue.send([{"MessageBody": f"{n}", "MessageGroupId": "g"} for n in range(3)])

    def handler(message):
        raise RetryLater(600)

    queue.consume(handler, until="once")
    assert not queue.receive()
    assert queue.release_postponed() == 1
    assert [message.body for message in queue.receive(3).messages()] == ["0", "1", "2"]


def test_what_others_received_in_the_meantime_is_theirs_also_with_recorded_receipts(make_queue, clock, monkeypatch):
    queue = make_queue(Receipts="recorded")
    queue.send(["a"])
    postpone(queue, queue.receive(1, 60), 0, 1, 10, Postponed.PARKED)
    store = queue.access.store
    hidden = store.given_back(queue.access.record(), clock)
    clock.advance(10)
    theirs = queue.receive(1, 60)
    monkeypatch.setattr(type(store), "given_back", lambda *arguments: hidden)
    assert queue.release_postponed() == 0 and not queue.receive()
    assert queue.claim(theirs.receipt_id).count == 1


def test_a_reason_that_is_none_is_refused(queue):
    with pytest.raises(InvalidParameterValue, match="reason"):
        queue.release_postponed(reason=7)
