"""A verb looks its queue's record up once, and does all that it does by what it found."""

import pytest

from ledger import Ledger
from tests.clock import FrozenClock


class Counting:
    """A ledger whose look-ups of a queue are counted: `count(verb)` is how many a verb makes."""

    def __init__(self, ledger, monkeypatch):
        self.names, look_up = [], ledger.store.queue

        def counted(name):
            self.names.append(name)
            return look_up(name)

        monkeypatch.setattr(ledger.store, "queue", counted)

    def count(self, verb):
        before = len(self.names)
        verb()
        return len(self.names) - before


@pytest.fixture
def clock():
    return FrozenClock()


@pytest.fixture
def ledger(clock):
    return Ledger.in_memory(clock)


@pytest.fixture
def queue(ledger):
    dead = ledger.create_queue("dead")
    queue = ledger.create_queue("work", {"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 9}})
    # So it takes dead letters itself.
    dead.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": queue.arn, "maxReceiveCount": 9}})
    queue.send([f"{number}" for number in range(20)])
    return queue


VERBS = {
    "send": lambda queue, one, claim: queue.send(["a", "b"]),
    "receive": lambda queue, one, claim: queue.receive(),
    "receive_many": lambda queue, one, claim: queue.receive_many([(1,), (2,)]),
    "claim": lambda queue, one, claim: queue.claim(claim.receipt_id),
    "peek": lambda queue, one, claim: queue.peek(one.message_id),
    "lock": lambda queue, one, claim: queue.lock(queue.send("a")[0], 5),
    "purge": lambda queue, one, claim: queue.purge(),
    "copy_to": lambda queue, one, claim: queue.copy_to(Ledger.in_memory().create_queue("there")),
    "restore": lambda queue, one, claim: queue.restore(claim.receipt_id),
    "release_postponed": lambda queue, one, claim: queue.release_postponed(),
    "delete one": lambda queue, one, claim: queue.delete(one.receipt_handle),
    "delete": lambda queue, one, claim: queue.delete([one.receipt_handle]),
    "change one": lambda queue, one, claim: queue.change_visibility(one.receipt_handle, 5),
    "change": lambda queue, one, claim: queue.change_visibility([one.receipt_handle], 5),
    "settle": lambda queue, one, claim: queue.settle(delete=[one.receipt_handle], extend=[]),
    "redrive": lambda queue, one, claim: queue.redrive(),
    "list_message_move_tasks": lambda queue, one, claim: queue.list_message_move_tasks(),
    "attributes": lambda queue, one, claim: queue.attributes(),
    "tags": lambda queue, one, claim: queue.tags(),
    "counts": lambda queue, one, claim: queue.counts(),
    "claim.messages": lambda queue, one, claim: claim.messages(),
    "claim.extend": lambda queue, one, claim: claim.extend(5),
    "claim.check": lambda queue, one, claim: claim.check(),
    "claim.release": lambda queue, one, claim: claim.release(),
    "claim.delete": lambda queue, one, claim: claim.delete(),
    "claim.settle": lambda queue, one, claim: claim.settle(release=[one.receipt_handle]),
}
#: These decide on the queue as it is at their commit, and look nothing up before.
NONE = {
    "set_attributes": lambda queue: queue.set_attributes({"DelaySeconds": 1}),
    "set_tags": lambda queue: queue.set_tags({"a": "b"}),
    "tag": lambda queue: queue.tag({"a": "b"}),
    "untag": lambda queue: queue.untag(["a"]),
    "add_permission": lambda queue: queue.add_permission("label", ["111111111111"], ["SendMessage"]),
    "dead_letter_source_queues": lambda queue: queue.dead_letter_source_queues(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_looks_its_queue_up_once(ledger, queue, monkeypatch, verb):
    claim = queue.receive(3)
    one, counting = claim.messages()[0], Counting(ledger, monkeypatch)
    extra = verb == "lock"  # which sends what it locks
    assert counting.count(lambda: VERBS[verb](queue, one, claim)) == 1 + extra


@pytest.mark.parametrize("verb", NONE)
def test_a_change_of_a_queue_looks_it_up_in_its_decision_alone(ledger, queue, monkeypatch, verb):
    assert Counting(ledger, monkeypatch).count(lambda: NONE[verb](queue)) == 0


def test_a_move_of_dead_letters_looks_its_queue_up_once_and_another_destination_once(ledger, queue, monkeypatch):
    dead, counting = ledger.queue("dead"), Counting(ledger, monkeypatch)
    assert counting.count(lambda: dead.redrive(destination="work")) == 2
    counting.names.clear()
    task = dead.start_message_move_task()
    assert counting.names == ["dead"]
    assert counting.count(lambda: dead.list_message_move_tasks()[0].task == task) == 1


def test_every_beat_looks_the_queue_up_once(ledger, queue, monkeypatch):
    claim, counting = queue.receive(3), Counting(ledger, monkeypatch)
    with claim.heartbeat(every=0.02) as heart:
        while heart.beats < 3 and heart.error is None:
            heart.check()
    assert len(counting.names) == heart.beats


def test_a_receive_that_waits_looks_again_each_time_that_something_changed(ledger, queue, monkeypatch):
    queue.purge()
    counting = Counting(ledger, monkeypatch)
    assert not queue.receive(wait=0.01)
    assert 1 <= len(counting.names) <= 2


def test_a_write_looks_its_queue_up_once(tmp_path, monkeypatch):
    import pyarrow as pa

    ledger = Ledger.open(str(tmp_path / "ledger"))
    queue = ledger.create_queue("work")
    queue.send(["a"])
    claim, counting = queue.receive(), Counting(ledger, monkeypatch)
    claim.write(pa.table({"n": [1]}), tmp_path / "out")
    assert counting.names == ["work"]
