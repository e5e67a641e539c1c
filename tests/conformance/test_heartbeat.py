"""The heartbeat of a claim. Its beats are real (`every` is short); it decides by the clock that stands still."""

import threading
import time

import pytest

from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError
from tests.conformance.looking import seconds_until, statuses

EVERY = 0.05


def eventually(condition, seconds=20.0):
    """Waits for something that a beat must bring about."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "no beat brought it about"
        time.sleep(EVERY / 5)


def another_beat(heart):
    """Waits for one beat that began after now."""
    seen = heart.beats
    eventually(lambda: heart.beats >= seen + 2)


def test_a_heartbeat_keeps_a_claim_far_beyond_its_timeout(queue, clock):
    ids = queue.send(["a", "b"])
    claim = queue.receive(None)
    with claim.heartbeat(every=EVERY) as heart:
        for _ in range(4):
            clock.advance(20)
            another_beat(heart)
            heart.check()
        assert statuses(queue, ids) == ["in flight"] * 2 and not queue.receive()
    assert not heart.lost and not heart.at_ceiling and heart.error is None
    assert claim.delete().messages == 2


def test_a_heartbeat_stops_with_its_block(queue, clock):
    queue.send("a")
    with queue.receive().heartbeat(every=EVERY) as heart:
        another_beat(heart)
    beats, threads = heart.beats, [thread.name for thread in threading.enumerate()]
    clock.advance(30)
    time.sleep(4 * EVERY)
    assert heart.beats == beats and "ledger-heartbeat" not in threads
    assert queue.receive()


def test_a_heartbeat_stops_when_its_block_fails(queue):
    queue.send("a")
    with pytest.raises(ZeroDivisionError), queue.receive().heartbeat(every=EVERY):
        1 / 0  # noqa: B018
    assert "ledger-heartbeat" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("then", ["nobody came", "another received", "another deleted"])
def test_a_lost_lease_is_noticed(queue, clock, then):
    ids = queue.send(["a"])
    claim = queue.receive()
    with claim.heartbeat(every=0.5) as heart:
        clock.advance(31)
        if then != "nobody came":
            other = queue.receive()
        if then == "another deleted":
            other.delete()
        eventually(lambda: heart.lost)
        with pytest.raises(LeaseLost, match="stop"):
            heart.check()
    assert statuses(queue, ids) == [{"nobody came": "visible", "another received": "in flight"}.get(then, "deleted")]


def test_a_heartbeat_counts_what_others_got(queue, clock):
    queue.send(["a", "b", "c"])
    claim = queue.receive(None)
    queue.change_visibility(claim.messages()[0].receipt_handle, 100)
    clock.advance(30)
    with claim.heartbeat(every=EVERY) as heart:
        eventually(lambda: heart.lost_messages == 2)
        assert not heart.lost
        heart.check()


def test_a_heartbeat_stops_at_the_ceiling_and_the_lease_ends_there(make_queue, clock):
    queue = make_queue(MaximumVisibilityTimeout=100, VisibilityTimeout=30)
    ids = queue.send(["a"])
    claim = queue.receive()
    with claim.heartbeat(every=EVERY) as heart:
        for _ in range(3):
            clock.advance(25)
            eventually(lambda: seconds_until(queue.peek(ids[0]), clock) >= 25)
        eventually(lambda: heart.at_ceiling)
        assert not heart.lost and heart.error is None
        beats = heart.beats
        time.sleep(4 * EVERY)
        assert heart.beats == beats
    assert seconds_until(queue.peek(ids[0]), clock) == seconds_until(claim, clock) == 25
    clock.advance(25)
    assert queue.receive()


def test_the_last_beat_before_the_ceiling_never_shortens_the_lease(make_queue, clock):
    queue = make_queue(MaximumVisibilityTimeout=15, VisibilityTimeout=10)
    (message_id,) = queue.send("a")
    claim = queue.receive()
    clock.advance(4.9)
    with claim.heartbeat(every=EVERY) as heart:
        eventually(lambda: heart.beats)
        clock.advance(0.5)
        eventually(lambda: heart.at_ceiling)
    assert seconds_until(queue.peek(message_id), clock) == pytest.approx(9.6), "to the ceiling, and no further"


def test_what_was_settled_inside_the_block_is_not_lost(queue, clock):
    queue.send(["a", "b"])
    claim = queue.receive(None)
    with claim.heartbeat(every=EVERY) as heart:
        claim.delete()
        another_beat(heart)
    assert not heart.lost and heart.lost_messages == 0


@pytest.mark.parametrize("how", ["release", "delete", "by handles"])
def test_what_another_holder_of_the_receipt_ended_is_lost(queue, world, how):
    """Two tasks with one attempt id share a claim; the one that is not asked must learn that it holds nothing."""
    queue.send(["a", "b"])
    claim = queue.receive(None, attempt_id="a run's id, and no more")
    other = world.open_another().queue(queue.name)
    shared = other.receive(None, attempt_id="a run's id, and no more")
    with claim.heartbeat(every=EVERY) as heart:
        another_beat(heart)
        heart.check()
        if how == "by handles":
            other.change_visibility([message.receipt_handle for message in shared], 0)
        else:
            getattr(shared, how)()
        eventually(lambda: heart.lost)
        with pytest.raises(LeaseLost, match="stop"):
            heart.check()


@pytest.mark.parametrize("how", ["its own verb", "handles", "one by one"])
def test_what_the_body_itself_settled_is_not_lost_however_it_did(queue, how):
    queue.send(["a", "b"])
    claim = queue.receive(None)
    handles = [message.receipt_handle for message in claim]
    with claim.heartbeat(every=EVERY) as heart:
        if how == "its own verb":
            claim.release()
        elif how == "handles":
            claim.settle(delete=handles[:1], release=handles[1:])
        else:
            for handle in handles:
                queue.delete(handle)
        another_beat(heart)
    assert not heart.lost and heart.lost_messages == 0 and heart.error is None


def test_a_heartbeat_counts_what_another_holder_of_the_receipt_ended(queue):
    queue.send(["a", "b", "c"])
    claim = queue.receive(None)
    handles = [message.receipt_handle for message in claim]
    queue.delete(handles[0])
    with claim.heartbeat(every=EVERY) as heart:
        queue.claim(claim.receipt_id).settle(release=handles[1:2])  # the same queue object: the body's own
        another_beat(heart)
        assert (heart.lost, heart.lost_messages) == (False, 0)
        queue.claim(claim.receipt_id).delete()
        eventually(lambda: heart.lost)


def test_a_beat_never_shortens_what_its_body_gave_a_later_deadline(queue, clock):
    """A job parks a message for an hour and goes on with the others: the next beat must not bring it back."""
    parked, other = queue.send(["a", "b"])
    claim = queue.receive(None)
    with claim.heartbeat(every=EVERY) as heart:
        handle = next(m.receipt_handle for m in claim if m.message_id == parked)
        queue.change_visibility(handle, 3_600)
        clock.advance(20)
        another_beat(heart)
    assert seconds_until(queue.peek(parked), clock) == 3_580
    assert seconds_until(queue.peek(other), clock) == 30
    claim.extend(40)
    assert seconds_until(queue.peek(parked), clock) == 40, "V4: an explicit change replaces"


def test_an_error_that_is_no_lost_lease_is_kept_and_the_next_beat_tries_again(queue, clock, monkeypatch):
    queue.send("a")
    claim = queue.receive()
    working, broken = queue.access.store.apply, threading.Event()

    def applying(*arguments):
        if broken.is_set():
            raise OSError("the disk is away")
        return working(*arguments)

    monkeypatch.setattr(queue.access.store, "apply", applying)
    broken.set()
    with claim.heartbeat(every=EVERY) as heart:
        eventually(lambda: heart.error is not None)
        assert isinstance(heart.error, LedgerError) and "the disk is away" in str(heart.error)
        broken.clear()
        eventually(lambda: heart.error is None and heart.beats)
    assert not heart.lost


def test_the_heartbeat_of_an_empty_claim_does_nothing(queue):
    with queue.receive().heartbeat(every=EVERY) as heart:
        time.sleep(2 * EVERY)
    assert (heart.beats, heart.lost) == (0, False)


@pytest.mark.parametrize("every", [0, -1, 30, 31])
def test_a_heartbeat_must_beat_within_the_timeout(queue, every):
    queue.send("a")
    with pytest.raises(InvalidParameterValue, match=r"every.*30 seconds.*three times"):
        queue.receive().heartbeat(every=every)


def test_a_heartbeat_finds_a_claim_lost_whose_queue_is_deleted(ledger, queue):
    queue.send("a")
    with queue.receive(None).heartbeat(every=EVERY) as heart:
        ledger.delete_queue(queue.name)
        eventually(lambda: heart.lost)
        with pytest.raises(LeaseLost):
            heart.check()
