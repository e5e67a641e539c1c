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
# Too short, and work that is merely slow is given to somebody else, and done twice. Too long, and the messages of a
# worker that died wait. The ledger knows how long work takes: this notebook measures it, and sets the timeout by it. It
# takes some seconds and no Spark. The `assert` lines state what to notice.

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
# Thumbnails of pictures: most take seconds, some take much longer. The timeout is a guess, of 30 seconds. A clock that
# we move stands in for the waiting.


# %%
class Clock:
    """Milliseconds since 1970, UTC: noon of the 1st of March 2025 until `advance`."""

    now = 1_740_830_400_000

    def __call__(self) -> int:
        return self.now

    def passing(self) -> float:  # the seconds that pass, beside which the ledger checks the clock
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
# A worker receives, works, acknowledges. When its lease ran out meanwhile, another worker has received the message:
# both have done the work, and the first is told so when it acknowledges.


# %%
def work(rounds: int) -> tuple[int, int]:
    """How many messages were done, and how often the work of one was for nothing."""
    done = lost = 0
    queue.send([f"picture {number}" for number in range(rounds)])
    timeout = int(queue.attributes()["VisibilityTimeout"])
    for _ in range(rounds):
        claim = queue.receive()
        seconds = takes.lognormvariate(2.0, 0.8)
        if seconds > timeout:
            clock.advance(timeout + 0.5)
            queue.receive().delete()  # somebody else, who is quick
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
# `processing_times` is a view over the receipts: a row per queue and hour. From a receive to its acknowledgement it
# took `p50` seconds for the message in the middle, and no more than `p99` for 99 in 100; `timed_out` are the messages
# that were received again because a lease had run out.

# %%
columns = "hour, acknowledged, timed_out, p50, p95, p99, longest, suggested_timeout"
measured = ledger.sql(f"SELECT {columns} FROM processing_times ORDER BY hour").to_pandas()
measured

# %%
assert measured.timed_out.sum() == lost
assert (measured.p50 <= measured.p95).all() and (measured.p95 <= measured.p99).all()

# %% [markdown]
# Mind what these numbers leave out: what took longer than its lease was acknowledged by nobody under that receipt, or
# by somebody else. Percentiles of what was in time say that all is well, whatever the timeout. What ran out has to be
# seen beside them.

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
# So first a timeout that cuts nothing off, for an hour or a day: the ceiling is 12 hours. Changes hold for receives
# from then on, and disturb nobody who holds something.

# %%
queue.set_attributes({"VisibilityTimeout": 3_600})
clock.advance(3_600 - clock() / 1_000 % 3_600)  # on the hour
begin = clock()
done, lost = work(80)
assert (done, lost) == (80, 0)

# %% [markdown]
# For one's own questions the events are there too. This is every piece of work since then, from its receipt:

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
# The view suggests six times p99: work grows slower over the years, machines are busy, and a timeout that is too short
# costs more than one that is too long. It is for workers that do not extend. Round it up to what a person remembers.

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
# A heartbeat makes the question small: it extends the claim every third of the timeout while the work goes on, so that
# the timeout only says how soon a dead worker is noticed. `with claim.heartbeat():` around the work, and a timeout of a
# minute or two, is what `Queue.work` and the jobs do. See notebooks/tour.py.

# %%
queue.send(["a large picture"])
claim = queue.receive(visibility_timeout=60)
for _ in range(10):
    clock.advance(20)
    claim.extend(60)  # what a heartbeat does
claim.delete()
latest = ledger.sql("SELECT event, at FROM receipts ORDER BY version DESC LIMIT 12").to_pandas()
latest

# %%
assert latest.event.tolist() == ["deleted", *["extended"] * 10, "granted"]
folder.cleanup()
