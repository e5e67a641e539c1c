"""Send, receive, write rows and acknowledge, without Spark: the rows that fail go back to the queue."""

import pyarrow as pa
from deltalake import DeltaTable

from ledger import Ledger

ledger = Ledger.open("shop")
dead = ledger.create_queue("dead")
queue = ledger.create_queue("orders", {"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}})
outcomes = queue.send(["12", "7", "a dozen"])
assert all(outcomes)

while claim := queue.receive(100):
    rows = []
    with claim.heartbeat():
        for message in claim:
            is_number = message.body.isdigit()
            total = int(message.body) * 3 if is_number else None
            reason = None if is_number else "no number"
            rows.append({"message_id": message.message_id, "total": total, "reason": reason})
        types = pa.schema([("message_id", pa.string()), ("total", pa.int64()), ("reason", pa.string())])
        claim.write(pa.Table.from_pylist(rows, types), "results/totals", failed="reason")

assert DeltaTable("results/totals").count() == 2
assert [message.body for message in dead.receive(10)] == ["a dozen"]
print(queue.counts(), ledger.sql("SELECT source, reason, messages FROM dead_letters").to_pylist())
