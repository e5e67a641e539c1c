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
# # How long should a visibility timeout be?
#
# If it is too short, slow work is given to another worker, and done twice. If it is too long, the messages of a worker
# that died wait. The ledger knows how long work takes: this notebook measures it, and sets the timeout by it. It takes
# some seconds and no Spark. The `assert` lines state what to notice.

# %%
import random
import tempfile
from pathlib import Path

from ledger import Ledger
from ledger.errors import LeaseLost

folder = tempfile.TemporaryDirectory(prefix="ledger-timeout-")
root = str(Path(folder.name) / "ledger")

# %% [markdown]
# ## A queue with a guess
#
# The queue holds pictures to make thumbnails of: most take seconds, some take much longer. The timeout is a guess: 30
# seconds. We set the clock, which replaces the waiting.


# %%
class Clock:
    """Milliseconds since 1970, UTC: noon of the 1st of March 2025 until `advance`."""

    now = 1_740_830_400_000

    def __call__(self) -> int:
        return self.now

    def passing(self) -> float:  # monotonic seconds: the ledger checks the clock against them
        return self.now / 1_000

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1_000)


clock = Clock()
ledger = Ledger.open(root, clock=clock, owner="worker")
queue = ledger.create_queue("thumbnails", {"VisibilityTimeout": 30, "Lanes": 1})
takes = random.Random(14)

# %% [markdown]
# ## A day's work
#
# A worker receives, works, acknowledges. If its lease runs out meanwhile, another worker receives the message: both
# have done the work, and the first one learns it when it acknowledges.


# %%
def work(rounds: int) -> tuple[int, int]:
    """Return how many messages were done, and how often a worker's work was lost."""
    done = lost = 0
    queue.send([f"picture {number}" for number in range(rounds)])
    timeout = int(queue.attributes()["VisibilityTimeout"])
    for _ in range(rounds):
        claim = queue.receive()
        seconds = takes.lognormvariate(2.0, 0.8)
        if seconds > timeout:
            clock.advance(timeout + 0.5)
            queue.receive().delete()  # another worker, which is quick
            clock.advance(seconds - timeout)
        else:
            clock.advance(seconds)
        try:
            claim.delete()
            done += 1
        except LeaseLost:
            lost += 1
    return done, lost


# %%
done, lost = work(60)
print(f"{done} were done in time, and {lost} twice")
assert lost > 0

# %% [markdown]
# ## What was measured
#
# `processing_times` is a view on the receipts: a row for each queue and hour. From a receive to its acknowledgement,
# the median message took `p50` seconds, and 99 in 100 took no more than `p99`. `timed_out` counts messages that were
# received again because a lease had run out.

# %%
columns = "hour, acknowledged, timed_out, p50, p95, p99, longest, suggested_timeout"
measured = ledger.sql(f"SELECT {columns} FROM processing_times ORDER BY hour").to_pandas()
measured

# %%
assert measured.timed_out.sum() == lost
assert (measured.p50 <= measured.p95).all() and (measured.p95 <= measured.p99).all()

# %% [markdown]
# Mind what these numbers leave out. Work that took longer than its lease was never acknowledged under that receipt, or
# another worker acknowledged it. Percentiles of work in time look well whatever the timeout. So look at the leases that
# ran out, too.

# %%
assert measured.longest.max() <= 30
share = measured.timed_out.sum() / measured.acknowledged.sum()
print(f"{share:.1%} of the messages ran out of their lease")
assert share > 0.01

# %% [markdown]
# The picture says the same: hatched bars are leases that ran out.

# %%
queue.plot(last=600)

# %% [markdown]
# ## Measure without the limit
#
# So first set a timeout that cuts nothing off, for an hour or a day; the maximum is 12 hours. The change holds for
# later receives, and disturbs no present holder.

# %%
queue.set_attributes({"VisibilityTimeout": 3_600})
clock.advance(3_600 - clock() / 1_000 % 3_600)  # on the hour
begin = clock()
done, lost = work(80)
assert (done, lost) == (80, 0)

# %% [markdown]
# For your own questions, the events are there, too. This query reads every piece of work since then from its receipt:

# %%
pieces = ledger.sql(f"""
    SELECT date_part('epoch', done.at) - date_part('epoch', granted.at) AS seconds
    FROM receipts AS granted JOIN receipts AS done ON done.receipt_id = granted.receipt_id
    WHERE granted.event = 'granted' AND done.event = 'deleted' AND granted.version > 0
      AND granted.at >= to_timestamp_millis({begin})
""").to_pandas()
pieces.describe().T

# %%
assert len(pieces) == 80

# %%
import matplotlib.pyplot as plt  # noqa: E402 - where it is needed

figure, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
axes.hist(pieces.seconds, bins=40, color="#f2a541")
axes.axvline(30, color="#c8443c", linestyle="--")
axes.set_title("seconds from receive to acknowledgement; the guess was 30", loc="left", fontsize=10)
axes.spines[["top", "right"]].set_visible(False)
plt.close(figure)
figure

# %% [markdown]
# ## Set it
#
# The view suggests six times p99. Work gets slower over the years, machines are busy, and a timeout that is too short
# costs more than one that is too long. The suggestion is for workers that do not extend. Round it up to a round number.

# %%
suggested = ledger.sql("SELECT max(suggested_timeout) FROM processing_times WHERE longest > 30")[0][0].as_py()
timeout = -(-suggested // 60) * 60
queue.set_attributes({"VisibilityTimeout": timeout})
print(f"suggested {suggested} s, set {timeout} s")
assert timeout >= pieces.seconds.max()
assert timeout >= 6 * pieces.seconds.median()

# %%
clock.advance(3_600)
done, lost = work(30)
print(f"{done} were done in time, and {lost} twice")
assert lost == 0

# %% [markdown]
# ## Or extend
#
# A heartbeat makes the question less important: it extends the claim every third of the timeout while the work goes
# on. Then the timeout only says how soon a dead worker is noticed. `Queue.work` and the jobs put
# `with claim.heartbeat():` around the work. A timeout of a minute or two is enough. See notebooks/tour.py.

# %%
queue.send(["a large picture"])
claim = queue.receive(visibility_timeout=60)
for _ in range(10):
    clock.advance(20)
    claim.extend(60)  # a heartbeat does this
claim.delete()
latest = ledger.sql("SELECT event, at FROM receipts ORDER BY version DESC LIMIT 12").to_pandas()
latest

# %%
assert latest.event.tolist() == ["deleted", *["extended"] * 10, "granted"]
folder.cleanup()
