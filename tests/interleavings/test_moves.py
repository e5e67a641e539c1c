"""Dead letters and their way back in every order: never lost, never doubled, never held where they are not."""

import pytest

#: Minutes on a busy machine; the others of this folder run by default.
pytestmark = pytest.mark.soak

POLICY = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}


def make(ledger, clock):
    """A queue with a message that was received once, which is as often as it may be, and another one."""
    ledger.create_queue("dead", {"Lanes": 1})
    queue = ledger.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": POLICY})
    (tried,) = queue.send("tried")
    queue.receive(1, 10)
    clock.advance(10)
    (new,) = queue.send("new")
    return queue, tried, new


def receive(queue, most=None):
    return lambda ledger: sorted(message.body for message in ledger.queue(queue).receive(most, 60))


def redrive(destination=None):
    return lambda ledger: ledger.queue("dead").redrive(destination=destination)


def test_two_receives_bury_a_dead_letter_once(ledger, clock, every_interleaving):
    """12 interleavings."""
    _, tried, new = make(ledger, clock)

    def check(outcome):
        assert sorted(outcome.answers) == [[], ["new"]]
        assert outcome.whereabouts(tried) == {"dead": "visible"}
        assert outcome.whereabouts(new) == {"jobs": "in flight"}
        assert outcome.ledger.queue("dead").receive(None).count == 1

    assert every_interleaving([receive("jobs"), receive("jobs")], check) == 12


@pytest.mark.parametrize("verb", ["delete", "extend"])
def test_a_late_verb_and_a_receive_that_buries(ledger, clock, every_interleaving, verb):
    """12 interleavings each: the receipt works, or the message is a dead letter and its receipt is stale."""
    ledger.create_queue("dead", {"Lanes": 1})
    queue = ledger.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": POLICY, "LateChange": "accept"})
    (tried,) = queue.send("tried")
    handle = queue.receive(1, 10).messages()[0].receipt_handle
    clock.advance(10)

    def late(ledger):
        jobs = ledger.queue("jobs")
        done = jobs.delete([handle]) if verb == "delete" else jobs.change_visibility([handle], 60)
        return done[0].outcome

    def check(outcome):
        done, received = outcome.answers
        assert received == []
        if done == "stale":
            assert outcome.whereabouts(tried) == {"dead": "visible"}
        else:
            assert outcome.whereabouts(tried) == {"jobs": "deleted" if verb == "delete" else "in flight"}

    assert every_interleaving([late, receive("jobs")], check) == 12


def test_a_redrive_and_two_receives_share_a_dead_letter(ledger, clock, every_interleaving):
    """31 interleavings of a redrive, a receive of the dead letters and one of the queue that they came from."""
    queue, tried, new = make(ledger, clock)
    queue.receive(None, 60)

    def check(outcome):
        moved, from_dead, from_jobs = outcome.answers
        assert moved + len(from_dead) == 1 and len(from_jobs) <= moved
        where = "dead" if from_dead else "jobs"
        assert outcome.whereabouts(tried) == {where: "in flight" if from_dead or from_jobs else "visible"}
        assert outcome.whereabouts(new) == {"jobs": "in flight"}

    assert every_interleaving([redrive(), receive("dead"), receive("jobs")], check) == 31


def test_two_redrives_to_different_queues_move_a_dead_letter_once(ledger, clock, every_interleaving):
    """12 interleavings."""
    queue, tried, _ = make(ledger, clock)
    ledger.create_queue("beside", {"Lanes": 1})
    queue.receive(None, 60)

    def check(outcome):
        assert sorted(outcome.answers) == [0, 1]
        assert outcome.whereabouts(tried) == {("jobs", "beside")[outcome.answers.index(1)]: "visible"}

    assert every_interleaving([redrive(), redrive("beside")], check) == 12


def test_a_redrive_and_a_receive_that_buries_again(ledger, clock, every_interleaving):
    """24 interleavings: messages go both ways at once between two queues."""
    queue, tried, _ = make(ledger, clock)
    queue.receive(None, 10)
    clock.advance(10)

    def check(outcome):
        moved, received = outcome.answers
        places = outcome.whereabouts(tried)
        assert len(places) == 1
        counts = [outcome.ledger.queue(name).counts() for name in ("jobs", "dead")]
        assert sum(one.visible + one.in_flight for one in counts) == 2
        assert moved in (1, 2) and set(received) <= {"tried", "new"}

    assert every_interleaving([redrive(), receive("jobs")], check) == 24
