# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A tour of the ledger
#
# This notebook shows a queue of orders and three workers, one of which goes missing. It runs in a temporary folder, in
# about a minute. Open this file in Jupyter or VS Code (it is a notebook in jupytext's percent format), or run it with
# `python notebooks/tour.py`. The `assert` lines state what to notice; they hold on every run.

# %%
import tempfile
import time
from pathlib import Path

import pandas as pd
from pyspark.sql import functions as F

from ledger import Ledger
from ledger.errors import LeaseLost, ReceiptHandleIsInvalid
from ledger.runtime.session import spark_session

spark = spark_session("tour")  # the running session, or a new one with Delta
folder = tempfile.TemporaryDirectory(prefix="ledger-tour-")
root = str(Path(folder.name) / "ledger")

# %% [markdown]
# Deadlines need time, and nobody likes to wait. So this ledger gets its own clock, which stands still until we move it.
# Without `clock=` a ledger uses the machine's clock.


# %%
class Clock:
    """Milliseconds since 1970, UTC: noon of the 1st of March 2025 until `advance`."""

    now = 1_740_830_400_000

    def __call__(self) -> int:
        return self.now

    def passing(self) -> float:  # monotonic seconds: the ledger checks the clock against them
        return self.now / 1_000

    def advance(self, seconds: int) -> None:
        self.now += seconds * 1_000


clock = Clock()
ledger = Ledger.open(root, spark=spark, clock=clock, owner="tour")
queue = ledger.create_queue("orders", {"VisibilityTimeout": 60, "Lanes": 2})
queue.attributes()

# %% [markdown]
# ## Send
#
# Every row of a DataFrame becomes a message. There is no column `body` here, so a message's body is its row as JSON.
# One commit sends all rows, however many.

# %%
orders = spark.range(0, 20_000, numPartitions=2).selectExpr(
    "id AS `order`",
    "element_at(array('AT', 'CH', 'DE', 'FR'), int(id % 4) + 1) AS country",
    "IF(id % 100 = 99, -1, id % 250 + 1) AS euros",  # one order in a hundred makes no sense
)
sent = queue.send(orders)
print(f"{sent.count:,} messages sent in {len(sent.segments)} segments")
queue.counts()

# %%
assert sent.count == queue.counts().visible == 20_000

# %% [markdown]
# ## Claim
#
# A receive hides messages from all others for the queue's 60 seconds. It returns a claim: one receipt for all
# messages, which you can read as a DataFrame.

# %%
claim = queue.receive(5_000)
print(claim)
claim.dataframe.select("body", "receive_count", "receipt_handle").limit(3).toPandas()

# %% [markdown]
# What did it cost to record 5,000 receives? Neighbouring messages share a row, so a claim takes a handful of rows,
# whether it holds thousands or millions of messages.

# %%
visibility = spark.read.format("delta").load(f"{root}/visibility")
rows = visibility.where(F.col("receipt_id") == claim.receipt_id).count()
print(f"{claim.count:,} messages are held by {rows} row{'s' * (rows != 1)} of the table `visibility`")
assert claim.count == 5_000 and rows <= 4

# %% [markdown]
# ## Work, and keep the lease meanwhile
#
# When the work begins, 45 of the 60 seconds are over. A heartbeat extends the claim in the background, and stops with
# the `with` block. Watch the deadline: it moves from 12:01:00 to 12:01:45.

# %%
print("before:", claim.deadline)
clock.advance(45)
with claim.heartbeat(every=0.1) as lease:
    work = claim.dataframe.withColumn("order", F.from_json("body", "order INT, country STRING, euros INT"))
    good, bad = work.where("order.euros > 0"), work.where("order.euros <= 0")
    revenue = good.groupBy("order.country").agg(F.sum("order.euros").alias("euros"), F.count("*").alias("orders"))
    revenue = revenue.toPandas()
    time.sleep(0.5)
    lease.check()  # raises LeaseLost if the claim was lost: then others have the messages, and we must stop
print("after: ", claim.deadline, f"({lease.beats} beats)")
revenue.sort_values("country")

# %%
assert lease.beats >= 1 and not lease.lost
assert f"{claim.deadline:%H:%M:%S}" == "12:01:45"
assert revenue.orders.sum() == 4_950

# %% [markdown]
# ## Settle
#
# One commit acknowledges the good orders and gives the bad ones back. Every receipt handle has its own outcome.

