"""The analyst views on delays, retention, dead letters and their way back, against the memory store and `counts()`."""

from __future__ import annotations

import shutil

import pytest

from ledger import Ledger
from ledger.errors import MessageDoesNotExist
from tests.delta.views.test_views import STATES, Life, rows

STEPS = ("sent", "died", "partly redriven", "run out", "expired", "without its source")
FACTS = (
    "status", "body", "receive_count", "sent_at", "first_received_at", "visible_at", "dead_letter_source",
    "message_group_id", "message_deduplication_id",
)  # fmt: skip


class Afterlife(Life):
    """Messages that wait, die, come back and expire, on standard and FIFO queues."""

    def story(self):
        ledger, clock = self.ledger, self.clock
        dead = ledger.create_queue("dead", {"Lanes": 1})
        jobs = ledger.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": policy(dead)})
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "Lanes": 1}
        dead_fifo = ledger.create_queue("dead.fifo", fifo)
        jobs_fifo = ledger.create_queue("jobs.fifo", {**fifo, "RedrivePolicy": policy(dead_fifo)})
        for queue, group in ((jobs, None), (jobs_fifo, "g")):
            self.ids += queue.send([f"{queue.name} {n}" for n in range(6)], message_group_id=group)
        self.ids += jobs.send(["later"], delay_seconds=50)
        yield "sent"
        for queue in (jobs, jobs_fifo):
            queue.receive(3, 0)
            clock.advance(1)
            queue.receive(None, 60)
        yield "died"
        dead.receive(1, 100)
        assert (dead.redrive(max_messages=1), dead_fifo.redrive(max_messages=2)) == (1, 2)
        yield "partly redriven"
        clock.advance(60)
        jobs.receive(1, 10)
        yield "run out"
        jobs.set_attributes({"MessageRetentionPeriod": 60})
        clock.advance(2)
        yield "expired"
        ledger.delete_queue("jobs")
        yield "without its source"


def policy(target):
    return {"deadLetterTargetArn": target.arn, "maxReceiveCount": 1}


@pytest.fixture(scope="module")
def seen(empty_ledger, tmp_path_factory, spark):
    """By step: of both ledgers what the views, or peeks, and `counts()` say."""
    root = str(shutil.copytree(empty_ledger, tmp_path_factory.mktemp("views") / "ledger"))
    life, memory = Afterlife(lambda clock: Ledger.open(root, spark, clock=clock)), Afterlife(Ledger.in_memory)
    found = {}
    for name, _ in zip(life.story(), memory.story()):
        number = {message_id: n for n, message_id in enumerate(life.ids)}
        listed = rows(life.ledger.view("messages"))
        view = {(row["queue"], number[row["message_id"]]): [row[fact] for fact in FACTS] for row in listed}
        depth = {row["queue"]: [row[state] for state in STATES] for row in rows(life.ledger.view("queue_depth"))}
        counts = [{q.name: q.counts() for q in one.ledger.list_queues()} for one in (life, memory)]
        found[name] = view, peeked(memory), depth, counts, len(listed)
    return found


def peeked(life):
    found = {}
    for queue in life.ledger.list_queues():
        for n, message_id in enumerate(life.ids):
            try:
                message = queue.peek(message_id)
            except MessageDoesNotExist:
                continue
            found[queue.name, n] = [message.status.value, *(getattr(message, fact) for fact in FACTS[1:])]
    return found


@pytest.mark.parametrize("step", STEPS)
def test_messages_says_of_every_message_where_it_counts_and_what_the_rules_say(seen, step):
    view, expected, _, _, count = seen[step]
    assert count == len(view), "a row per message"
    assert {k: (view.get(k), expected.get(k)) for k in view | expected if view.get(k) != expected.get(k)} == {}


@pytest.mark.parametrize("step", STEPS)
def test_queue_depth_says_what_counts_says(seen, step):
    _, _, depth, (counts, in_memory), _ = seen[step]
    assert counts == in_memory
    assert depth == {name: [getattr(count, state) for state in STATES] for name, count in counts.items()}


def test_the_story_has_every_state_and_every_move(seen):
    statuses = {facts[0] for view, *_ in seen.values() for facts in view.values()}
    assert statuses == {"visible", "delayed", "in flight", "expired"}
    sources = {(key[0], facts[6]) for view, *_ in seen.values() for key, facts in view.items() if facts[6]}
    assert sources == {("dead", "jobs"), ("jobs", "dead"), ("dead.fifo", "jobs.fifo"), ("jobs.fifo", "dead.fifo")}
