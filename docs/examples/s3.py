"""A ledger on an object store: S3, or what speaks its protocol. Two owners commit beside each other.

The address of another store than Amazon's is in AWS_ENDPOINT_URL. Keys are in the usual variables.
"""

import os

import pyarrow as pa

from ledger import Ledger

root = os.environ.get("LEDGER_ROOT", "s3://bucket/ledger")
options = {"aws_region": "us-east-1"}
if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
    options |= {"aws_endpoint": endpoint, "aws_allow_http": "true"}

first = Ledger.open(root, storage_options=options, owner="first")
queue = first.create_queue("orders", {"VisibilityTimeout": 600})
queue.send(["a", "b", "c"])
claim = queue.receive(2)

second = Ledger.open(root, storage_options=options, owner="second").queue("orders")
rest = second.receive(10)
assert len(claim.messages()) == 2 and len(rest.messages()) == 1, "no message is held twice"

rows = [{"message_id": message.message_id, "upper": message.body.upper()} for message in claim.messages()]
claim.write(pa.Table.from_pylist(rows), f"{root}-results")
rest.delete()
assert queue.counts().deleted == 3
print(queue.counts())
