"""A disk that is full while Spark writes: an error of the storage, and no message's fault."""

import contextlib
import errno
import sys
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from ledger import Ledger
from ledger.errors import InvalidParameterValue, OutputNotWritten, StorageFailed
from tests.clock import FrozenClock
from tests.output.conftest import Place

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits another process, the JVM")
ROWS = 200


def with_children(pid):
    """A process and all that it started, at any depth."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, task.read_text().split())
    return found


@contextlib.contextmanager
def full(spark):
    """Neither Spark's JVM nor a Python worker can write a file of more bytes."""
    # The JVM unpacks what compresses files into a file of its own when it first needs it.
    spark._jvm.org.xerial.snappy.Snappy.maxCompressedLength(1)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    processes = with_children(jvm)
    before = resource.prlimit(jvm, resource.RLIMIT_FSIZE)
    for pid in processes:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        yield
    finally:
        # Workers that were started meanwhile have the bound, too.
        for pid in {*processes, *with_children(jvm)}:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def large(frame, name):
    """With a column of texts that nothing compresses much."""
    digests = [F.sha2(F.concat("id", F.lit(f"-{number}")).cast("string"), 256) for number in range(30)]
    return frame.withColumn(name, F.concat(*digests))


@pytest.mark.soak_variants("spark*")
@pytest.mark.parametrize("engine", ["delta-rs", "spark"])
def test_a_send_that_meets_a_full_disk_is_an_error_of_the_storage(spark, tmp_path, engine):
    queue = Ledger.open(str(tmp_path / "ledger"), spark=spark, engine=engine).create_queue("work")
    frame = large(spark.range(ROWS).coalesce(1), "body").select("body")
    with (
        full(spark),
        pytest.raises(StorageFailed, match=r"messages.*failed in send: File too large. The step .* changed nothing"),
    ):
        queue.send(frame)
    assert queue.counts().stored == 0
    assert queue.send(frame).count == ROWS == queue.counts().stored


def test_a_worker_that_meets_a_full_disk_gives_its_claim_back_and_blames_no_message(spark, tmp_path, short_waits):
    place, said = Place(tmp_path, FrozenClock(), spark=spark), []
    place.queue.send([str(number) for number in range(ROWS)])

    def work(messages):
        return large(messages.withColumnRenamed("body", "id").coalesce(1), "text").select("message_id", "text")

    with full(spark), pytest.raises(OutputNotWritten, match="File too large"):
        place.queue.work(work, place.table, maximum_receives=1, report=said.append)
    assert not any("halves" in line for line in said), said
    (claim,) = [place.queue.receive(None)]
    assert claim.count == ROWS and {message.receive_count for message in claim.messages()} == {1}
    claim.release(counted=False)
    assert place.queue.work(work, place.table).messages == ROWS


@pytest.mark.soak
def test_an_exception_with_the_words_of_a_full_disk_is_the_fault_of_its_message_alone(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    texts = ["File too large: 12 MB", "this order is a cancelled part of shipment 9"]
    place.queue.send(["1", *texts])

    @F.udf("double")
    def number(text):
        if not text.isdigit():
            raise ValueError(text)
        return float(text)

    def work(messages):
        return messages.coalesce(1).select("message_id", number("body").alias("n"))

    done = place.queue.work(work, place.table, maximum_receives=1, until="once")
    assert (done.messages, done.failed) == (1, 2)
    reasons = [row["reason"] for row in place.ledger.sql("SELECT reason FROM in_flight").to_pylist()]
    assert all(any(text in reason for reason in reasons) for text in texts), reasons


def test_a_value_that_sparks_error_quotes_is_no_full_disk(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send(["1", "Caused by: java.io.IOException: No space left on device"])

    def work(messages):
        return messages.coalesce(1).selectExpr("message_id", "CAST(body AS DOUBLE) n")

    done = place.queue.work(work, place.table, maximum_receives=1, until="once")
    assert (done.messages, done.failed) == (1, 1)


def test_an_exception_of_the_driver_is_a_full_disk_only_as_an_error_of_the_operating_system(spark, tmp_path):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    place.queue.send(["1", "File too large"])

    def work_that(raised):
        def work(messages):
            if any("large" in row.body for row in messages.collect()):
                raise raised
            return messages.selectExpr("message_id", "body")

        return lambda: place.queue.work(work, place.table, maximum_receives=1, until="once")

    with pytest.raises(OSError, match="No space left"):
        work_that(OSError(errno.ENOSPC, "No space left on device"))()
    assert place.queue.counts().visible == 2
    done = work_that(ValueError("File too large"))()
    assert (done.messages, done.failed) == (1, 1)


def test_a_send_whose_rows_raise_the_words_of_a_full_disk_is_refused_for_its_rows(spark, tmp_path):
    queue = Ledger.open(str(tmp_path / "ledger"), spark=spark).create_queue("work")

    @F.udf("string")
    def text(number):
        if number == 7:
            raise ValueError("File too large: 12 MB")
        return str(number)

    raising = "IF(id = 3, CAST(raise_error('Input/output error in body') AS STRING), 'x') AS body"
    for frame, said in (
        (spark.range(10).select(text("id").alias("body")), r"ValueError: File too large: 12 MB \(test_full_disk"),
        (spark.range(10).selectExpr(raising), "Input/output error in body"),
    ):
        with pytest.raises(InvalidParameterValue, match=said):
            queue.send(frame)
    assert queue.counts().stored == 0
