"""Receives, deletes, extensions and restores of a standard queue in every order."""

import pytest

from ledger.errors import InvalidParameterValue
from tests.interleavings.scheduler import Client


def receive(most=None, timeout=60, attempt=None):
    """A client that receives and answers the ids and handles of what it got."""

    def run(ledger):
        claim = ledger.queue("jobs").receive(most, timeout, attempt_id=attempt)
        return {message.message_id: message.receipt_handle for message in claim}

    return run


def make(ledger, messages=2, **attributes):
    queue = ledger.create_queue("jobs", {"Lanes": 1, **attributes})
    return queue, [queue.send(f"{n}")[0] for n in range(messages)]


@pytest.mark.soak_variants("1-24")
@pytest.mark.parametrize(("most", "orders"), [(1, 24), (None, 12)])
def test_two_receives_share_what_there_is(ledger, every_interleaving, most, orders):
    """24 interleavings of two receives of one message each; 12 of two receives of everything."""
    _, ids = make(ledger)

    def check(outcome):
        first, second = outcome.answers
        assert not set(first) & set(second) and set(first) | set(second) == set(ids)
        assert outcome.ledger.queue("jobs").counts().in_flight == 2
        assert {outcome.ledger.queue("jobs").peek(one).receive_count for one in ids} == {1}

    assert every_interleaving([receive(most), receive(most)], check) == orders


def test_two_receives_of_one_attempt_are_one_claim(ledger, every_interleaving):
    """24 interleavings: both are answered the same handles, whichever lanes they try, each by a commit of its own."""
    make(ledger, 4, Lanes=2)

    def check(outcome):
        first, second = outcome.answers
        assert first == second and len(first) == 1
        assert outcome.ledger.queue("jobs").counts().in_flight == 1

    assert every_interleaving([receive(1, attempt="job"), receive(1, attempt="job")], check) == 24


def test_a_late_delete_and_a_receive_never_both_have_the_message(ledger, clock, every_interleaving):
    """12 interleavings: deleted, or received again and the old receipt stale."""
    queue, (message,) = make(ledger, 1)
    handle = queue.receive(1, 10).messages()[0].receipt_handle
    clock.advance(10)

    def check(outcome):
        (deleted,), received = outcome.answers
        assert deleted in ("deleted", "stale") and (deleted == "stale") == (message in received)
        wanted = "in flight" if received else "deleted"
        assert outcome.whereabouts(message) == {"jobs": wanted}
        if received:
            assert outcome.ledger.queue("jobs").change_visibility([received[message]], 5)[0].outcome == "changed"

    delete = lambda ledger: [one.outcome for one in ledger.queue("jobs").delete([handle])]  # noqa: E731
    assert every_interleaving([delete, receive()], check) == 12


@pytest.mark.parametrize(("late", "orders"), [("reject", 28), pytest.param("accept", 77, marks=pytest.mark.soak)])
def test_a_late_extension_a_receive_and_a_delete_leave_one_holder(ledger, clock, every_interleaving, late, orders):
    """28 and 77 interleavings of three clients, with late changes rejected and accepted."""
    queue, (message,) = make(ledger, 1, LateChange=late)
    handle = queue.receive(1, 10).messages()[0].receipt_handle
    clock.advance(10)

    def check(outcome):
        (extended,), (deleted,), received = outcome.answers
        if received:
            assert deleted == "stale" and extended in ("stale", "not in flight")
            assert outcome.ledger.queue("jobs").delete([received[message]])[0].outcome == "deleted"
        else:
            assert deleted == "deleted" or extended == "changed"
            assert outcome.whereabouts(message) == {"jobs": "deleted" if deleted == "deleted" else "in flight"}
        assert late == "accept" or extended != "changed"

    def extend(ledger):
        return [one.outcome for one in ledger.queue("jobs").change_visibility([handle], 60)]

    def delete(ledger):
        return [one.outcome for one in ledger.queue("jobs").delete([handle])]

    assert every_interleaving([extend, delete, receive()], check) == orders


def test_an_extension_in_time_and_a_receive_after_the_deadline_never_both_hold(ledger, clock, every_interleaving):
    """12 interleavings: the extension began a millisecond before the deadline, the receive at the deadline."""
    queue, (message,) = make(ledger, 1)
    handle = queue.receive(1, 10).messages()[0].receipt_handle
    clock.advance(9.999)

    def check(outcome):
        (extended,), received = outcome.answers
        assert (extended == "changed") != (message in received)
        assert extended == "changed" or extended in ("stale", "not in flight")

    def extend(ledger):
        return [one.outcome for one in ledger.queue("jobs").change_visibility([handle], 60)]

    assert every_interleaving([extend, Client(receive(), ahead=0.001)], check) == 12


def test_what_is_restored_is_received_once_and_its_old_receipt_is_stale(ledger, every_interleaving):
    """34 interleavings of two restores of one claim and a receive."""
    queue, ids = make(ledger, 2)
    claim = queue.receive(None)
    old = [message.receipt_handle for message in claim]
    claim.delete()
    restore = lambda ledger: ledger.queue("jobs").restore(claim.receipt_id)  # noqa: E731

    def check(outcome):
        once, again, received = outcome.answers
        assert sorted([once, again]) == [0, 2], "both messages are restored once"
        assert set(received) in (set(), set(ids))
        queue = outcome.ledger.queue("jobs")
        assert {one.outcome for one in queue.delete(old)} == {"stale"}
        counts = queue.counts()
        assert (counts.in_flight, counts.visible, counts.deleted) == (len(received), 2 - len(received), 0)

    assert every_interleaving([restore, restore, receive()], check) == 34


@pytest.mark.soak
def test_a_purge_leaves_what_was_sent_later_and_takes_back_nothing_else(ledger, every_interleaving):
    """97 interleavings of a purge, a send and a receive of everything."""
    _, ids = make(ledger, 1)

    def check(outcome):
        purged, (sent,), received = outcome.answers
        counts = outcome.ledger.queue("jobs").counts()
        assert counts.deleted == purged and purged in (1, 2)
        assert outcome.whereabouts(ids[0]) == {"jobs": "deleted"}
        assert outcome.whereabouts(sent)["jobs"] in ("deleted" if purged == 2 else ("visible", "in flight"))
        assert set(received) <= {ids[0], sent}

    purge = lambda ledger: ledger.queue("jobs").purge()  # noqa: E731
    assert every_interleaving([purge, lambda ledger: ledger.queue("jobs").send("new"), receive()], check) == 97


def test_of_two_sends_under_one_attempt_id_one_is_sent_and_the_other_told(ledger, every_interleaving):
    """12 interleavings of two different sends: the second is refused, and not dropped in silence."""
    make(ledger, 0)

    def send(*bodies):
        def run(ledger):
            try:
                return ledger.queue("jobs").send(list(bodies), attempt_id="shared")
            except InvalidParameterValue as error:
                return str(error)

        return run

    def check(outcome):
        told = [answer for answer in outcome.answers if isinstance(answer, str)]
        (sent,) = [answer for answer in outcome.answers if not isinstance(answer, str)]
        assert len(told) == 1 and "Another send" in told[0]
        assert outcome.ledger.queue("jobs").counts().stored == len(sent)

    assert every_interleaving([send("a"), send("b", "c")], check) == 12
