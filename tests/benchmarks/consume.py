"""What `Queue.consume` costs beside the handler: empty handlers a second, in one process.

    python tests/benchmarks/consume.py [MESSAGES]

Plain functions and an `async def`, with an output of a row a message and without; the median of three runs each.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ledger import Ledger


def empty(message):
    return None


def row(message):
    return {"body": message.body}


async def empty_async(message):
    return None


async def row_async(message):
    return {"body": message.body}


def main(messages: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        queue = Ledger.open(f"{folder}/ledger").create_queue("work", {"VisibilityTimeout": 600})
        for handler in (empty, empty_async, row, row_async):
            rates = []
            for number in range(3):
                queue.send(pa.table({"body": [str(n) for n in range(messages)]}))
                table = f"{folder}/{handler.__name__}-{number}" if handler.__name__.startswith("row") else None
                started = time.perf_counter()
                done = queue.consume(handler, table)
                rates.append(messages / (time.perf_counter() - started))
                assert done.messages == messages
            commits = "" if table is None else f", {DeltaTable(table).version()} commits to the output"
            print(f"{handler.__name__:12} {statistics.median(rates):8,.0f} a second{commits}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
