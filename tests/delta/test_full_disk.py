"""A disk that is full while Spark writes: an error of the storage, and no message's fault."""

import contextlib
import sys

import pytest
from pyspark.sql import functions as F

from ledger import Ledger
from ledger.errors import OutputNotWritten, StorageFailed
from tests.clock import FrozenClock
from tests.output.conftest import Place

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits another process, the JVM")
ROWS = 200


@contextlib.contextmanager
def full(spark):
    """Spark's JVM cannot write a file of more bytes."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def large(frame, name):
    """With a column of texts that nothing compresses much."""
    digests = [F.sha2(F.concat("id", F.lit(f"-{number}")).cast("string"), 256) for number in range(30)]
    return frame.withColumn(name, F.concat(*digests))


@pytest.mark.parametrize("engine", ["delta-rs", "spark"])
def test_a_send_that_meets_a_full_disk_is_an_error_of_the_storage(spark, tmp_path, engine):
    queue = Ledger.open(str(tmp_path / "ledger"), spark=spark, engine=engine).create_queue("work")
    frame = large(spark.range(ROWS).coalesce(1), "body").select("body")
    with (
        full(spark),
        pytest.raises(StorageFailed, match=r"messages.*failed in send: File too large. Nothing was changed"),
    ):
        queue.send(frame)
    assert queue.counts().stored == 0
    assert queue.send(frame).count == ROWS == queue.counts().stored


def test_a_worker_that_meets_a_full_disk_gives_its_claim_back_and_blames_no_message(spark, tmp_path):
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
