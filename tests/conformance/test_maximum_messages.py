"""MaximumMessages: what a queue may have at most, whoever sends, and how many at once."""

import pytest

from ledger import Ledger
from ledger.errors import InvalidAttributeValue, OverLimit


@pytest.mark.spark_too
def test_a_send_beyond_the_bound_is_refused_as_a_whole_and_room_is_made_by_what_is_done(make_queue):
    queue = make_queue(Lanes=2, MaximumMessages=5)
    assert all(queue.send(["a", "b", "c"]))
    with pytest.raises(OverLimit, match=f"The queue {queue.name} has 3 messages, and 3 more would pass") as caught:
        queue.send(["d", "e", "f"])
    assert "at most 2" in caught.value.advice and "Nothing was sent" in caught.value.advice
    queue.send(["d", "e"], attempt_id="once")
    assert queue.send(["d", "e"], attempt_id="once") and queue.counts().visible == 5, "a retry is answered at the bound"
    claim = queue.receive(2, 600)
    with pytest.raises(OverLimit):
        queue.send("f")
    claim.delete()
    queue.send(["f", "g"])
    with pytest.raises(OverLimit, match="wait until some are done"):
        queue.send("h")


def test_what_is_delayed_or_locked_counts_and_what_expired_does_not(make_queue, clock):
    queue = make_queue(Lanes=1, MaximumMessages=2, MessageRetentionPeriod=60)
    queue.send("a", delay_seconds=50)
    (locked,) = queue.send(["b"])
    queue.lock(locked, 600)
    with pytest.raises(OverLimit):
        queue.send("c")
    clock.advance(60)
    queue.send(["c", "d"])


@pytest.mark.spark_too
def test_a_duplicate_of_a_fifo_queue_takes_no_room(make_fifo):
    queue = make_fifo(Lanes=2, MaximumMessages=2)
    entries = [{"MessageBody": body, "MessageGroupId": "g"} for body in "aba"]
    first = queue.send(entries)
    assert queue.send(entries) == first
    with pytest.raises(OverLimit):
        queue.send([*entries, {"MessageBody": "c", "MessageGroupId": "g"}])
    queue.set_attributes({"MaximumMessages": 1})
    assert queue.send(entries) == first, "what was sent is answered as it was"
    assert queue.counts().visible == 2


def test_it_can_be_changed_and_lifted_and_is_a_number(make_queue):
    queue = make_queue(Lanes=1)
    queue.send(["a"] * 3)
    queue.set_attributes({"MaximumMessages": 2})
    assert queue.attributes()["MaximumMessages"] == "2"
    with pytest.raises(OverLimit):
        queue.send("b")
    queue.set_attributes({"MaximumMessages": 0})
    queue.send("b")
    for wrong in (-1, "many", 10**12, 1.5):
        with pytest.raises(InvalidAttributeValue, match="MaximumMessages"):
            queue.set_attributes({"MaximumMessages": wrong})


def test_moves_are_not_refused_and_count(make_queue, clock):
    dead = make_queue(Lanes=1, MaximumMessages=1)
    queue = make_queue(Lanes=1, RedrivePolicy={"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    queue.send(["a", "b"])
    queue.receive(None, 0)
    clock.advance(1)
    assert not queue.receive(None) and dead.counts().visible == 2
    with pytest.raises(OverLimit, match="has 2 messages, and 1 more"):
        dead.send("c")


def test_a_copy_stops_at_the_bound_and_goes_on_when_there_is_room(make_queue, clock):
    queue, target = make_queue(Lanes=1), make_queue(Lanes=1, MaximumMessages=120)
    queue.send([f"m{n}" for n in range(150)])
    with pytest.raises(OverLimit, match="repeat the call: it continues after the 100 copied messages") as told:
        queue.copy_to(target)
    assert target.counts().visible == 100 and "Nothing was sent" not in str(told.value)
    target.set_attributes({"MaximumMessages": 150})
    assert queue.copy_to(target).messages == 50


def test_a_bound_that_is_set_while_a_copy_runs_holds_for_its_next_part(make_queue, monkeypatch):
    queue, target = make_queue(Lanes=1), make_queue(Lanes=1)
    queue.send([f"m{n}" for n in range(350)])
    unhindered = target.access.store.add_copies

    def bounding(*arguments):
        done = unhindered(*arguments)
        target.set_attributes({"MaximumMessages": 200})
        return done

    monkeypatch.setattr(target.access.store, "add_copies", bounding)
    with pytest.raises(OverLimit):
        queue.copy_to(target)
    assert 0 < target.counts().visible <= 200


def test_a_copy_within_a_fifo_queues_bound(make_fifo):
    queue, target = make_fifo(Lanes=1), make_fifo(Lanes=1, MaximumMessages=1)
    queue.send([{"MessageBody": body, "MessageGroupId": "g"} for body in "ab"])
    with pytest.raises(OverLimit):
        queue.copy_to(target)
    assert target.counts().visible == 0


@pytest.mark.parametrize("store", ["memory", "delta-rs"])
def test_an_arrow_table_is_bound_too(store, tmp_path):
    import pyarrow as pa

    ledger = Ledger.in_memory() if store == "memory" else Ledger.open(str(tmp_path / "ledger"))
    queue = ledger.create_queue("q", {"MaximumMessages": 100})
    with pytest.raises(OverLimit):
        queue.send(pa.table({"body": ["a"] * 101}))
    queue.send(pa.table({"body": ["a"] * 100}))
