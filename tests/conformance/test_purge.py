"""M3: what a purge forgets, and what may not be done again at once. Both intervals are switchable."""

import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue, PurgeQueueInProgress, QueueDeletedRecently
from ledger.settings import Settings

FIFO = {"FifoQueue": True, "Lanes": 2}


def entries(*names):
    return [{"MessageBody": name, "MessageGroupId": name, "MessageDeduplicationId": name} for name in names]


@pytest.fixture
def fifo(make_queue, ledger, world, request):
    name = f"purged-{abs(hash(request.node.name)) % 10**9}.fifo"
    world.maker.create_queue(name, FIFO)
    return ledger.queue(name)


def bodies(queue):
    return sorted(message.body for message in queue.receive(None, 60).messages())


@pytest.mark.spark_too
def test_m3_a_purge_forgets_the_deduplication_ids_of_a_fifo_queue(fifo):
    first = fifo.send(entries("a", "b"))
    assert fifo.send(entries("a")) == first[:1]
    assert fifo.purge() == 2
    again = fifo.send(entries("a", "c"))
    assert again[0] != first[0] and bodies(fifo) == ["a", "c"]
    assert fifo.send(entries("a", "c")) == again, "what was sent since is remembered"
    assert fifo.send(entries("b"))[0] != first[1]


def test_m3_a_purge_of_a_queue_that_is_empty_already_forgets_them_too(fifo, clock):
    fifo.send(entries("a"))
    fifo.receive(None).delete()
    assert fifo.purge() == 0
    clock.advance(1)
    fifo.send(entries("a"))
    assert bodies(fifo) == ["a"]


def test_m3_a_purge_forgets_in_other_processes_and_once(fifo, world):
    there = world.open_another().queue(fifo.name)
    (first,) = fifo.send(entries("a"))
    assert there.purge() == 1
    (second,) = fifo.send(entries("a"))
    assert second != first
    assert there.send(entries("a")) == [second]
    assert there.purge() == 1 and there.purge() == 0


def test_m3_a_purge_of_a_queue_that_nothing_was_sent_to_is_none(fifo):
    assert fifo.purge() == 0
    fifo.send(entries("a"))
    assert bodies(fifo) == ["a"]


@pytest.mark.parametrize("more", [{}, {"FifoQueue": True}], ids=["standard", "fifo"])
def test_m3_a_second_purge_within_60_seconds_is_in_progress(ledger, clock, world, more):
    """Recorded: successive_purge_calls_fail."""
    name = f"purged-{len(more)}" + (".fifo" if more else "")
    queue = ledger.create_queue(name, {"Limits": "SQS", **more})
    assert queue.purge() == 0
    queue.send(entries("a") if more else ["a"])
    other = world.open_another().queue(name)
    for seconds in (0, 59):
        clock.advance(seconds)
        for one in (queue, other):
            with pytest.raises(PurgeQueueInProgress) as caught:
                one.purge()
            sentence = f"Only one PurgeQueue operation on {name} is allowed every 60 seconds."
            assert caught.value.message == sentence
    assert queue.counts().visible == 1
    clock.advance(1)
    assert other.purge() == 1


def test_m3_what_is_done_to_the_queue_since_does_not_hide_its_purge(ledger):
    queue = ledger.create_queue("busy", {"Limits": "SQS", "Lanes": 1})
    queue.purge()
    queue.send("a")
    queue.receive().delete()
    with pytest.raises(PurgeQueueInProgress):
        queue.purge()


def test_m3_queues_without_limits_are_purged_at_any_time(queue):
    queue.send("a")
    assert (queue.purge(), queue.purge()) == (1, 0)


