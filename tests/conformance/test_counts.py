"""Q1: stored, in flight, deleted, and the age of the oldest."""

from ledger.results import Counts


def test_q1_an_empty_queue_counts_nothing(queue):
    assert queue.counts() == Counts(0, 0, 0, 0, 0, None)


def test_q1_every_message_is_counted_in_exactly_one_state(queue, clock):
    ids = queue.send([f"{n}" for n in range(10)])
    queue.lock(ids[9], 60)
    claim = queue.receive(5)
    handles = [message.receipt_handle for message in claim]
    queue.delete(handles[:2])
    queue.change_visibility(handles[2:3], 0)
    assert queue.counts() == Counts(visible=5, delayed=0, locked=1, in_flight=2, deleted=2, age_of_oldest=0.0)
    assert queue.counts().stored == 6
    clock.advance(60)
    assert queue.counts() == Counts(visible=8, delayed=0, locked=0, in_flight=0, deleted=2, age_of_oldest=60.0)


def test_q1_the_age_is_that_of_the_oldest_message_not_deleted(queue, clock):
    queue.send("old")
    clock.advance(10)
    queue.send("young")
    clock.advance(5)
    assert queue.counts().age_of_oldest == 15.0
    (old,) = [message for message in queue.receive(None) if message.body == "old"]
    assert queue.counts().age_of_oldest == 15.0
    queue.delete(old.receipt_handle)
    assert queue.counts().age_of_oldest == 5.0


def test_q1_there_is_no_quota_on_stored_messages(queue):
    queue.send([f"{n}" for n in range(20_000)])
    assert queue.counts().visible == 20_000
