"""Ask a ledger in SQL: what waits, who holds what, why work failed, and how it was a moment ago."""

from ledger import Ledger

# What other people do to the queue.
queue = Ledger.open("shop", owner="the worker").create_queue("orders", {"VisibilityTimeout": 600})
queue.send([f"order {number}" for number in range(6)])
held = queue.receive(4)
handles = [message.receipt_handle for message in held.messages()]
held.settle(delete=handles[:1], release=handles[1:2], reason="no address")

# What an analyst asks, without a lock and without Spark.
ledger = Ledger.open("shop", read_only=True)
(depth,) = ledger.sql("SELECT queue, visible, in_flight FROM queue_depth").to_pylist()
(holder,) = ledger.sql("SELECT owner, messages FROM in_flight").to_pylist()
failed = ledger.sql("SELECT reason, sum(messages) AS n FROM receipts WHERE event = 'released' GROUP BY 1").to_pylist()
before = ledger.sql("SELECT messages FROM in_flight", version=held.version).to_pylist()
assert depth == {"queue": "orders", "visible": 3, "in_flight": 2}
assert holder == {"owner": "the worker", "messages": 2}
assert failed == [{"reason": "no address", "n": 1}]
assert before == [{"messages": 4}], "when the claim was granted"
print(depth, holder, failed, before)
