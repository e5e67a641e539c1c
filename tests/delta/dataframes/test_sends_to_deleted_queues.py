"""A queue is deleted while a DataFrame is sent to it: the send fails, and the next queue of the name gets nothing."""

import shutil

import pytest

from ledger import Ledger
from ledger.errors import QueueDoesNotExist
from ledger.store.delta.dataframes.staging import TaskStaging

ROWS = 9


@pytest.fixture
def root(empty_ledger, tmp_path):
    return str(shutil.copytree(empty_ledger, tmp_path / "deleted"))


def frame_of(spark, *, fifo):
    columns = ["'bulk ' || id AS body", *(["'g' AS message_group_id", "'d' || id AS message_deduplication_id"] * fifo)]
    return spark.range(ROWS).selectExpr(*columns)


def at_step(step, ledger, call):
    """Has `call` run once, in the next verb of the ledger that comes to the step."""
    left = [call]
    ledger.store.transactions.on_step = lambda reached: reached == step and left and left.pop()()
    return left


@pytest.mark.parametrize("step", ["staging", "chosen", "committed"])
@pytest.mark.parametrize("by", ["tasks", "Spark's writer", "attempt", "fifo"])
def test_a_send_whose_queue_is_deleted_before_its_answer_fails(root, spark, clock, monkeypatch, by, step):
    """Before, a queue that was deleted right before the commit took messages of an answered send with it."""
    ledger, other = (Ledger.open(root, spark, "delta-rs", clock=clock) for _ in range(2))
    if by != "tasks":
        monkeypatch.setattr(TaskStaging, "is_able", lambda self, frame: False)
    name, attributes = ("jobs.fifo", {"FifoQueue": "true"}) if by == "fifo" else ("jobs", {})
    queue = ledger.create_queue(name, attributes)
    left = at_step(step, ledger, lambda: other.delete_queue(name))
    with pytest.raises(QueueDoesNotExist, match=name):
        queue.send(frame_of(spark, fifo=by == "fifo"), attempt_id="once" if by == "attempt" else None)
    assert not left, "the queue was deleted meanwhile"
    assert ledger.upkeep(vacuum=False) is not None
    clock.advance(61)
    anew = ledger.create_queue(name, attributes)
    assert anew.counts().stored == 0
    assert anew.send(frame_of(spark, fifo=by == "fifo")).count == ROWS
    assert anew.receive(None).count == ROWS


def test_a_send_whose_queue_is_made_anew_meanwhile_says_so(root, spark, clock):
    ledger, other = (Ledger.open(root, spark, "delta-rs", clock=clock) for _ in range(2))
    queue = ledger.create_queue("jobs")

    def replace():
        other.delete_queue("jobs")
        other.create_queue("jobs")

    at_step("chosen", ledger, replace)
    with pytest.raises(QueueDoesNotExist, match="another one has its name now"):
        queue.send(frame_of(spark, fifo=False))
    assert ledger.queue("jobs").counts().stored == 0


def test_a_send_that_spark_commits_fails_if_its_queue_is_deleted_while_spark_writes(root, spark, clock):
    """The rows delete the queue: a task computes them while Spark writes and before Spark commits."""
    ledger = Ledger.open(root, spark, "spark", clock=clock)
    queue = ledger.create_queue("jobs")

    def deleting(batches):
        for batch in batches:
            if len(batch):
                Ledger.open(root, engine="delta-rs").delete_queue("jobs")
            yield batch

    frame = frame_of(spark, fifo=False).coalesce(1).mapInPandas(deleting, "body string")
    with pytest.raises(QueueDoesNotExist, match="jobs"):
        queue.send(frame)
    assert [one.name for one in ledger.list_queues()] == []


def test_a_small_send_beside_a_deletion_counts_as_before_it(root, clock):
    """It is answered, and its message goes with the queue: the next queue of the name does not get it."""
    ledger, other = (Ledger.open(root, clock=clock) for _ in range(2))
    queue = ledger.create_queue("jobs")
    # After its first send a process looks the queue up again.
    queue.send("first")
    left = at_step("chosen", ledger, lambda: other.delete_queue("jobs"))
    assert queue.send("a") and not left
    with pytest.raises(QueueDoesNotExist):
        queue.send("b")
    # By now no process appends to the segment any more.
    clock.advance(ledger.settings.open_segment_seconds + 60)
    assert ledger.create_queue("jobs").counts().stored == 0
    assert ledger.upkeep(vacuum=False).queues_removed == 1
    assert ledger.store.engine.files()[1].num_rows == 0