# %%
outcomes = claim.settle(delete=good, release=bad)
settled = outcomes.groupBy("action", "outcome").count().toPandas()
settled.sort_values("action")

# %% [markdown]
# The bad orders are visible again at once, for a worker that can handle them. Their `receive_count` distinguishes
# them: the next receive will be their second.

# %%
print(queue.counts())
assert settled.set_index("action")["count"].to_dict() == {"delete": 4_950, "release": 50}
assert queue.counts().visible == 15_050 and queue.counts().deleted == 4_950

# %% [markdown]
# ## Look, now and back then
#
# Views are for analysts, and take no lock: `view` returns a DataFrame, `sql` queries the same views without Spark. A
# claim's `version` is the commit that granted it, and you can look at any version. At that version 5,000 messages were
# in flight, and none was deleted.

# %%
now = ledger.view("queue_depth").toPandas()
then = ledger.sql("SELECT * FROM queue_depth", version=claim.version).to_pandas()
pd.concat([then, now], keys=["as the claim was granted", "now"])

# %%
assert (then.in_flight[0], then.deleted[0]) == (5_000, 0)
assert (now.in_flight[0], now.deleted[0]) == (0, 4_950)

# %% [markdown]
# That is Delta's time travel, `VERSION AS OF`, which works on the tables themselves, too.

# %%
spark.sql(f"""
    SELECT sum(last_seq - first_seq + 1) AS messages, count(*) AS `rows`, first(timestamp(visible_at)) AS until
    FROM delta.`{root}/visibility` VERSION AS OF {claim.version}
    WHERE receipt_id = '{claim.receipt_id}'
""").toPandas()

# %% [markdown]
# ## A worker goes missing
#
# Worker A receives 2,000 messages and is not heard of again. Nobody has to notice that it is gone: 60 seconds later the
# messages are visible again, and B receives them. This needs no failure detector and no clean-up, just the clock.

# %%
worker_a = queue.receive(2_000)
ledger.sql("SELECT queue, messages, seconds_left, owner FROM in_flight").to_pandas()

# %%
clock.advance(61)
before = queue.counts()
worker_b = queue.receive(None, attempt_id="nightly run 7")  # None: all visible messages
print(f"{before.visible:,} were visible, {before.in_flight} in flight; B has {worker_b.count:,} messages now")
assert before.in_flight == 0 and worker_b.count == before.visible == 15_050

# %% [markdown]
# B's own process may be restarted, too. B receives with the id of its run. While that claim is held, a receive with the
# same id returns the very same claim: the retry of a task does not wait for its own timeout.

# %%
again = queue.receive(None, attempt_id="nightly run 7")
print(again)
assert again.receipt_id == worker_b.receipt_id and again.count == worker_b.count

# %% [markdown]
# ## A stale receipt changes nothing
#
# Now A wakes up, believes that its work is done, and wants to acknowledge it. But another receipt has replaced A's in
# every one of the 2,000 messages.

# %%
try:
    worker_a.delete()
    raise AssertionError("a stale claim was settled")
except LeaseLost as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# Single messages behave the same. Extending through a stale handle is an error. Deleting through one is no error, as in
# SQS, but the outcome says `stale`, and B still holds all its messages.

# %%
stale = worker_a.messages()[0].receipt_handle
try:
    queue.change_visibility(stale, 300)
    raise AssertionError("a stale handle was extended")
except ReceiptHandleIsInvalid as error:
    print(f"{type(error).__name__}: {error}")

# %%
(outcome,) = queue.delete([stale])
print(outcome.outcome, queue.counts())
assert outcome.outcome == "stale"
assert queue.counts().in_flight == 15_050 and queue.counts().deleted == 4_950

# %% [markdown]
# B finishes. Acknowledging 15,050 messages costs what acknowledging ten does: one commit over a few rows.

# %%
print(worker_b.delete())
assert queue.counts().deleted == 20_000 and queue.counts().stored == 0

# %% [markdown]
# ## The receipts ledger
#
# The receipts ledger records what happened under each receipt, in the order of the commits. It is filled from the
# commits themselves, so it misses no event and invents none. From top to bottom you see:
#
# - the first claim, its extension and its settling;
# - A's grant, which expired when B was granted its own claim;
# - B's retry, which was granted the same claim again;
# - B's end.
#
# A's attempts to use its stale receipt left no trace: they changed nothing.

