"""A session of Spark Connect, which has no JVM in this process, does all that delta-rs commits."""

import subprocess
import sys

import pytest

from ledger.runtime.session import submit_environment
from tests.sources import CHECKOUT

CLIENT = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from ledger import Ledger
from ledger.errors import InvalidParameterValue
from ledger.runtime.session import local_settings
from ledger.delta_log.spark_sessions import parallelism

builder = SparkSession.builder.remote("local[2]")
for name, value in local_settings(small=True).items():
    if name != "spark.master":
        builder = builder.config(name, value)
spark = builder.getOrCreate()
assert "connect" in type(spark).__module__ and parallelism(spark) == 2
root, output = sys.argv[1:]
ledger = Ledger.open(root, spark=spark)
queue = ledger.create_queue("work", {"VisibilityTimeout": 3_600})
assert queue.send(spark.range(100).select(F.col("id").cast("string").alias("body"))).count == 100
frames = (spark.range(50).selectExpr(f"{body} AS body") for body in ("'' || id", "uuid()"))
other = ledger.create_queue("attempts")
assert other.send(next(frames), attempt_id="same").count == 50
try:
    other.send(next(frames), attempt_id="differing")
except InvalidParameterValue as error:
    assert "came out differently" in str(error)
else:
    raise AssertionError("other rows were sent than were counted")
assert other.counts().stored == 50
claim = queue.receive(60)
written = claim.write(claim.dataframe.select("message_id", "body"), output, messages="message_id")
assert written.messages == 60 and spark.read.format("delta").load(output).count() == 60
rest = queue.receive(30)
assert {row.outcome for row in queue.delete(rest.dataframe.select("receipt_handle")).collect()} == {"deleted"}
assert ledger.view("messages").where("status = 'deleted'").count() == 90
try:
    Ledger.open(root + "-of-spark", spark=spark, engine="spark")
except InvalidParameterValue as error:
    assert "Spark Connect" in str(error)
else:
    raise AssertionError("nothing can be committed through it")
"""


@pytest.mark.soak
def test_a_session_of_spark_connect_sends_claims_writes_and_settles_and_is_told_that_it_cannot_commit(tmp_path):
    asked = [sys.executable, "-W", "ignore", "-c", CLIENT, str(tmp_path / "ledger"), str(tmp_path / "out")]
    done = subprocess.run(
        asked,
        cwd=CHECKOUT,
        env=submit_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr.partition("JVM stacktrace")[0][-3_000:]
