"""Changes of one queue in every order: none is lost, and none reaches a queue that was made anew under the name."""

import json

import pytest

from ledger import Queue
from ledger.client.access import Access


@pytest.fixture
def queue(ledger):
    return ledger.create_queue("jobs", {"Lanes": 2})


def jobs(verb):
    return lambda ledger: verb(ledger.queue("jobs"))


def test_two_changes_of_different_attributes_both_count(queue, every_interleaving):
    """24 interleavings."""

    def check(outcome):
        known = outcome.ledger.queue("jobs").attributes()
        assert (known["DelaySeconds"], known["VisibilityTimeout"]) == ("5", "7")

    delay = jobs(lambda queue: queue.set_attributes({"DelaySeconds": 5}))
    timeout = jobs(lambda queue: queue.set_attributes({"VisibilityTimeout": 7}))
    assert every_interleaving([delay, timeout], check) == 24


def test_a_change_of_attributes_and_one_of_tags_both_count(queue, every_interleaving):
    """24 interleavings."""

    def check(outcome):
        known = outcome.ledger.queue("jobs")
        assert (known.attributes()["DelaySeconds"], known.tags()) == ("5", {"new": "x"})

    delay = jobs(lambda queue: queue.set_attributes({"DelaySeconds": 5}))
    tag = jobs(lambda queue: queue.tag({"new": "x"}))
    assert every_interleaving([delay, tag], check) == 24


def test_two_permissions_are_both_there_and_one_label_is_given_once(queue, every_interleaving):
    """24 interleavings; of two of one label one does not commit."""

    def labels(outcome):
        policy = json.loads(outcome.ledger.queue("jobs").attributes()["Policy"])
        return sorted(statement["Sid"] for statement in policy["Statement"])

    def both(outcome):
        assert labels(outcome) == ["one", "two"]

    def once(outcome):
        assert labels(outcome) == ["one"]
        assert sorted(outcome.answers, key=str) == ["InvalidParameterValue", None]

    add = lambda label: jobs(lambda queue: queue.add_permission(label, ["1" * 12], ["SendMessage"]))  # noqa: E731
    assert every_interleaving([add("one"), add("two")], both) == 24
    assert every_interleaving([add("one"), add("one")], once) == 12


@pytest.mark.soak
def test_a_change_does_not_reach_a_queue_made_anew_under_the_name(queue, every_interleaving):
    """It is refused, or the queue that it changed is gone."""

    def late(ledger):
        # The queue was looked up before anything happens; what is done with it later is about that very queue.
        access = Access(ledger.store, ledger.clock, ledger.settings, None, queue.access.made)
        Queue(access).set_attributes({"VisibilityTimeout": 7, "Lanes": 2})

    def anew(ledger):
        ledger.delete_queue("jobs")
        ledger.create_queue("jobs", {"Lanes": 3})

    def check(outcome):
        known = outcome.ledger.queue("jobs").attributes()
        assert (known["VisibilityTimeout"], known["Lanes"]) == ("30", "3")

    every_interleaving([late, anew], check)


def test_of_two_that_make_one_queue_with_other_attributes_one_is_told(ledger, every_interleaving):
    """24 interleavings."""

    def check(outcome):
        told = [answer for answer in outcome.answers if answer == "QueueNameExists"]
        assert len(told) == 1 and len(outcome.ledger.list_queues()) == 1
        assert outcome.ledger.queue("new").attributes()["DelaySeconds"] in outcome.answers

    def make(delay):
        return lambda ledger: ledger.create_queue("new", {"DelaySeconds": delay}).attributes()["DelaySeconds"]

    assert every_interleaving([make(1), make(2)], check) == 12


@pytest.mark.soak
def test_a_policy_is_not_set_to_a_queue_that_was_deleted_meanwhile(queue, ledger, every_interleaving):
    """The target is looked at in the decision itself."""
    ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}

    def check(outcome):
        # Set, and the target deleted afterwards, is as SQS has it.
        refused = outcome.answers[0] == "InvalidParameterValue"
        assert refused == ("RedrivePolicy" not in outcome.ledger.queue("jobs").attributes())

    set_policy = jobs(lambda queue: queue.set_attributes({"RedrivePolicy": policy}))
    every_interleaving([set_policy, lambda ledger: ledger.delete_queue("dead")], check)


def test_d2_two_starts_start_one_task(ledger, queue, every_interleaving, by_hand, monkeypatch):
    """Only one message move task runs on a source at a time, whoever starts it."""
    monkeypatch.setattr("ledger.client.move_tasks.MoveTasks._move", lambda self, task, source=None: task)
    dead = ledger.create_queue("dead")
    queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}})
    queue.send(["a", "b", "c", "d"])
    queue.receive(None, 0)
    assert not queue.receive(None, 0) and dead.counts().visible == 4

    def check(outcome):
        tasks = outcome.ledger.queue("dead").list_message_move_tasks(10)
        (refused,) = [answer for answer in outcome.answers if answer == "InvalidParameterValue"]
        assert len(tasks) == 1 and refused

    start = lambda ledger: ledger.queue("dead").start_message_move_task(max_messages_per_second=1)  # noqa: E731
    every_interleaving([start, start], check)
