"""A hot queue slows no other: in which order calls get threads, and which one gives way. Nothing here is timed."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger import Ledger
from ledger.clock import system_clock
from ledger.endpoint.actions.call import Call
from ledger.endpoint.application import Bounds
from ledger.endpoint.keys import Caller
from ledger.endpoint.pool import Lines
from tests.endpoint.conftest import served, unsigned
from tests.endpoint.test_requests import ACCOUNT, in_json

SOON = 30.0


def begun(lines):
    """The calls that get a thread now."""
    found = []
    while (one := lines.begin_next()) is not None:
        found.append(one)
    return found


def test_a_queue_has_all_threads_but_an_eighth():
    lines = Lines(threads=16, backlog=100)
    for number in range(40):
        assert lines.add("hot", number) is None
    assert begun(lines) == [("hot", number) for number in range(14)]
    assert lines.add("other", "first") is None
    assert begun(lines) == [("other", "first")]
    assert (lines.begun, lines.waiting) == (15, 26)


def test_lines_have_their_turns_one_by_one_however_long_they_are():
    lines = Lines(threads=2, backlog=100)
    for number in range(10):
        lines.add("hot", number)
    assert begun(lines) == [("hot", 0)]
    for queue in ("a", "b", "a"):
        lines.add(queue, queue)
    order = []
    running = ["hot", *(queue for queue, _ in begun(lines))]
    while running:
        lines.end(running.pop(0))
        some = begun(lines)
        order += some
        running += [queue for queue, _ in some]
    assert order[:4] == [("hot", 1), ("b", "b"), ("a", "a"), ("hot", 2)]
    assert [call for _, call in order[4:]] == list(range(3, 10))
    assert lines.open == 0


def test_where_too_many_wait_the_queue_with_the_most_calls_gives_way():
    lines = Lines(threads=4, backlog=2)
    for number in range(6):
        assert lines.add("hot", number) is None
    assert begun(lines) == [("hot", 0), ("hot", 1), ("hot", 2)]
    # Three wait, and three have a thread: the next call of the same queue is refused itself.
    assert lines.add("hot", 6) == 6
    assert lines.add("other", "first") == 5
    assert begun(lines) == [("other", "first")]
    assert lines.add("other", "second") == 4
    assert lines.open == 6


def test_a_thread_alone_is_everybodys():
    lines = Lines(threads=1, backlog=0)
    assert lines.add("q", 1) is None
    assert begun(lines) == [("q", 1)]
    assert lines.add("q", 2) == 2
    assert lines.add("other", 3) == 3


@pytest.fixture
def crowded(tmp_path, query_models):
    """An endpoint with few threads."""
    ledger = Ledger.open(str(tmp_path / "ledger"), engine="delta-rs")
    with served(ledger, system_clock, query_models, unsigned, bounds=Bounds(threads=4, backlog=20)) as found:
        yield found


def test_while_a_queue_cannot_commit_the_others_are_served(crowded):
    """More calls to a queue than there are threads wait for its commit, which stands still meanwhile."""
    hot, other = (crowded.ledger.create_queue(name, {"Limits": "SQS", "Lanes": 1}) for name in ("hot", "other"))
    turns = crowded.ledger.store.transactions._turns

    def send(url, body):
        status, _, said = in_json(crowded, "SendMessage", {"QueueUrl": url, "MessageBody": body})
        return status, said.get("MessageId")

    with ThreadPoolExecutor(12) as clients:
        with turns.of(("messages", hot.id)):
            sent = [clients.submit(send, f"{crowded.url}/123456789012/hot", f"{number}") for number in range(10)]
            while crowded.server.application.pool.waiting < 7:
                assert not any(one.done() for one in sent)
            for url in ("other", "http://a.name/123456789012/other", "http://b.name/123456789012/other/"):
                status, message_id = clients.submit(send, url, "body").result(SOON)
                assert status == 200 and message_id
            assert not any(one.done() for one in sent)
        assert [one.result(SOON)[0] for one in sent] == [200] * 10
    assert (hot.counts().visible, other.counts().visible) == (10, 3)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("hot", "hot"), ("hot.fifo", "hot.fifo"), (f"/{ACCOUNT}/hot", "hot"), (f"{ACCOUNT}/hot/", "hot"),
        (f"http://a/{ACCOUNT}/hot?1", "hot"), (f"http://a/b/{ACCOUNT}/%68ot", "hot"),
        (f"http://a/{ACCOUNT}/hot?a/victim", "hot"), (f"http://a/{ACCOUNT}/hot#a/victim", "hot"),
        ("http://a/210987654321/hot", ""), ("http://a/hot", ""), ("http://[", ""), ("", ""), (None, ""), (7, ""),
    ],
)  # fmt: skip
def test_the_line_of_a_call_is_its_queues_however_the_queue_is_named(url, name):
    call = Call(Ledger.in_memory(), "SendMessage", {} if url is None else {"QueueUrl": url}, "", Caller(ACCOUNT))
    assert call.queue_named == name
