"""MaximumStoredBytes: what the log of `messages` has, beside other senders, and for files of each kind."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.errors import InvalidParameterValue, OverLimit
from tests.bodies import KILO, texts
from tests.simulation.engine import RULES
from tests.simulation.log import Storage
from tests.simulation.worlds import open_ledger as open_simulated


def stored_bytes(queue):
    """What a queue's messages take, as the refusal of a send says."""
    queue.set_attributes({"MaximumStoredBytes": 1})
    with pytest.raises(OverLimit) as refused:
        queue.send("a")
    queue.set_attributes({"MaximumStoredBytes": 0})
    return int(re.search("take ([0-9,]+) bytes", refused.value.message)[1].replace(",", ""))


def bytes_of_files(root):
    return sum(DeltaTable(f"{root}/messages").get_add_actions(flatten=True).column("size_bytes").to_pylist())


@pytest.mark.parametrize("rules", RULES)
def test_a_send_that_was_decided_before_another_one_decides_again(rules, clock):
    storage = Storage(clock)
    one, other = (open_simulated(storage, rules, clock) for _ in range(2))
    one.create_queue("q", {"MaximumStoredBytes": 50 * KILO, "Lanes": 2})
    left = [lambda: other.queue("q").send(texts(1, 20 * KILO))]
    one.store.transactions.on_step = lambda step: left.pop()() if step == "chosen" and left else None
    with pytest.raises(OverLimit, match=r"take 20,[0-9]{3} bytes, and 40,000 more"):
        one.queue("q").send(texts(2, 20 * KILO))
    assert one.queue("q").counts().visible == 1 and not left
    one.queue("q").send(texts(1, 20 * KILO))


def test_four_ledgers_and_eight_threads_fill_a_queue_and_no_more(tmp_path):
    root = str(tmp_path / "ledger")
    Ledger.open(root).create_queue("q", {"MaximumStoredBytes": 400 * KILO, "Lanes": 4})
    ledgers, begin = [Ledger.open(root) for _ in range(4)], threading.Barrier(8)

    def send(number):
        queue, refused = ledgers[number % 4].queue("q"), 0
        begin.wait()
        for _ in range(6):
            try:
                queue.send(texts(1, 20 * KILO))
            except OverLimit:
                refused += 1
        return refused

    with ThreadPoolExecutor(8) as threads:
        refused = sum(threads.map(send, range(8)))
    sent = ledgers[0].queue("q").counts().visible
    assert sent + refused == 48 and sent >= 10, "there was room for as many"
    last, slack = 20 * KILO, 10 * KILO
    assert 400 * KILO - last - slack < bytes_of_files(root) < 400 * KILO + slack, "what Parquet adds to the last one"


def test_the_bytes_are_those_of_the_log_before_and_after_files_are_joined(tmp_path):
    root = str(tmp_path / "ledger")
    ledger = Ledger.open(root)
    queue = ledger.create_queue("q", {"Lanes": 1})
    ledger.create_queue("another", {"Lanes": 1}).send(texts(1))
    others = bytes_of_files(root)
    for text in texts(8):
        queue.send(text)
    before = stored_bytes(queue)
    assert before == bytes_of_files(root) - others
    ledger.upkeep()
    after = stored_bytes(Ledger.open(root).queue("q"))
    assert after == bytes_of_files(root) - others < before
    queue.receive(2).delete()
    assert stored_bytes(queue) == pytest.approx(after * 6 / 8, abs=2)


def test_a_dataframe_is_bound_by_the_bytes_of_its_files_and_leaves_nothing_behind(frames_ledger, spark):
    queue = frames_ledger.create_queue("bounded-in-bytes", {"Lanes": 2})
    rows = spark.createDataFrame([(text,) for text in texts(40)], "body STRING")
    queue.send(rows)
    taken = stored_bytes(queue)
    assert 250 * KILO < taken < 450 * KILO
    queue.set_attributes({"MaximumStoredBytes": taken + 100 * KILO})
    with pytest.raises(OverLimit, match=f"take {taken:,} bytes, and [234][0-9]{{2}},[0-9]{{3}} more"):
        queue.send(rows)
    assert queue.counts().visible == 40 and stored_bytes(queue) == taken
    queue.set_attributes({"MaximumStoredBytes": 2 * taken + 100 * KILO})
    queue.send(rows, attempt_id="there is room")
    assert queue.counts().visible == 80


def test_where_spark_commits_a_dataframe_is_refused(root, spark):
    queue = Ledger.open(root, spark, engine="spark").create_queue("bounded", {"MaximumStoredBytes": 10**6})
    with pytest.raises(InvalidParameterValue, match="its MaximumStoredBytes could not be kept"):
        queue.send(spark.range(1).selectExpr("CAST(id AS STRING) AS body"))
    queue.send(["a"])
    assert stored_bytes(queue) > 0
