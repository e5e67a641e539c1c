"""Handlers that other processes can import."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ledger import RetryLater


def number(message):
    return {"n": int(message.body), "pid": os.getpid()}


def slow(message):
    time.sleep(0.02)
    return number(message)


def slower(message):
    print("begins", flush=True)
    time.sleep(0.3)
    return number(message)


def broken(message):
    raise KeyError("no such column")


def leaving(message):
    sys.exit(0)


def closing(message):
    """Closes its group, and writes down that it was called."""
    folder = Path(os.environ["CONSUME_CALLS"])
    (folder / f"{os.getpid()}-{message.message_id}").touch()
    time.sleep(0.2)
    raise RetryLater(3_600, group=True)


async def patient(message):
    import asyncio

    print("begins", flush=True)
    await asyncio.sleep(0.02)
    return number(message)


def hanging(message):
    print("hangs", flush=True)
    time.sleep(600)


def timed(message):
    """Writes down when it was called for which group, on the clock that all processes share."""
    begun = time.monotonic_ns()
    time.sleep(0.05)
    with (Path(os.environ["CONSUME_CALLS"]) / f"{os.getpid()}.calls").open("a") as calls:
        calls.write(f"{message.message_group_id} {begun} {time.monotonic_ns()}\n")
