"""What Spark's UI says of the jobs that verbs start, and sessions whose executors are elsewhere."""

import socket

import pytest

from ledger import Ledger
from ledger.delta_log.spark_sessions import find_other_hosts, parallelism
from ledger.store.delta.by_spark import named_jobs


def tags_of(known):
    """The context's; Spark's names of the session's begin with that one's and the thread's."""
    return {tag for tag in known if tag.startswith("ledger")}


@pytest.fixture
def queue(spark, tmp_path):
    return Ledger.open(str(tmp_path / "ledger"), spark=spark).create_queue("work")


@pytest.fixture
def jobs_of(spark):
    """What is known of the jobs that ran in a call: (description, tags) of each."""
    java = spark._jvm.scala.jdk.javaapi.CollectionConverters
    store = spark.sparkContext._jsc.sc().statusStore()

    def jobs(call):
        before = {job.jobId() for job in java.asJava(store.jobsList(None))}
        call()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        found = [job for job in java.asJava(store.jobsList(None)) if job.jobId() not in before]
        return [(job.description().toList().mkString(), tags_of(java.asJava(job.jobTags()))) for job in found]

    return jobs


def test_the_jobs_of_a_send_and_of_a_write_name_the_verb_the_queue_and_the_receipt(spark, queue, jobs_of, tmp_path):
    sent = jobs_of(lambda: queue.send(spark.createDataFrame([("a",), ("b",)], "body string")))
    claim = queue.receive(2, 600)
    written = jobs_of(lambda: claim.write(claim.dataframe.select("message_id"), str(tmp_path / "out")))
    # What Spark itself says of a broadcast, and Delta of its log, stands in place of or around it.
    assert ("ledger: send on work", {"ledger", "ledger.verb=send", "ledger.queue=work"}) in sent
    name = f"ledger: write on work, receipt {claim.receipt_id}"
    assert (name, {"ledger", "ledger.verb=write", "ledger.queue=work", f"ledger.receipt={claim.receipt_id}"}) in written


def test_what_the_user_says_of_jobs_stays_and_is_back_afterwards(spark, jobs_of):
    spark.sparkContext.setJobDescription("mine")
    spark.addTag("ledger")
    try:

        def call():
            with named_jobs(spark, "send", "work"):
                spark.range(2).count()
            spark.range(2).count()

        assert {said for said, _ in jobs_of(call)} == {"mine / ledger: send on work", "mine"}
        assert spark.getTags() == {"ledger"}
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)
        spark.clearTags()


def test_a_session_says_how_many_tasks_it_has_at_once(spark):
    assert parallelism(spark) == spark.sparkContext.defaultParallelism


def test_only_hosts_whose_addresses_are_this_machines_are_here():
    assert find_other_hosts({"127.0.0.1", "localhost", socket.gethostname()} - {""}) in ([], [socket.gethostname()])
    assert find_other_hosts({"203.0.113.7", "127.0.0.1", "no-such-host.invalid"}) == [
        "203.0.113.7",
        "no-such-host.invalid",
    ]
