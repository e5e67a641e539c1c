"""A loop over claims as DataFrames: rows are written and acknowledged together, failures become dead letters."""

from pyspark.sql import functions as F

from ledger import Ledger
from ledger.runtime.session import spark_session


def totals(messages):
    """Return a row for each message; a message with a reason failed."""
    total = F.get_json_object("body", "$.total").try_cast("double")
    reason = F.when(total.isNull(), "no total")
    return messages.select("message_id", total.alias("total"), reason.alias("reason"))


spark = spark_session("example")
ledger = Ledger.open("shop", spark=spark)
dead = ledger.create_queue("dead")
policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
queue = ledger.create_queue("orders", {"VisibilityTimeout": 600, "RedrivePolicy": policy})
queue.send(spark.range(1_000).selectExpr("to_json(struct(id, IF(id % 100 = 7, NULL, id / 4) AS total)) AS body"))
print(queue.work(totals, "results/totals", reason="reason"))
assert spark.read.format("delta").load("results/totals").count() == 990
assert dead.counts().stored == 10
spark.stop()
