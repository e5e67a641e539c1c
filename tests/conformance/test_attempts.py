"""F3 on every queue: a retried receive or send with the same attempt id is the same one again."""

import pyarrow as pa
import pytest

from ledger.errors import InvalidParameterValue
from ledger.store.memory import MemoryStore
from tests.conformance.looking import changing_nothing, seconds_until


def test_f3_the_same_attempt_gets_the_same_handles_again_and_the_timeout_restarted(queue, clock):
    queue.send(["a", "b", "c"])
    first = queue.receive(2, attempt_id="job")
    clock.advance(20)
    again = queue.receive(2, attempt_id="job")
    assert again.receipt_id == first.receipt_id and seconds_until(again, clock) == 30
    assert [m.receipt_handle for m in again] == [m.receipt_handle for m in first]
    assert [m.receive_count for m in again] == [1, 1]
    assert queue.counts().in_flight == 2


def test_f3_another_attempt_gets_other_messages(queue):
    queue.send(["a", "b"])
    one, other = queue.receive(1, attempt_id="one"), queue.receive(1, attempt_id="other")
    assert {m.body for m in one} | {m.body for m in other} == {"a", "b"}


def test_f3_a_retry_gets_its_claim_even_when_it_asks_for_another_number_or_timeout(queue, clock):
    queue.send(["a", "b", "c"])
    first = queue.receive(2, attempt_id="job")
    again = queue.receive(None, visibility_timeout=500, attempt_id="job")
    assert (again.receipt_id, again.count, seconds_until(again, clock)) == (first.receipt_id, 2, 500)


def test_f3_a_retry_gets_what_is_left_of_its_claim(queue):
    queue.send(["a", "b", "c"])
    first = queue.receive(None, attempt_id="job").messages()
    queue.delete(first[0].receipt_handle)
    queue.change_visibility(first[1].receipt_handle, 0)
    again = queue.receive(None, attempt_id="job")
    assert [m.receipt_handle for m in again] == [first[2].receipt_handle]


def test_f3_after_the_deadline_an_attempt_is_a_new_receive(queue, clock):
    queue.send(["a"])
    first = queue.receive(attempt_id="job")
    clock.advance(30)
    again = queue.receive(attempt_id="job")
    assert again.receipt_id != first.receipt_id and again.messages()[0].receive_count == 2


def test_f3_the_ceiling_of_a_retried_claim_counts_from_the_retry(make_queue, clock):
    queue = make_queue(MaximumVisibilityTimeout=100)
    queue.send("a")
    queue.receive(attempt_id="job")
    clock.advance(20)
    again = queue.receive(attempt_id="job")
    again.extend(100)
    with pytest.raises(InvalidParameterValue):
        again.extend(101)


def test_an_attempt_belongs_to_one_queue(make_queue):
    one, other = make_queue(), make_queue()
    one.send("a")
    other.send("b")
    assert one.receive(attempt_id="job").messages()[0].body == "a"
    assert other.receive(attempt_id="job").messages()[0].body == "b"


def run_of(queue):
    """An attempt id of the test's own: the ledger on Spark is one for all of them."""
    return f"run of {queue.name}"


def test_a_send_repeated_with_its_attempt_id_is_not_sent_again(queue, world):
    ids = queue.send(["a", "b"], attempt_id=run_of(queue))
    elsewhere = world.open_another().queue(queue.name)
    with changing_nothing(queue, ids):
        assert queue.send(["a", "b"], attempt_id=run_of(queue)) == ids
        assert elsewhere.send(["a", "b"], attempt_id=run_of(queue)) == ids
    assert queue.send(["a", "b"], attempt_id=f"{run_of(queue)} again") != ids
    assert queue.counts().stored == 4


def test_a_send_of_nothing_is_no_attempt(queue):
    assert queue.send([], attempt_id=run_of(queue)) == []
    assert len(queue.send(["a"], attempt_id=run_of(queue))) == 1
    assert queue.counts().stored == 1


def test_a_repeated_send_stays_unsent_after_its_messages_were_deleted(queue):
    ids = queue.send(["a", "b"], attempt_id=run_of(queue))
    queue.receive(None).delete()
    assert queue.send(["a", "b"], attempt_id=run_of(queue)) == ids
    assert not queue.receive()


