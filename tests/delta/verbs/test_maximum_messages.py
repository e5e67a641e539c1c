"""MaximumMessages beside other senders: at no moment more, and as many as there is room for."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue, OverLimit
from tests.simulation.engine import RULES
from tests.simulation.log import Storage
from tests.simulation.worlds import open_ledger as open_simulated


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("attempt_id", [None, "once"])
def test_a_send_that_was_decided_before_another_one_decides_again(rules, attempt_id, clock):
    storage = Storage(clock)
    one, other = (open_simulated(storage, rules, clock) for _ in range(2))
    one.create_queue("q", {"MaximumMessages": 3, "Lanes": 2}).send("a")
    left = [lambda: other.queue("q").send("b")]
    one.store.transactions.on_step = lambda step: left.pop()() if step == "chosen" and left else None
    with pytest.raises(OverLimit, match="has 2 messages, and 2 more"):
        one.queue("q").send(["c", "d"], attempt_id=attempt_id)
    assert one.queue("q").counts().visible == 2 and not left
    one.queue("q").send("c")


@pytest.mark.parametrize("rules", RULES)
def test_an_attempt_that_another_process_commits_meanwhile_is_sent_once(rules, clock):
    storage = Storage(clock)
    one, other = (open_simulated(storage, rules, clock) for _ in range(2))
    one.create_queue("q", {"MaximumMessages": 9, "Lanes": 2})
    left = [lambda: other.queue("q").send(["a"], attempt_id="once")]
    one.store.transactions.on_step = lambda step: left.pop()() if step == "chosen" and left else None
    sent = one.queue("q").send(["a"], attempt_id="once")
    assert sent == other.queue("q").send(["a"], attempt_id="once") and one.queue("q").counts().visible == 1


@pytest.mark.parametrize("rules", RULES)
def test_an_attempt_of_who_knew_of_no_bound_yet_is_sent_once(rules, clock):
    """It was there twice, under the same ids, and no receive got on: the commit looked at the count of sends alone."""
    storage = Storage(clock)
    one, other = (open_simulated(storage, rules, clock) for _ in range(2))
    queue = one.create_queue("q", {"MaximumMessages": 9, "Lanes": 2})

    def meanwhile():
        unbound = other.queue("q")
        unbound.set_attributes({"MaximumMessages": 0})
        unbound.send(["a"], attempt_id="once")
        unbound.set_attributes({"MaximumMessages": 9})

    left = [meanwhile]
    one.store.transactions.on_step = lambda step: left.pop()() if step == "chosen" and left else None
    sent = queue.send(["a"], attempt_id="once")
    assert sent == other.queue("q").send(["a"], attempt_id="once") and not left
    assert [message.body for message in queue.receive(None).messages()] == ["a"]


def test_eight_threads_and_four_processes_worth_of_ledgers_fill_a_queue_and_no_more(tmp_path):
    root = str(tmp_path / "ledger")
    Ledger.open(root).create_queue("q", {"MaximumMessages": 50, "Lanes": 4})
    ledgers, begin = [Ledger.open(root) for _ in range(4)], threading.Barrier(8)

    def send(number):
        queue, sent = ledgers[number % 4].queue("q"), 0
        begin.wait()
        for n in range(10):
            try:
                sent += len(queue.send([f"{number} {n}"] * (1 + n % 2)))
            except OverLimit:
                continue
        return sent

    with ThreadPoolExecutor(8) as threads:
        sent = sum(threads.map(send, range(8)))
    assert sent == ledgers[0].queue("q").counts().visible == 50


def test_a_bulk_send_is_bound_by_its_rows_and_leaves_nothing_behind(frames_ledger, spark):
    queue = frames_ledger.create_queue("bounded", {"MaximumMessages": 200, "Lanes": 2})
    queue.send(spark.range(150).selectExpr("CAST(id AS STRING) AS body"))
    with pytest.raises(OverLimit, match="has 150 messages, and 51 more"):
        queue.send(spark.range(51).selectExpr("CAST(id AS STRING) AS body"))
    queue.send(spark.range(50).selectExpr("CAST(id AS STRING) AS body"), attempt_id="rest of it")
    assert queue.counts().visible == 200
    fifo = frames_ledger.create_queue(
        "bounded.fifo", {"MaximumMessages": 10, "FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 2}
    )
    rows = spark.range(12).selectExpr("CAST(id % 10 AS STRING) AS body", "'g' AS message_group_id")
    assert fifo.send(rows).count == 10
    with pytest.raises(OverLimit):
        fifo.send(spark.range(10, 11).selectExpr("CAST(id AS STRING) AS body", "'g' AS message_group_id"))
    assert fifo.counts().visible == 10


def test_a_bound_that_is_set_while_spark_writes_counts(frames_ledger, spark):
    """A DataFrame takes long to be written: its send keeps the bound that the queue has at the commit."""
    queue = frames_ledger.create_queue("late_bound", {"Lanes": 2})
    left = [lambda: frames_ledger.queue("late_bound").set_attributes({"MaximumMessages": 5})]
    transactions = frames_ledger.store.transactions
    transactions.on_step = lambda step: left.pop()() if step == "staging" and left else None
    try:
        with pytest.raises(OverLimit, match="9 more"):
            queue.send(spark.range(9).selectExpr("CAST(id AS STRING) AS body"))
    finally:
        transactions.on_step = lambda step: None
    assert not left and queue.counts().stored == 0


def test_where_spark_commits_a_dataframe_is_refused(root, spark):
    ledger = Ledger.open(root, spark, engine="spark")
    queue = ledger.create_queue("bounded", {"MaximumMessages": 200})
    with pytest.raises(InvalidParameterValue, match="MaximumMessages"):
        queue.send(spark.range(1).selectExpr("CAST(id AS STRING) AS body"))
    queue.send(["a"])
