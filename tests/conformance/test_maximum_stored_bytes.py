"""MaximumStoredBytes: how many bytes a queue's messages may take, whoever sends, and however large a send is."""

import pyarrow as pa
import pytest

from ledger import Ledger
from ledger.errors import InvalidAttributeValue, OverLimit
from tests.bodies import KILO, texts


@pytest.mark.spark_too
def test_a_send_beyond_the_bound_is_refused_as_a_whole_and_room_is_made_by_what_is_done(make_queue):
    queue = make_queue(Lanes=2, MaximumStoredBytes=100 * KILO)
    queue.send(texts(6), attempt_id="once, in bytes")
    told = f"The messages of the queue {queue.name} take [0-9]{{2}},[0-9]{{3}} bytes, and 60,000 more would pass its"
    with pytest.raises(OverLimit, match=f"{told} MaximumStoredBytes of 100,000") as caught:
        queue.send(texts(6))
    assert "send at most" in caught.value.advice and "Nothing was sent" in caught.value.advice
    assert queue.counts().visible == 6
    assert len(queue.send(texts(6), attempt_id="once, in bytes")) == 6, "a retry is answered at the bound"
    claim = queue.receive(5, 600)
    with pytest.raises(OverLimit):
        queue.send(texts(6))
    claim.delete()
    queue.send(texts(6))
    assert queue.counts().visible == 7


def test_a_queue_that_is_full_says_so(make_queue):
    queue = make_queue(Lanes=1, MaximumStoredBytes=70 * KILO)
    queue.send(texts(6))
    queue.set_attributes({"MaximumStoredBytes": 20 * KILO})
    with pytest.raises(OverLimit, match="2 more would pass") as caught:
        queue.send("ab")
    assert "wait until some are done" in caught.value.advice


def test_message_attributes_count(make_queue):
    queue = make_queue(Lanes=1, MaximumStoredBytes=20 * KILO)
    (text,) = texts(1, 30 * KILO)
    with pytest.raises(OverLimit, match=r"take 0 bytes, and 30,011 more"):
        queue.send("a", message_attributes={"kind": {"DataType": "String", "StringValue": text}})


def test_what_is_delayed_or_locked_counts_and_what_expired_does_not(make_queue, clock):
    queue = make_queue(Lanes=1, MaximumStoredBytes=50 * KILO, MessageRetentionPeriod=60)
    delayed, locked, later = texts(3, 20 * KILO)
    queue.send(delayed, delay_seconds=50)
    (locked_id,) = queue.send([locked])
    queue.lock(locked_id, 600)
    with pytest.raises(OverLimit):
        queue.send(later)
    clock.advance(60)
    queue.send([later])


@pytest.mark.spark_too
def test_a_duplicate_of_a_fifo_queue_takes_no_room(make_fifo):
    queue = make_fifo(Lanes=2, MaximumStoredBytes=50 * KILO)
    one, other, third = texts(3, 20 * KILO)
    entries = [{"MessageBody": body, "MessageGroupId": "g"} for body in (one, other, one)]
    first = queue.send(entries)
    assert queue.send(entries) == first
    with pytest.raises(OverLimit, match="20,000 more"):
        queue.send([*entries, {"MessageBody": third, "MessageGroupId": "g"}])
    assert queue.counts().visible == 2


def test_it_can_be_changed_and_lifted_and_is_a_number(make_queue):
    queue = make_queue(Lanes=1)
    queue.send(texts(2))
    queue.set_attributes({"MaximumStoredBytes": 1})
    assert queue.attributes()["MaximumStoredBytes"] == "1"
    with pytest.raises(OverLimit):
        queue.send("b")
    queue.set_attributes({"MaximumStoredBytes": 0})
    queue.send("b")
    queue.set_attributes({"MaximumStoredBytes": 5 * 10**12})
    for wrong in (-1, "1 GB", 10**15, 1.5):
        with pytest.raises(InvalidAttributeValue, match="MaximumStoredBytes"):
            queue.set_attributes({"MaximumStoredBytes": wrong})


def test_moves_are_not_refused_and_count(make_queue, clock):
    dead = make_queue(Lanes=1, MaximumStoredBytes=30 * KILO)
    queue = make_queue(Lanes=1, RedrivePolicy={"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
    queue.send(texts(4))
    queue.receive(None, 0)
    clock.advance(1)
    assert not queue.receive(None) and dead.counts().visible == 4
    with pytest.raises(OverLimit, match=r"take [34][0-9],[0-9]{3} bytes, and 1 more"):
        dead.send("c")
    queue.set_attributes({"MaximumStoredBytes": 30 * KILO})
    queue.send(texts(1))


def test_a_copy_stops_at_the_bound_and_goes_on_when_there_is_room(make_queue, clock):
    queue, target = make_queue(Lanes=1), make_queue(Lanes=1, MaximumStoredBytes=200 * KILO)
    queue.send(texts(150, KILO))
    with pytest.raises(OverLimit, match="repeat the call: it continues after the 100 copied messages"):
        target.set_attributes({"MaximumStoredBytes": 140 * KILO})
        queue.copy_to(target)
    assert target.counts().visible == 100
    target.set_attributes({"MaximumStoredBytes": 300 * KILO})
    assert queue.copy_to(target).messages == 50


@pytest.mark.parametrize("store", ["memory", "delta-rs"])
def test_an_arrow_table_is_bound_too(store, tmp_path):
    ledger = Ledger.in_memory() if store == "memory" else Ledger.open(str(tmp_path / "ledger"))
    queue = ledger.create_queue("q", {"MaximumStoredBytes": 100 * KILO})
    with pytest.raises(OverLimit, match="110,000 more"):
        queue.send(pa.table({"body": texts(11)}))
    queue.send(pa.table({"body": texts(9)}))
