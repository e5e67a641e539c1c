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
# # What happened last night?
#
# It is eight in the morning. Workers processed payments all night, some payments are missing, and somebody wants to
# know why. This notebook asks the ledger: who held what and when, what failed and why, what the queue looked like at
# three. It takes some seconds and no Spark: queues, SQL and pictures work without a JVM. The `assert` lines state what
# to notice.

# %%
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from ledger import Ledger

folder = tempfile.TemporaryDirectory(prefix="ledger-investigation-")
root = str(Path(folder.name) / "ledger")

# %% [markdown]
# ## The night, played
#
# In your own case this part is already over. Here we set the clock, which replaces the hours of waiting. Three ledgers
# replace three workers' processes; each has an `owner`. The default owner is the user, machine and process.


# %%
class Clock:
    """Milliseconds since 1970, UTC: two o'clock on the 1st of March 2025 until `advance`."""

    now = 1_740_794_400_000

    def __call__(self) -> int:
        return self.now

    def passing(self) -> float:  # monotonic seconds: the ledger checks the clock against them
        return self.now / 1_000

    def advance(self, minutes: float) -> None:
        self.now += round(minutes * 60_000)


clock = Clock()
ledger = Ledger.open(root, clock=clock, owner="morning")
dead = ledger.create_queue("payments-dead")
policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}
payments = ledger.create_queue("payments", {"VisibilityTimeout": 1_200, "Lanes": 1, "RedrivePolicy": policy})

# %% [markdown]
# One payment in fifty has no amount, and one in forty goes to a bank that does not answer. A worker gives both kinds
# back, with a reason: the receipt keeps the `reason` of a `settle` or a `release`.


# %%
def payment(number: int) -> str:
    amount = "n/a" if number % 50 == 7 else f"{number % 90 + 10}.00"
    return f'{{"payment": {number}, "amount": "{amount}", "bank": "{"slow" if number % 40 == 3 else "fast"}"}}'


def work(name: str, most: int, minutes: float) -> None:
    claim = Ledger.open(root, clock=clock, owner=name).queue("payments").receive(most)
    clock.advance(minutes)
    messages = claim.messages()
    poison = [m.receipt_handle for m in messages if '"n/a"' in m.body]
    late = [m.receipt_handle for m in messages if '"slow"' in m.body and m.receipt_handle not in poison]
    claim.settle(release=poison, reason="ValueError: could not convert string to float: 'n/a'")
    clock.advance(0.1)
    claim.settle(release=late, reason="TimeoutError: the bank 'slow' did not answer")
    claim.delete()


# %% [markdown]
# The third worker receives 100 payments at about three o'clock, and is never heard of again.

# %%
payments.send([payment(number) for number in range(400)])
clock.advance(1)
work("worker-1", 150, 20)
work("worker-2", 150, 18)
clock.advance(20)
Ledger.open(root, clock=clock, owner="worker-3").queue("payments").receive(100)
clock.advance(25)
work("worker-1", 60, 12)
work("worker-2", 60, 12)
clock.advance(10)
payments.receive(None).release()
clock.advance(240)
payments.send([payment(number) for number in range(400, 500)])
held = Ledger.open(root, clock=clock, owner="worker-1").queue("payments").receive(60)
clock.advance(4)

# %% [markdown]
# ## The overview
#
# The notebook shows a ledger as its queues, and a queue as its depth. Some payments are dead letters: they were
# received twice.

# %%
ledger

# %%
payments

# %%
print(payments.counts(), dead.counts(), sep="\n")
assert dead.counts().visible > 0

# %% [markdown]
# The picture shows messages that were stored, in flight and acknowledged as areas, and the holders of claims below. A
# hatched bar is a lease that ran out: nobody settled it. That is worker-3.

# %%
payments.plot()

# %% [markdown]
# ## Who holds what now?
#
# `ledger.sql` has the analysts' views: `in_flight` has a row for each receipt, with its owner and the seconds left.

