"""The cells of a notebook: a queue that shows itself, and a picture of what happened to its messages."""

# %%
import matplotlib

matplotlib.use("Agg")  # in a notebook leave this out

from ledger import Ledger

ledger = Ledger.open("shop")
queue = ledger.create_queue("orders", {"VisibilityTimeout": 60})
queue.send([f"order {number}" for number in range(100)])
claim = queue.receive(60)
claim.delete()

# %% at the end of a cell a queue is a table and a bar
shown = queue._repr_html_()
assert "orders" in shown

# %%
figure = queue.plot(last=3_600)
figure.savefig("orders.png")
