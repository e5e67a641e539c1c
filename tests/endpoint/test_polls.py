"""Long polls: they wait without a thread, wake when there is something, and lose nothing when a client goes away."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger import Ledger
from ledger.endpoint.application import Bounds
from tests.clock import FrozenClock
from tests.endpoint.conftest import served, unsigned

POLLS = 100


@pytest.fixture
def polled(tmp_path, empty_root, query_models):
    """An endpoint with two threads, on delta-rs; and how another process would open its ledger."""
    root = tmp_path / "ledger"
    shutil.copytree(empty_root, root)
    clock = FrozenClock()
    ledger = Ledger.open(str(root), engine="delta-rs", clock=clock)
    with served(ledger, clock, query_models, unsigned, bounds=Bounds(threads=2, long_polls=POLLS)) as found:
        found.root = str(root)
        yield found


def poll(endpoint, queue, seconds=20):
    """A long poll, begun: its connection."""
    body = json.dumps({"QueueUrl": f"/123456789012/{queue}", "WaitTimeSeconds": seconds, "MaxNumberOfMessages": 10})
    head = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    raw = socket.create_connection(("127.0.0.1", endpoint.port), 60)
    raw.sendall((head + body).encode())
    return raw


def answer(raw):
    """What a poll is answered."""
    with raw, raw.makefile("rb") as file:
        assert b" 200 " in file.readline()
        length = 0
        while line := file.readline().strip():
            if line.lower().startswith(b"content-length"):
                length = int(line.split(b":")[1])
        return json.loads(file.read(length))


def until_open(endpoint, count):
    """Returns when so many polls wait: each has had its first look by then."""
    while endpoint.server.application.polls.open != count:
        threading.Event().wait(0.01)


def bodies(*answers):
    return sorted(one["Body"] for found in answers for one in found.get("Messages", []))


def test_a_poll_is_answered_as_soon_as_a_message_is_sent_here_or_elsewhere(polled):
    polled.ledger.create_queue("q", {"Limits": "SQS", "Lanes": 1})
    waiting = poll(polled, "q")
    until_open(polled, 1)
    polled.new_client().send_message(QueueUrl=f"{polled.url}/123456789012/q", MessageBody="here")
    assert bodies(answer(waiting)) == ["here"]
    waiting = poll(polled, "q")
    until_open(polled, 1)
    Ledger.open(polled.root, engine="delta-rs", clock=polled.clock).queue("q").send("elsewhere")
    assert bodies(answer(waiting)) == ["elsewhere"]


def test_a_poll_is_answered_when_a_message_is_released_or_its_timeout_has_run_out(polled):
    queue = polled.ledger.create_queue("q", {"Limits": "SQS", "Lanes": 1})
    queue.send("body")
    claim = queue.receive(visibility_timeout=30)
    waiting = poll(polled, "q")
    until_open(polled, 1)
    claim.release()
    assert bodies(answer(waiting)) == ["body"]
    waiting = poll(polled, "q")
    until_open(polled, 1)
    polled.clock.advance(31)
    assert bodies(answer(waiting)) == ["body"]


def test_many_polls_hold_no_thread_and_share_what_comes(polled):
    """A hundred of them beside two threads: others are served meanwhile, and each message goes to one."""
    for name in ("q", "other"):
        polled.ledger.create_queue(name, {"Limits": "SQS", "Lanes": 1})
    waiting = [poll(polled, "q", 2) for _ in range(POLLS)]
    until_open(polled, POLLS)
    client = polled.new_client()
    other = f"{polled.url}/123456789012/other"
    client.send_message(QueueUrl=other, MessageBody="of another")
    assert bodies(client.receive_message(QueueUrl=other)) == ["of another"]
    with pytest.raises(client.exceptions.RequestThrottled):
        client.receive_message(QueueUrl=other, WaitTimeSeconds=1)
    entries = [{"Id": str(n), "MessageBody": f"{n:02}"} for n in range(10)]
    client.send_message_batch(QueueUrl=f"{polled.url}/123456789012/q", Entries=entries)
    with ThreadPoolExecutor(POLLS) as readers:
        assert bodies(*readers.map(answer, waiting)) == [f"{n:02}" for n in range(10)]


def test_who_went_away_stands_in_nobodys_way(polled):
    """Polls whose clients are gone are looked for no more: what comes goes to the one that still waits."""
    queue = polled.ledger.create_queue("q", {"Limits": "SQS", "Lanes": 1})
    gone = [poll(polled, "q") for _ in range(20)]
    until_open(polled, 20)
    for one in gone:
        one.close()
    until_open(polled, 0)
    waiting = poll(polled, "q")
    until_open(polled, 1)
    queue.send("body")
    assert bodies(answer(waiting)) == ["body"]


def test_a_client_that_goes_away_in_its_poll_takes_no_message_with_it(polled):
    queue = polled.ledger.create_queue("q", {"Limits": "SQS", "Lanes": 1, "VisibilityTimeout": 30})
    for _ in range(5):
        poll(polled, "q").close()
    until_open(polled, 0)
    queue.send("body")
    gone = poll(polled, "q")
    gone.close()
    found = bodies(answer(poll(polled, "q", 1)))
    # The one that went away had looked, or had not: then it is in flight until its timeout ends.
    if not found:
        assert queue.counts().in_flight == 1
        polled.clock.advance(31)
        found = bodies(answer(poll(polled, "q", 1)))
    assert found == ["body"]


def test_a_poll_ends_without_messages_and_with_an_error_when_its_queue_is_deleted(polled):
    polled.ledger.create_queue("q", {"Limits": "SQS", "Lanes": 1})
    assert answer(poll(polled, "q", 1)) == {}
    waiting = poll(polled, "q")
    until_open(polled, 1)
    polled.ledger.delete_queue("q")
    with waiting:
        assert waiting.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_server_that_stops_answers_its_polls(polled):
    polled.ledger.create_queue("q", {"Limits": "SQS", "Lanes": 1})
    waiting = [poll(polled, "q") for _ in range(5)]
    until_open(polled, 5)
    polled.server.stop()
    assert [answer(one) for one in waiting] == [{}] * 5
