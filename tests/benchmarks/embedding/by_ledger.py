"""Texts are embedded by `Queue.consume`: `python -m tests.benchmarks.embedding.by_ledger TEXTS FOLDER`."""

import sys
from pathlib import Path

import pyarrow as pa

from jobs.embed_demo.model import Refused, embed_paid
from ledger import Ledger, RetryLater


def embed(messages):
    try:
        return embed_paid([message.body for message in messages])
    except Refused as refused:
        raise RetryLater(max(refused.seconds, 1)) from None


if __name__ == "__main__":
    texts, folder = Path(sys.argv[1]).read_text().splitlines(), sys.argv[2]
    queue = Ledger.open(f"{folder}/ledger").create_queue("texts", {"VisibilityTimeout": 20})
    queue.send(pa.table({"body": texts}), attempt_id="texts of today")
    queue.consume(embed, f"{folder}/table", processes=2, concurrency=2, batch=32, flush_seconds=3)