# %%
now_held = ledger.sql("SELECT owner, messages, age, seconds_left, receipt_id FROM in_flight").to_pandas()
now_held

# %%
assert held.count == now_held.messages.sum()

# %% [markdown]
# ## Who held what at three?
#
# You can read any view as of an instant in the last 7 days. One minute after three, worker-3 held 100 payments, and
# nothing looked wrong.

# %%
at_three = datetime(2025, 3, 1, 3, 1, tzinfo=timezone.utc)
then = ledger.sql("SELECT owner, messages, seconds_left, receipt_id FROM in_flight", timestamp=at_three).to_pandas()
then

# %%
assert then.owner.tolist() == ["worker-3"] and then.messages.tolist() == [100]
before = ledger.sql("SELECT * FROM queue_depth WHERE queue = 'payments'", timestamp="2025-03-01T02:00:30Z").to_pylist()
assert before[0]["visible"] == 400

# %% [markdown]
# What became of that claim? Its receipt tells: granted, and then expired when others received its messages. There is
# no `deleted` and no `released`: the worker died, or hung. Others did not receive all of its messages again. Some had
# failed before; when the lease was over, they became dead letters and expired, without a fault of their own.

# %%
receipt = then.receipt_id[0]
of_claim = f"SELECT at, event, messages, owner FROM receipts WHERE receipt_id = '{receipt}' ORDER BY version"
fate = ledger.sql(of_claim).to_pandas()
fate

# %%
assert set(fate.event) == {"granted", "expired"}
assert fate[fate.event == "expired"].messages.sum() == 100

# %% [markdown]
# ## What failed, and why?
#
# `dead_letters` has a row for each cause: the last receipt of each dead letter, its holder, and the reason that was
# given when the message was given back.

# %%
why = ledger.sql("""
    SELECT coalesce(reason, cause) AS why, owner, sum(messages) AS messages, min(example) AS example
    FROM dead_letters GROUP BY 1, 2 ORDER BY 3 DESC
""").to_pandas()
why

# %%
assert why.messages.sum() == dead.counts().visible
assert why.why.str.startswith("ValueError").any()
assert 0 < why[why.why == "timed out"].messages.sum() < 100

# %% [markdown]
# An example of each says more than a description. `peek` shows a message in any state, and changes nothing.

# %%
for row in why.itertuples():
    print(row.why, "->", dead.peek(row.example).body)

# %% [markdown]
# Payments without an amount are poison: they fail each time, and no retry helps. Their bodies tell them apart.

# %%
poison = ledger.sql("""
    SELECT message_id, body, receive_count FROM messages
    WHERE queue = 'payments-dead' AND status = 'visible' AND body LIKE '%"n/a"%'
""")
assert poison.num_rows > 0 and set(poison["receive_count"].to_pylist()) == {2}
print(f"{poison.num_rows} payments have no amount")

# %% [markdown]
# ## What can go back?
#
# The slow bank answers again. Payments with an amount go back to where they came from; the poison stays for a person
# to look at. A query chooses them. With Spark, `redrive` takes the predicate itself, as `ledger redrive --where` does.

# %%
mended = ledger.sql("""
    SELECT message_id FROM messages
    WHERE queue = 'payments-dead' AND status = 'visible' AND body NOT LIKE '%"n/a"%'
""")
moved = dead.redrive(mended["message_id"].to_pylist())
print(f"{moved} payments go back")
assert moved + poison.num_rows == why.messages.sum()
assert dead.counts().visible == poison.num_rows

# %% [markdown]
# ## What should change?
#
# The lease of worker-3 ran for 20 minutes after its death: so long its payments waited. A shorter timeout is enough if
# the work takes less time. notebooks/timeout.py looks into that, with this table:

# %%
hours = ledger.sql("SELECT hour, acknowledged, redeliveries, p50, p99 FROM processing_times ORDER BY hour").to_pandas()
hours

# %%
assert hours.acknowledged.sum() == payments.counts().deleted
assert hours.redeliveries.sum() > 100
folder.cleanup()
