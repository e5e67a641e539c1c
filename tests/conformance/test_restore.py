"""Undoing an acknowledgement: what was deleted under a receipt is visible again."""

import pytest

from ledger.errors import LeaseLost
from tests.conformance.looking import changing_nothing, statuses


def test_what_was_deleted_under_a_receipt_is_visible_again_and_the_rest_stays(queue, clock):
    ids = queue.send([str(n) for n in range(6)])
    claim = queue.receive(4)
    other = queue.receive(None)
    given = [message.receipt_handle for message in claim]
    mine = [message.message_id for message in claim]
    queue.settle(delete=given[:2], release=given[2:3])
    theirs = [message.message_id for message in other]
    other.delete()
    assert queue.restore(claim.receipt_id) == 2
    assert statuses(queue, mine) == ["visible", "visible", "visible", "in flight"][: len(mine)]
    assert set(statuses(queue, theirs)) <= {"deleted"}
    assert queue.restore(claim.receipt_id) == 0, "once"
    again = {message.message_id: message for message in queue.receive(None)}
    assert set(again) == set(mine[:3]) and {message.receive_count for message in again.values()} == {2}
    assert sorted(ids) == sorted(mine + theirs)


def test_old_receipts_stay_stale(queue):
    ids = queue.send(["a", "b"])
    claim = queue.receive(None)
    handles = [message.receipt_handle for message in claim]
    claim.delete()
    restored = queue.restore(claim.receipt_id)
    assert restored == claim.count
    with changing_nothing(queue, ids):
        assert {outcome.outcome for outcome in queue.delete(handles)} == {"stale"}
        assert {outcome.error_code for outcome in queue.change_visibility(handles, 60)} == {"ReceiptHandleIsInvalid"}
        for verb in (claim.extend, claim.delete, claim.release):
            with pytest.raises(LeaseLost):
                verb()
    assert not queue.claim(claim.receipt_id)


def test_a_receipt_that_deleted_nothing_restores_nothing(queue, clock):
    ids = queue.send(["a", "b"])
    held = queue.receive(1)
    with changing_nothing(queue, ids):
        assert queue.restore(held.receipt_id) == 0
        assert queue.restore("0" * 32) == 0
    clock.advance(30)
    queue.receive(None).delete()
    with changing_nothing(queue, ids):
        assert queue.restore(held.receipt_id) == 0, "others deleted it"


@pytest.mark.parametrize("receipt_id", [None, ""])
def test_the_receipt_of_an_empty_claim_means_nothing(queue, receipt_id):
    """What was purged or locked without having been received has no receipt either."""
    assert queue.receive().receipt_id is None
    ids = queue.send(["a", "b"])
    queue.purge()
    ids += queue.send(["locked"])
    queue.lock(ids[2], 60)
    with changing_nothing(queue, ids):
        assert queue.restore(receipt_id) == 0
        claim = queue.claim(receipt_id)
        assert not claim and claim.messages() == []
        claim.delete()


def test_what_is_past_its_retention_stays_deleted(make_queue, clock):
    queue = make_queue(MessageRetentionPeriod=60, Lanes=1)
    old = queue.send(["old"])
    clock.advance(30)
    young = queue.send(["young"])
    claim = queue.receive(None)
    claim.delete()
    clock.advance(30)
    assert queue.restore(claim.receipt_id) == 1
    assert statuses(queue, old + young) == ["deleted", "visible"]


def test_a_restored_message_may_be_deleted_and_restored_again(queue):
    queue.send("a")
    for _ in range(3):
        claim = queue.receive()
        claim.delete()
        assert queue.counts().deleted == 1
        assert queue.restore(claim.receipt_id) == 1
    assert queue.receive().messages()[0].receive_count == 4


def test_a_restored_message_of_a_fifo_queue_is_where_it_was_in_its_group(ledger):
    queue = ledger.create_queue("restored.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"})
    queue.send(["1", "2", "3"], message_group_id="g")
    claim = queue.receive(2)
    claim.delete()
    assert queue.restore(claim.receipt_id) == 2
    assert [message.body for message in queue.receive(None)] == ["1", "2", "3"]


def test_a_restore_belongs_to_one_queue(make_queue):
    one, other = make_queue(), make_queue()
    for queue in (one, other):
        queue.send("a")
    claim = one.receive()
    claim.delete()
    assert other.restore(claim.receipt_id) == 0
    assert one.counts().deleted == 1


def test_no_receipt_restores_what_a_purge_deleted(queue):
    queue.send(["a", "b"])
    claim = queue.receive(None)
    queue.delete(next(iter(claim)).receipt_handle)
    queue.purge()
    assert queue.restore(claim.receipt_id) == 1 and queue.counts().visible == 1
