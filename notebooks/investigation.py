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
# It is eight in the morning. Payments were worked on all night, some are missing, and somebody wants to know why. This
# notebook asks the ledger: who held what and when, what failed and why, what the queue looked like at three. It takes
# some seconds and no Spark: queues, SQL and pictures work without a JVM. The `assert` lines state what to notice.

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
# In your own case this part is already over. Here a clock that we move stands in for the hours, and three ledgers for
# the processes of three workers: `owner` is what they would be named by anyway, user, machine and process.


# %%
class Clock:
    """Milliseconds since 1970, UTC: two o'clock on the 1st of March 2025 until `advance`."""

    now = 1_740_794_400_000

    def __call__(self) -> int:
        return self.now

    def passing(self) -> float:  # the seconds that pass, beside which the ledger checks the clock
        return self.now / 1_000

    def advance(self, minutes: float) -> None:
        self.now += round(minutes * 60_000)


clock = Clock()
ledger = Ledger.open(root, clock=clock, owner="morning")
dead = ledger.create_queue("payments-dead")
policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}
payments = ledger.create_queue("payments", {"VisibilityTimeout": 1_200, "Lanes": 1, "RedrivePolicy": policy})

# %% [markdown]
# One payment in fifty has no amount, and one in forty goes to a bank that does not answer. A worker gives both back,
# and says why: the `reason` of a `settle` or a `release` is kept with the receipt.


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
# The third worker takes 100 payments at about three o'clock, and is never heard of again.

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
# A ledger shows its queues, a queue shows its depth. Some payments are dead letters: they were received twice.

# %%
ledger

# %%
payments

# %%
print(payments.counts(), dead.counts(), sep="\n")
assert dead.counts().visible > 0

# %% [markdown]
# And the picture: areas for what was stored, in flight and acknowledged, and below who held claims. A hatched bar is a
# lease that ran out: nobody settled it. That is worker-3.

# %%
payments.plot()

# %% [markdown]
# ## Who holds what now?
#
# `ledger.sql` has the analysts' views: `in_flight` is a row per receipt, with its owner and the seconds that are left.

# %%
now_held = ledger.sql("SELECT owner, messages, age, seconds_left, receipt_id FROM in_flight").to_pandas()
now_held

# %%
assert held.count == now_held.messages.sum()

# %% [markdown]
# ## Who held what at three?
#
# Any view can be had as of an instant, for the last 7 days. At three o'clock and one minute worker-3 held 100 payments,
# and nothing looked wrong.

# %%
at_three = datetime(2025, 3, 1, 3, 1, tzinfo=timezone.utc)
then = ledger.sql("SELECT owner, messages, seconds_left, receipt_id FROM in_flight", timestamp=at_three).to_pandas()
then

# %%
assert then.owner.tolist() == ["worker-3"] and then.messages.tolist() == [100]
before = ledger.sql("SELECT * FROM queue_depth WHERE queue = 'payments'", timestamp="2025-03-01T02:00:30Z").to_pylist()
assert before[0]["visible"] == 400

# %% [markdown]
# What became of that claim? Its receipt tells: granted, and then expired when others received its messages. No
# `deleted`, no `released`: the worker died, or hung. Not all of its messages were received again: some had failed
# before, and expired as they became dead letters when the lease was over, of no fault of their own.

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
# `dead_letters` has a row per cause: the last receipt that each dead letter was held under, whose it was, and what was
# said when it was given back.

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
# An example of each says more than a sentence. `peek` shows a message whatever its state, and changes nothing.

# %%
for row in why.itertuples():
    print(row.why, "->", dead.peek(row.example).body)

# %% [markdown]
# Payments without an amount are poison: they fail each time, and no retry mends them. They can be told by their bodies.

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
# The slow bank answers again. What has an amount goes back to where it came from; the poison stays, for a person to
# look at. A query chooses them; with Spark `redrive` takes the predicate itself, as does `ledger redrive --where`.

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
# ## And what is to be changed?
#
# The lease of worker-3 ran for 20 minutes after its death: that is how long its payments waited. Whether a shorter
# timeout would do is a question of how long the work takes, which notebooks/timeout.py looks into. The table for it:

# %%
hours = ledger.sql("SELECT hour, acknowledged, redeliveries, p50, p99 FROM processing_times ORDER BY hour").to_pandas()
hours

# %%
assert hours.acknowledged.sum() == payments.counts().deleted
assert hours.redeliveries.sum() > 100
folder.cleanup()
