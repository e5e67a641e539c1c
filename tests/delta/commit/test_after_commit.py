"""The storage fails after a verb's commit: no error says that nothing was changed."""

import shutil

import pytest

from ledger import Ledger
from ledger.errors import StorageFailed

READS = ("load", "version", "generation", "history", "transaction_version")


@pytest.fixture
def root(empty_ledger, tmp_path):
    return str(shutil.copytree(empty_ledger, tmp_path / "after"))


class Failing:
    """Fails all reads of a ledger's tables from a verb's first commit on, until `end`."""

    def __init__(self, ledger, monkeypatch):
        self._patch, self.engine, self.reads = monkeypatch, ledger.store.engine, 0
        ledger.store.transactions.on_step = lambda step: step == "committed" and self.begin()

    def begin(self):
        def fails(*arguments, **named):
            self.reads += 1
            raise StorageFailed("there", "Input/output error")

        for name in READS:
            self._patch.setattr(self.engine, name, fails)

    def end(self):
        self._patch.undo()


VERBS = {
    "send": (lambda queue, held: queue.send(["more"]), {"visible": 4}),
    "a large send": (lambda queue, held: queue.send(["x"] * 101), {"visible": 104}),
    "receive": (lambda queue, held: queue.receive(2), {"in_flight": 5}),
    "extend": (lambda queue, held: held.extend(600), {"in_flight": 3}),
    "release": (lambda queue, held: held.release(), {"visible": 6}),
    "delete": (lambda queue, held: held.delete(), {"in_flight": 0}),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_is_committed_does_not_say_that_it_changed_nothing(root, clock, monkeypatch, verb):
    queue = Ledger.open(root, clock=clock).create_queue("jobs")
    queue.send([str(n) for n in range(6)])
    receipt = queue.receive(3).receipt_id
    ledger = Ledger.open(root, clock=clock)
    queue = ledger.queue("jobs")
    held = queue.claim(receipt)
    call, counts = VERBS[verb]
    failing = Failing(ledger, monkeypatch)
    with pytest.raises(StorageFailed) as failed:
        call(queue, held)
    failing.end()
    assert failing.reads and failed.value.unknown and failed.value.verb == verb.removeprefix("a large ")
    assert "Whether it was committed is not known" in str(failed.value)
    found = queue.counts()
    assert {name: getattr(found, name) for name in counts} == counts


def test_a_queue_that_is_deleted_is_not_said_to_be_there(root, clock, monkeypatch):
    """The deletion's second commit removes the queue, and the storage fails before the third."""
    ledger = Ledger.open(root, clock=clock)
    ledger.create_queue("jobs")
    failing, landed = Failing(ledger, monkeypatch), []
    ledger.store.transactions.on_step = lambda step: (
        step == "committed" and (failing.begin() if landed else landed.append(step))
    )
    with pytest.raises(StorageFailed) as failed:
        ledger.delete_queue("jobs")
    failing.end()
    assert failed.value.unknown and ledger.list_queues() == []


@pytest.mark.parametrize("attempt_id", [None, "once"])
def test_a_bulk_send_that_is_committed_does_not_say_that_it_changed_nothing(
    root, spark, clock, monkeypatch, attempt_id
):
    ledger = Ledger.open(root, spark, "delta-rs", clock=clock)
    queue, frame = ledger.create_queue("jobs"), spark.range(9).selectExpr("'body ' || id AS body")
    failing = Failing(ledger, monkeypatch)
    with pytest.raises(StorageFailed) as failed:
        queue.send(frame, attempt_id=attempt_id)
    failing.end()
    assert failed.value.unknown and queue.counts().stored == 9
    if attempt_id:
        ledger.store.transactions.on_step = lambda step: None
        assert queue.send(frame, attempt_id=attempt_id).count == 9 and queue.counts().stored == 9


def test_ids_that_spark_cannot_read_do_not_hide_that_a_table_was_sent(root, spark, clock):
    """Before, the send read the ids after its commit, and an error of Spark's told that the send had failed."""
    import pyarrow as pa

    ledger = Ledger.open(root, spark, "delta-rs", clock=clock)
    queue, files = ledger.create_queue("jobs"), ledger.store.engine.place("messages")
    sent = queue.send(pa.table({"body": ["a", "b", "c"]}))
    shutil.move(files, f"{files}.away")
    with pytest.raises(Exception, match="messages"):
        sent.ids()
    shutil.move(f"{files}.away", files)
    assert sent.count == 3 and sorted(sent.ids()["body"].to_pylist()) == ["a", "b", "c"]
    shutil.move(files, f"{files}.away")
    assert sent.ids().num_rows == 3, "read once"
