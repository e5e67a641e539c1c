"""Upkeep beside other verbs in every order, stopped wherever it has read something or is about to remove something."""

import pytest

from tests.interleavings.scheduler import Client

#: Minutes on a busy machine; the others of this folder run by default.
pytestmark = pytest.mark.soak

KEPT = 3_600
POLICY = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}


def upkeep(ledger):
    return ledger.upkeep(vacuum=False).segments_dropped


def receive(queue):
    return lambda ledger: sorted(message.body for message in ledger.queue(queue).receive(None, 60))


def test_a_message_that_becomes_a_dead_letter_meanwhile_is_not_dropped(ledger, clock, every_interleaving):
    """45 interleavings of an upkeep and a receive that buries."""
    ledger.create_queue("dead", {"Lanes": 1})
    queue = ledger.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": POLICY})
    (tried,) = queue.send("tried")
    queue.receive(1, 10)
    clock.advance(2 * KEPT)

    def check(outcome):
        assert outcome.answers == [0, []]
        assert outcome.whereabouts(tried) == {"dead": "visible"}
        assert [message.body for message in outcome.ledger.queue("dead").receive(None)] == ["tried"]

    assert every_interleaving([Client(upkeep, reads=True), receive("jobs")], check) == 45


def test_what_is_restored_meanwhile_is_not_dropped(ledger, clock, every_interleaving):
    """57 interleavings of an upkeep and a restore: it restores nothing, or what it restored is there."""
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    (message,) = queue.send("deleted")
    claim = queue.receive(1, 10)
    claim.delete()
    clock.advance(2 * KEPT)

    def check(outcome):
        dropped, restored = outcome.answers
        assert dropped + restored == 1
        assert outcome.whereabouts(message) == ({"jobs": "visible"} if restored else {})

    restore = lambda ledger: ledger.queue("jobs").restore(claim.receipt_id)  # noqa: E731
    assert every_interleaving([Client(upkeep, reads=True), restore], check) == 57


def test_what_is_sent_meanwhile_is_not_dropped(ledger, clock, every_interleaving):
    """78 interleavings of an upkeep and a send into a sealed segment of its own."""
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send("old")
    queue.receive(1, 10).delete()
    clock.advance(2 * KEPT)

    def check(outcome):
        _, (sent,) = outcome.answers
        assert outcome.whereabouts(sent) == {"jobs": "visible"}

    send = lambda ledger: ledger.queue("jobs").send("new", attempt_id="job")  # noqa: E731
    assert every_interleaving([Client(upkeep, reads=True), send], check) == 78


def test_upkeep_takes_nothing_from_a_receive_and_a_delete(ledger, clock, every_interleaving):
    """34 interleavings of an upkeep, a receive of what is left and a delete of what was held."""
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    held, left = queue.send(["held", "left"])
    handle = queue.receive(1, 3 * KEPT).messages()[0].receipt_handle
    clock.advance(2 * KEPT)
    held, left = (held, left) if queue.peek(held).status == "in flight" else (left, held)

    def check(outcome):
        _, (deleted,), received = outcome.answers
        assert deleted == "deleted" and len(received) == 1
        assert outcome.whereabouts(held) == {"jobs": "deleted"}
        assert outcome.whereabouts(left) == {"jobs": "in flight"}

    delete = lambda ledger: [one.outcome for one in ledger.queue("jobs").delete([handle])]  # noqa: E731
    assert every_interleaving([upkeep, delete, receive("jobs")], check) == 34
