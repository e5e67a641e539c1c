"""Bulk sends of real DataFrames beside other writers: Spark writes files, delta-rs commits them."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue, QueueDoesNotExist
from ledger.rules import staging
from ledger.settings import Settings
from ledger.store.delta.commit.folders import FoldersOfSpark
from ledger.store.delta.dataframes.staging import Staging, TaskStaging
from ledger.store.delta.model.tables import Where
from ledger.store.delta.verbs.staged_sends import open_staged_folders
from tests.clock import FrozenClock

SMALL = Settings(messages_per_segment=64, messages_per_file=32)
#: What users may have set for tables of their own.
OF_USERS = {
    "spark.databricks.delta.properties.defaults.columnMapping.mode": "name",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    "spark.databricks.delta.optimizeWrite.enabled": "true",
    "spark.sql.files.maxRecordsPerFile": "5",
}
#: So long one sender waits for the other to decide, in seconds.
BESIDE = 60
KILLED = """
import os, signal, sys
from ledger import Ledger
from ledger.runtime.session import spark_session
spark = spark_session("killed", small=True)
ledger = Ledger.open(sys.argv[1], spark, "delta-rs")
ledger.store.transactions.on_step = lambda step: step == "chosen" and os.kill(os.getpid(), signal.SIGKILL)
ledger.queue("jobs").send(spark.range(9).selectExpr("'bulk ' || id AS body"), attempt_id="killed")
"""


@pytest.fixture
def root(empty_ledger, tmp_path):
    return str(shutil.copytree(empty_ledger, tmp_path / "of=1 100%"))


def bodies(queue):
    return sorted(message.body for message in queue.receive(None, visibility_timeout=0).messages())


def test_nobody_waits_for_spark_and_no_setting_of_its_session_counts(root, spark, clock):
    ledger, other = (Ledger.open(root, spark, "delta-rs", settings=SMALL, clock=clock) for _ in range(2))
    queue, theirs = ledger.create_queue("jobs", {"Lanes": 2}), other.queue("jobs")
    ledger.store.transactions.on_step = lambda step: step == "staging" and theirs.send(["small"])
    users = spark.newSession()
    for name, value in OF_USERS.items():
        users.conf.set(name, value)
    sent = queue.send(users.range(0, 150, 1, 2).selectExpr("'bulk ' || id AS body"))
    ledger.store.transactions.on_step = lambda step: None
    expected = sorted(["small", *(f"bulk {n}" for n in range(150))])
    assert sent.count == 150 and len(sent.segments) == 4
    assert {name: users.conf.get(name) for name in OF_USERS} == OF_USERS
    by_spark = Ledger.open(root, spark, "spark", clock=clock)
    version, files = ledger.store.engine.files()
    assert (version, files.num_rows) == (2, 7)
    same = [("segment", "ascending"), ("first_seq", "ascending")]
    assert by_spark.store.engine.files()[1].sort_by(same).equals(files.sort_by(same))
    assert sorted(row.body for row in by_spark.queue("jobs").receive(None).dataframe.collect()) == expected
    users.conf.set("spark.databricks.delta.stats.collect", "false")
    in_order = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    with pytest.raises(InvalidParameterValue, match=r"stats.collect.*Nothing was sent"):
        in_order.send(users.sql("SELECT 'x' AS body, 'g' AS message_group_id"))
    folders = open_staged_folders(ledger.store)
    (folder,) = folders.names()
    for one in (folders, FoldersOfSpark(f"{root}/messages/{staging.FOLDER}", spark)):
        assert one.names() == [folder] and one.has_files(folder)
        assert one.read(f"{folder}/_delta_log/{0:020d}.json") is None, "what was published has no log of its own"
    # What vacuum, of Spark's here, removes of a folder and what it leaves.
    messages = f"delta.`{ledger.store.engine.place('messages')}`"
    spark.sql(f"DELETE FROM {messages} WHERE body = 'bulk 7'")
    vacuuming = spark.newSession()
    vacuuming.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    vacuuming.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")
    vacuuming.sql(f"VACUUM {messages} RETAIN 0 HOURS")
    assert len(list(Path(root, "messages", staging.FOLDER, folder).glob("part-*.parquet"))) == 5
    assert ledger.store.engine.messages(Where(), ["body"]).num_rows == 150


def test_two_fifo_sends_at_once_send_each_message_once_and_in_order(root, spark, clock):
    # Who lost once has the table to itself.
    settings = replace(SMALL, losses_before_waiting=1)
    first, second = (Ledger.open(root, spark, "delta-rs", settings=settings, clock=clock) for _ in range(2))
    made = {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 2}
    queues = first.create_queue("jobs.fifo", made), second.queue("jobs.fifo")
    both, errors, counts, met = threading.Barrier(2), [], [], set()

    def meet(step):
        # Both have decided what to send before either is published; who lost decides again.
        if step == "staging" and threading.get_ident() not in met:
            met.add(threading.get_ident())
            both.wait(BESIDE)

    def send(queue, numbers):
        frame = spark.range(*numbers).selectExpr("'' || id AS body", "'' || id % 3 AS message_group_id").coalesce(1)
        try:
            counts.append(queue.send(frame).count)
        except BaseException as error:
            errors.append(error)

    for ledger in (first, second):
        ledger.store.transactions.on_step = meet
    threads = [
        threading.Thread(target=send, args=(queue, numbers)) for queue, numbers in zip(queues, [(0, 60), (30, 90)])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and sorted(counts) == [30, 60]
    messages = queues[0].receive(None).messages()
    assert sorted(int(message.body) for message in messages) == list(range(90))
    assert len({message.sequence_number for message in messages}) == 90
    assert len(open_staged_folders(first.store).names()) == 2, "what lost is removed"


@pytest.mark.parametrize("by", ["tasks", "Spark's writer"])
def test_a_sender_that_stood_still_until_upkeep_gave_it_up_writes_anew_and_sends_once(
    root, spark, clock, monkeypatch, by
):
    """Before, what was not there any more was taken for a frame without rows: sent, said the answer."""
    ledger, other = (Ledger.open(root, spark, "delta-rs", settings=SMALL, clock=clock) for _ in range(2))
    queue, right, stood = ledger.create_queue("jobs"), Staging.write_files, []
    if by != "tasks":
        monkeypatch.setattr(TaskStaging, "is_able", lambda self, frame: False)

    def stands_still():
        stood.append(clock())
        clock.advance(staging.ABANDONED + 1)
        other.upkeep(vacuum=False)

    def late(*arguments):
        files = right(*arguments)
        if len(stood) == 1:
            stands_still()
        return files

    ledger.store.transactions.on_step = lambda step: step == "staging" and not stood and stands_still()
    monkeypatch.setattr(Staging, "write_files", late)
    frame = spark.range(9).selectExpr("'bulk ' || id AS body")
    assert queue.send(frame, attempt_id="one").count == 9
    assert len(stood) == 2, "before the rows were written, and when they were"
    assert bodies(queue) == [f"bulk {n}" for n in range(9)]
    ledger.store.transactions.on_step = lambda step: step == "staging" and other.delete_queue("jobs")
    with pytest.raises(QueueDoesNotExist):
        queue.send(frame)
    assert len(open_staged_folders(ledger.store).names()) == 1, "what was not published is removed"


@pytest.mark.soak
def test_a_process_killed_between_staging_and_publishing_has_sent_nothing_and_its_retry_sends_once(root, spark):
    Ledger.open(root).create_queue("jobs")
    ended = subprocess.run([sys.executable, "-c", KILLED, root], check=False, timeout=300)
    assert ended.returncode == -signal.SIGKILL
    later = FrozenClock(round(time.time() * 1_000) + 1_000 * (staging.ABANDONED + 60))
    ledger = Ledger.open(root, spark, clock=later)
    queue, folders = ledger.queue("jobs"), open_staged_folders(ledger.store)
    (abandoned,) = folders.names()
    assert queue.counts().stored == 0
    for _ in range(2):
        frame = spark.range(9).selectExpr("'bulk ' || id AS body")
        assert queue.send(frame, attempt_id="killed").count == 9
        ledger.upkeep()
        assert abandoned not in folders.names()
    assert bodies(queue) == [f"bulk {n}" for n in range(9)]
