"""A process whose ledger's folder is gone says so, whatever it is asked: no answer is stale, and none is empty."""

from pathlib import Path

import pytest

from ledger.errors import StorageFailed

#: Everything that reads, and some that write: of a claim, its queue, a queue without messages, and the ledger.
CALLS = {
    "counts": lambda ledger, queue, empty, claim: queue.counts(),
    "peek": lambda ledger, queue, empty, claim: queue.peek(claim.kept),
    "receive": lambda ledger, queue, empty, claim: queue.receive(),
    "receive of nothing": lambda ledger, queue, empty, claim: empty.receive(),
    "claim": lambda ledger, queue, empty, claim: queue.claim(claim.receipt_id),
    "messages": lambda ledger, queue, empty, claim: claim.messages(),
    "iterate": lambda ledger, queue, empty, claim: list(claim),
    "check": lambda ledger, queue, empty, claim: claim.check(),
    "attributes": lambda ledger, queue, empty, claim: queue.attributes(),
    "queue": lambda ledger, queue, empty, claim: ledger.queue("jobs"),
    "list_queues": lambda ledger, queue, empty, claim: ledger.list_queues(),
    "sql": lambda ledger, queue, empty, claim: ledger.sql("SELECT * FROM messages"),
    "sql of queues": lambda ledger, queue, empty, claim: ledger.sql("SELECT * FROM queue_depth"),
    "sql of the past": lambda ledger, queue, empty, claim: ledger.sql("SELECT * FROM messages", 1),
    "health": lambda ledger, queue, empty, claim: ledger.health(),
    "send": lambda ledger, queue, empty, claim: queue.send("c"),
    "delete": lambda ledger, queue, empty, claim: claim.delete(),
    "upkeep": lambda ledger, queue, empty, claim: ledger.upkeep(),
}


@pytest.fixture
def opened(open_ledger, engine):
    ledger = open_ledger(engine)
    queue, empty = ledger.create_queue("jobs"), ledger.create_queue("empty")
    queue.send(["a", "b"])
    claim = queue.receive(1)
    claim.kept = claim.messages()[0].message_id
    for call in (queue.counts, empty.receive, ledger.list_queues):
        call()
    return ledger, queue, empty, claim


@pytest.mark.soak_variants("spark*", but=("spark-receive", "spark-send"))
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_asked_of_a_root_that_was_renamed_names_it(opened, root, call):
    Path(root).rename(f"{root}-moved")
    with pytest.raises(StorageFailed, match=f"there is no folder {root} any more: it was renamed"):
        call(*opened)
    assert not Path(root).exists(), "and nothing is made there"


def test_when_it_is_back_all_goes_on(opened, root):
    _, queue, _, claim = opened
    Path(root).rename(f"{root}-moved")
    with pytest.raises(StorageFailed):
        queue.counts()
    Path(f"{root}-moved").rename(root)
    assert queue.counts().in_flight == 1 and claim.delete().messages == 1 and queue.send("c")


@pytest.mark.soak_variants("*-dead_letters", "delta-rs-messages", "spark-queue_depth")
@pytest.mark.parametrize("view", ["messages", "queue_depth", "dead_letters"])
def test_a_view_of_spark_s_names_it_too(open_ledger, root, engine, view):
    ledger = open_ledger(engine, frames=True)
    ledger.create_queue("jobs").send("a")
    assert ledger.view(view).count() == (view != "dead_letters")
    Path(root).rename(f"{root}-moved")
    with pytest.raises(StorageFailed, match=f"there is no folder {root} any more"):
        ledger.view(view)