OTHERS = {
    "another body": lambda queue: queue.send(["a", "c"], attempt_id=run_of(queue)),
    "fewer": lambda queue: queue.send(["a"], attempt_id=run_of(queue)),
    "more": lambda queue: queue.send(["a", "b", "c"], attempt_id=run_of(queue)),
    "another order, which ids would not be in": lambda queue: queue.send(["b", "a"], attempt_id=run_of(queue)),
    "one that reads like two": lambda queue: queue.send(["a1:b"], attempt_id=run_of(queue)),
    "an attribute": lambda queue: queue.send(["a", "b"], attempt_id=run_of(queue), message_attributes={"kind": "x"}),
    "a group": lambda queue: queue.send(["a", "b"], attempt_id=run_of(queue), message_group_id="x"),
    "a table of the same": lambda queue: queue.send(pa.table({"body": ["a", "c"]}), attempt_id=run_of(queue)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_send_under_the_id_of_one_that_was_sent_is_refused_and_not_dropped_in_silence(queue, other):
    ids = queue.send(["a", "b"], attempt_id=run_of(queue))
    with (
        changing_nothing(queue, ids),
        pytest.raises(InvalidParameterValue, match=r"attempt_id.*Another send.*map_index"),
    ):
        OTHERS[other](queue)
    assert queue.send(["a", "b"], attempt_id=run_of(queue)) == ids, "a retry is still one"


def test_a_send_to_another_queue_under_the_id_of_one_that_was_sent_is_refused(make_queue):
    one, other = make_queue(), make_queue()
    run = f"run-1 of {one.name}"
    ids = one.send(["a"], attempt_id=run)
    with changing_nothing(other), pytest.raises(InvalidParameterValue, match="its queue differ"):
        other.send(["a"], attempt_id=run)
    assert one.send(["a"], attempt_id=run) == ids
    other.send(["a"], attempt_id=f"{run} again")


def test_a_retry_is_one_although_the_queue_has_another_delay_by_now(queue):
    ids = queue.send(["a"], attempt_id=run_of(queue))
    queue.set_attributes({"DelaySeconds": 5})
    assert queue.send(["a"], attempt_id=run_of(queue)) == ids


def test_another_send_is_refused_even_when_nothing_is_left_of_the_first(queue, ledger, clock):
    ids = queue.send(["a", "b"], attempt_id=run_of(queue))
    queue.receive(None).delete()
    if not isinstance(ledger.store, MemoryStore):
        clock.advance(2 * ledger.settings.keep_deleted_receipts)
        ledger.upkeep(vacuum=False)
        assert ledger.store.listings.newest().home(ids[0][:28]) is None, "dropped"
    with pytest.raises(InvalidParameterValue, match="Another send"):
        queue.send(["a", "c"], attempt_id=run_of(queue))
    assert queue.send(["a", "b"], attempt_id=run_of(queue)) == ids and queue.counts().stored == 0


@pytest.mark.parametrize("asked", [1, 2])
def test_f3_a_claim_that_is_larger_than_what_is_asked_for_is_refused(queue, asked):
    """Two tasks with one id: the second one did not ask for so many, and would have the first one's messages."""
    ids = queue.send(["a", "b", "c"])
    claim = queue.receive(3, attempt_id="job")
    with (
        changing_nothing(queue, ids),
        pytest.raises(InvalidParameterValue, match=rf"AttemptId.*claim of 3 messages, and {asked} are.*map_index"),
    ):
        queue.receive(asked, attempt_id="job")
    claim.settle(delete=[claim.messages()[0].receipt_handle])
    assert queue.receive(2, attempt_id="job").count == 2


def test_f3_an_attempt_that_holds_two_claims_gets_the_last_one_again(make_queue, clock):
    queue = make_queue(LateChange="accept", Lanes=1)
    queue.send(["a", "b"])
    first = queue.receive(1, attempt_id="job")
    clock.advance(30)
    second = queue.receive(1, attempt_id="job")
    if second.messages()[0].message_id == first.messages()[0].message_id:
        second.release()
        second = queue.receive(2, attempt_id="job")
    else:
        first.extend(60)
    again = queue.receive(None, attempt_id="job")
    assert again.receipt_id == second.receipt_id
    assert {o.outcome for o in queue.delete([m.receipt_handle for m in again])} == {"deleted"}


def test_a_claim_that_is_granted_again_has_a_commit_of_its_own(queue):
    """A stale receipt changes nothing: a fencing token is nobody else's, even when the deadline stays what it was."""
    queue.send(["a", "b"])
    first, other = queue.receive(1, attempt_id="job"), queue.receive(1)
    again = queue.receive(1, attempt_id="job")
    assert again.receipt_id == first.receipt_id != other.receipt_id
    assert first.version < other.version < again.version