def test_m3_a_name_deleted_less_than_60_seconds_ago_is_refused(ledger, clock, world):
    sqs = {"Limits": "SQS"}
    ledger.create_queue("named", sqs)
    ledger.create_queue("beside", sqs)
    clock.advance(10)
    ledger.delete_queue("named")
    for n in range(30):
        ledger.queue("beside").set_tags({"n": str(n)})
    clock.advance(59)
    for one in (ledger, world.open_another()):
        with pytest.raises(QueueDeletedRecently) as caught:
            one.create_queue("named", sqs)
        sentence = "You must wait 60 seconds after deleting a queue before you can create another with the same name."
        assert caught.value.message == sentence
    assert ledger.create_queue("name", sqs) and ledger.create_queue("beside", sqs).tags() == {"n": "29"}
    clock.advance(1)
    ledger.create_queue("named", sqs)


def test_m3_a_queue_without_limits_is_made_anew_at_once(ledger):
    ledger.create_queue("notebook")
    ledger.delete_queue("notebook")
    ledger.create_queue("notebook")


@pytest.mark.parametrize("store", ["memory", "delta-rs"])
def test_m3_both_intervals_can_be_turned_off(store, tmp_path):
    settings, sqs = Settings(purge_interval=0, deletion_interval=0), {"Limits": "SQS"}
    if store == "memory":
        ledger = Ledger.in_memory(settings=settings)
    else:
        ledger = Ledger.open(str(tmp_path / "ledger"), settings=settings)
    queue = ledger.create_queue("q", sqs)
    assert (queue.purge(), queue.purge()) == (0, 0)
    ledger.delete_queue("q")
    ledger.create_queue("q", sqs)


@pytest.mark.spark_too
def test_a_purge_by_age_deletes_what_was_sent_before_and_nothing_else(make_queue, clock):
    queue = make_queue(Lanes=1)
    queue.send(["a", "b"])
    clock.advance(50)
    queue.send("c")
    clock.advance(10)
    assert queue.purge(older_than=60) == 0, "a and b are 60 seconds old, and no more"
    clock.advance(0.001)
    assert queue.purge(older_than=60) == 2
    assert bodies(queue) == ["c"] and queue.purge(older_than=60) == 0


def test_a_purge_by_age_takes_what_is_held_locked_or_delayed_too(make_queue, clock):
    queue = make_queue(Lanes=1, VisibilityTimeout=600)
    queue.send("held")
    claim = queue.receive(1)
    handle = claim.messages()[0].receipt_handle
    (locked,) = queue.send(["locked"])
    queue.lock(locked, 600)
    queue.send("delayed", delay_seconds=900)
    clock.advance(10)
    queue.send("young")
    assert queue.purge(older_than=5) == 3
    assert bodies(queue) == ["young"]
    (outcome,) = queue.delete([handle])
    assert outcome, "as after a delete, the holder's receipt changes nothing"
    assert queue.counts().in_flight == 1


def test_a_purge_by_age_counts_dead_letters_from_when_they_were_sent(make_queue, clock):
    dead = make_queue(Lanes=1)
    queue = make_queue(Lanes=1, RedrivePolicy={"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    queue.send("old")
    queue.receive(1, 0)
    clock.advance(100)
    assert not queue.receive(1)
    assert dead.purge(older_than=101) == 0 and dead.purge(older_than=99) == 1


def test_a_purge_by_age_forgets_no_deduplication_id_and_has_no_interval(ledger, clock):
    queue = ledger.create_queue("aged.fifo", {**FIFO, "Limits": "SQS"})
    first = queue.send(entries("a"))
    clock.advance(10)
    assert (queue.purge(older_than=5), queue.purge(older_than=5)) == (1, 0)
    assert queue.send(entries("a")) == first and bodies(queue) == []
    assert queue.purge() == 0, "a purge of all is not held up by one by age"


@pytest.mark.parametrize("age", [-1, float("nan"), float("inf"), "7d", True, 10**15])
def test_a_purge_by_what_is_no_age_is_refused(queue, age):
    queue.send("a")
    with pytest.raises(InvalidParameterValue, match="older_than"):
        queue.purge(older_than=age)
    assert queue.counts().visible == 1
