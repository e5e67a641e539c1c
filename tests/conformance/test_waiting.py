"""Q5 and V3 against the machine's own clock: waiting receives, real leases, a real heartbeat. Short on purpose."""

import shutil
import threading
import time

import pytest

from ledger import Ledger
from ledger.errors import QueueDoesNotExist
from ledger.store.protocol import ReceiveRequest


@pytest.fixture(params=["memory", "delta-rs"])
def queue(request, tmp_path):
    if request.param == "memory":
        return Ledger.in_memory().create_queue("q")
    root = shutil.copytree(request.getfixturevalue("empty_ledger"), tmp_path / "ledger")
    return Ledger.open(str(root), engine="delta-rs").create_queue("q")


def timed(call):
    started = time.monotonic()
    return call(), time.monotonic() - started


def test_q5_a_wait_ends_without_a_message_when_its_time_is_up(queue):
    claim, seconds = timed(lambda: queue.receive(wait=0.6))
    assert not claim and 0.6 <= seconds < 5


def test_q5_a_receive_without_a_wait_answers_at_once(queue):
    claim, seconds = timed(queue.receive)
    assert not claim and seconds < 2


def test_q5_a_wait_ends_as_soon_as_a_message_is_sent(queue):
    sender = threading.Timer(0.4, lambda: queue.send("late"))
    sender.start()
    claim, seconds = timed(lambda: queue.receive(wait=20))
    sender.join()
    assert [message.body for message in claim] == ["late"] and seconds < 8


def test_q5_a_wait_ends_when_a_lease_runs_out(queue):
    queue.send("x")
    queue.receive(visibility_timeout=1)
    claim, seconds = timed(lambda: queue.receive(wait=20))
    assert claim.messages()[0].receive_count == 2 and seconds < 8


@pytest.mark.parametrize("anew", [False, True])
def test_a_wait_ends_with_an_error_when_its_queue_is_deleted(queue, anew):
    """What was recorded about its messages is forgotten then: it would be granted what was acknowledged."""
    queue.send("acknowledged")
    queue.receive().delete()
    store, record = queue.access.store, queue.access.made

    def delete():
        store.delete_queue(record, queue.access.clock)
        if anew:
            store.create_queue(record.name, record.attributes, {}, queue.access.clock)

    deleter = threading.Timer(0.3, delete)
    deleter.start()
    with pytest.raises(QueueDoesNotExist):
        queue.receive(wait=20)
    deleter.join()
    with pytest.raises(QueueDoesNotExist):
        store.receive(record, [ReceiveRequest(None, 30)], queue.access.clock)


def test_q5_the_queues_attribute_is_the_default_wait(queue):
    queue.set_attributes({"ReceiveMessageWaitTimeSeconds": 1})
    claim, seconds = timed(queue.receive)
    assert not claim and seconds >= 1
    claim, seconds = timed(lambda: queue.receive(wait=0))
    assert not claim and seconds < 1


@pytest.mark.soak_variants("memory")
def test_a_heartbeat_keeps_a_short_lease_in_real_time(queue):
    queue.send(["a", "b"])
    claim = queue.receive(None, visibility_timeout=2)
    give_up = time.monotonic() + 4.5
    with claim.heartbeat(every=0.5) as heart:
        while time.monotonic() < give_up:
            assert not queue.receive(), "another receiver got a message that a heartbeat keeps"
            time.sleep(0.3)
            heart.check()
    assert claim.delete().messages == 2