# %%
receipts = ledger.sql("SELECT * FROM receipts ORDER BY version, event").to_pandas()
receipts.assign(receipt=receipts.receipt_id.str[:6])[["version", "at", "event", "receipt", "messages", "visible_at"]]

# %%
assert receipts.event.iloc[0] == "granted" and receipts.event.iloc[-1] == "deleted"
of_a = receipts[receipts.receipt_id == worker_a.receipt_id].groupby("event").messages.sum()
assert of_a.to_dict() == {"granted": 2_000, "expired": 2_000}
of_b = receipts[receipts.attempt_id == "nightly run 7"].groupby("event").messages.sum()
assert of_b.to_dict() == {"granted": 15_050, "granted again": 15_050, "deleted": 15_050}

# %% [markdown]
# ## Upkeep
#
# Deleted messages keep their receipts for an hour (the setting `keep_deleted_receipts`), so that a late retry still
# learns what became of them. Then upkeep drops finished segments and the rows about them. Results are right without
# upkeep; it only keeps tables small. `jobs/upkeep.py` once an hour is plenty.

# %%
clock.advance(2 * 60 * 60)
report = ledger.upkeep()
print(report)
left = {table: spark.read.format("delta").load(f"{root}/{table}").count() for table in ("messages", "visibility")}
print("rows left:", left)

# %% [markdown]
# The segments of 20,000 messages are gone. `visibility` still has a head row for each lane, which counts the lane's
# commits. The receipts ledger stays, and so does the queue.

# %%
assert report.segments_dropped == len(sent.segments) and left["messages"] == 0 and left["visibility"] <= 2
assert ledger.sql("SELECT * FROM receipts").num_rows == len(receipts)
assert queue.counts().stored == queue.counts().deleted == 0

# %% [markdown]
# ## Dead letters
#
# Messages that no worker manages to process go to a queue of their own: here, after they were received twice. The
# receive that would have returned them a third time moves them, and copies no bodies.

# %%
dead = ledger.create_queue("refunds-dead", {"Lanes": 1})
refunds = ledger.create_queue(
    "refunds", {"Lanes": 1, "RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}}
)
refunds.send([f"refund {number}" for number in range(10)])
for _attempt in range(2):
    refunds.receive(None).release()  # a worker tries twice, and gives up
print("a third receive gets", refunds.receive(None))
print(dead.counts())
assert refunds.counts().stored == 0 and dead.counts().visible == 10

# %% [markdown]
# Once the cause is mended, they go back to where they came from: all of them, or those that match a predicate.

# %%
print(dead.redrive(where="body LIKE '%7'"), "went back")
assert [message.body for message in refunds.receive(None)] == ["refund 7"]
assert dead.counts().visible == 9

# %% [markdown]
# ## First in, first out
#
# In a FIFO queue, messages of one group are received in order. While a message is in flight, the later ones of its
# group wait. A deduplication id is sent once in five minutes; here it is made from the body.

# %%
events = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 2})
rows = spark.range(0, 9, numPartitions=1).selectExpr(
    "concat('event ', id) AS body", "string(id % 3) AS message_group_id"
)
first, second = events.send(rows), events.send(rows)
print(f"{first.count} sent, and of the same again {second.count}")
pair = events.receive(2)
others = events.receive(None)
print("in flight with one:", [m.body for m in pair], "and with another:", [m.body for m in others])
assert (first.count, second.count) == (9, 0)
assert not {m.message_group_id for m in pair} & {m.message_group_id for m in others}

# %% [markdown]
# ## Output and acknowledgement, both or neither
#
# A worker that dies between writing its results and acknowledging its messages leaves work that is done twice.
# `claim.write` prevents that. Wherever the worker dies, the next receiver learns from the output table whether the rows
# were written. Each row names its message, and rows are computed once: a message with a row is acknowledged.

# %%
pair.release()
others.release()
claim = events.receive(None)
rows = claim.dataframe.selectExpr("message_id", "upper(body) AS result")
print(claim.write(rows, f"{root}-results/done", messages="message_id"))
results = spark.read.format("delta").load(f"{root}-results/done")
print(results.count(), "results,", events.counts())
assert results.count() == events.counts().deleted == claim.count == 9

# %% [markdown]
# ## A change of mind
#
# The owner can take an acknowledgement back by its receipt, as long as the queue keeps the receipt. That never restores
# another owner's message.

# %%
print(events.restore(claim.receipt_id), "messages are visible again")
assert events.counts().visible == 9
folder.cleanup()
