"""Wrote the ledgers beside it: `python -m tests.delta.formats.write format_1.tar.gz`, with the release of that format.

A fixture is never made anew: it stands for what users have. When a format ends (see `test_formats.py`), this writes one
with the release that still has it, before anything is changed.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from ledger import Ledger
from tests.clock import FrozenClock

#: What `MessageBody` and the columns of the DataFrame say, and the tests look for.
TRACE, SENDER = "Root=1-5759e988-bd862e3fe1be46a994272793", "AIDASSYFHUBOBT7F4XT75"
#: The time of the last verb.
END = FrozenClock().now + 62_000


def write(root: str) -> None:
    """A ledger with messages that are visible, delayed, in flight, deleted, given back, moved and redriven."""
    from ledger.runtime.session import spark_session

    spark, clock = spark_session("formats", small=True), FrozenClock()
    ledger = Ledger.open(root, spark, "delta-rs", clock=clock, owner="tester", sender_id=SENDER)
    dead = ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
    work = ledger.create_queue("work", {"VisibilityTimeout": 600, "Lanes": 2}, {"team": "blue"})
    poison = ledger.create_queue("poison", {"RedrivePolicy": policy, "VisibilityTimeout": 60, "Lanes": 1})
    fifo = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 2})

    work.send(
        [
            {"MessageBody": "traced", "AWSTraceHeader": TRACE, "MessageAttributes": {"priority": 7, "key": b"\0\1"}},
            {"MessageBody": "later", "DelaySeconds": 900},
            "deleted",
        ]
    )
    clock.advance(1)
    work.send(spark.sql("SELECT concat('bulk ', id) AS body FROM range(40)"))
    poison.send(["bad", "worse"])
    fifo.send(spark.sql("SELECT concat('event ', id) AS body, string(id % 2) AS message_group_id FROM range(6)"))
    fifo.send("by hand", message_group_id="0", message_deduplication_id="twice")

    poison.receive(2)
    clock.advance(61)
    # Both have been received once: they move to the queue dead. One of them is sent back to where it came from.
    poison.receive(2)
    dead.redrive(max_messages=1)

    for message in (everything := work.receive(None)).messages():
        if message.body == "deleted":
            everything.settle(delete=[message.receipt_handle])
    everything.release()
    work.receive(10, attempt_id="task 1")
    held = fifo.receive(2, attempt_id="task 2")
    held.settle(delete=[held.messages()[0].receipt_handle])
    ledger.fill_receipts()
    spark.stop()


def packed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without what nobody needs: names of users, locks, and Spark's checksums."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if entry.name.endswith((".crc", "_locks")) else entry


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/ledger")
        with tarfile.open(Path(__file__).parent / sys.argv[1], "x:gz") as archive:
            archive.add(f"{folder}/ledger", "ledger", filter=packed)
