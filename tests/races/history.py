"""What several workers did to the queues of one ledger, written down by each of them. `checker` judges it.

A worker notes each call before (`began`) and after it (`ended`), in milliseconds of the machine's clock, which all
workers and their leases share. A call without an `ended` belongs to a worker that died: it may have happened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ledger.clock import system_clock

_MADE = re.compile(r"-[0-9a-f]{8}$")
_LISTS = ("ids", "keys", "bodies", "counts")


@dataclass(frozen=True)
class Operation:
    """One call. `ids`: the messages it changed, as it was answered (asked for, as long as it has no answer)."""

    worker: str
    verb: str  # send, receive, extend, release, delete, write, lock, restore, redrive, purge, remove, error
    began: int
    ended: int | None = None
    ids: tuple[str, ...] = ()
    receipt: str | None = None
    received_at: int | None = None  # the instant by which a receive decided
    deadline: int | None = None  # of a receive, an extension or a lock
    version: int | None = None  # of a receive: its fencing token
    queue: str = ""  # the id of the queue, which tells it from another one made under its name
    #: Of a FIFO receive: each message's group, sequence number, when it came to the queue, and whether by a move.
    places: tuple[tuple[str, int, int, bool], ...] = ()
    keys: tuple[str, ...] = ()  # of a FIFO send: each message's deduplication id
    bodies: tuple[str, ...] = ()  # of a send and a receive
    counts: tuple[int, ...] = ()  # of a receive: how often each message was received by then
    to: str | None = None  # of a redrive: the queue it goes to (None: back); of a write: the table; of an error: what
    count: int | None = None  # of a redrive, a restore and a purge: how many it says it changed
    attempt: str | None = None  # the attempt id of a send or a receive
    refused: bool = False  # answered by an error that says that nothing was done


def name_of(queue: str) -> str:
    """The name in a queue's id; a plain name is taken as it is."""
    return _MADE.sub("", queue)


class Log:
    """A worker's operations, a line each in a file, so that they outlive it."""

    def __init__(self, path: Path, worker: str) -> None:
        self._file, self._worker = Path(path).open("a", buffering=1), worker  # noqa: SIM115 - as long as the worker

    def began(self, verb: str, ids: Iterable[str] = (), receipt: str | None = None, **known: Any) -> Operation:
        """Notes that a call begins."""
        operation = Operation(self._worker, verb, system_clock(), None, tuple(ids), receipt, **known)
        self._write(operation)
        return operation

    def ended(self, operation: Operation, **found: object) -> Operation:
        """Notes what a call answered."""
        done = replace(operation, ended=system_clock(), **found)
        self._write(done)
        return done

    def _write(self, operation: Operation) -> None:
        self._file.write(json.dumps(asdict(operation)) + "\n")


def read(paths: Iterable[Path]) -> list[Operation]:
    """All operations of some logs; of a call that was answered only the answer."""
    found: list[Operation] = []
    for path in paths:
        mine: list[Operation] = []
        for line in Path(path).read_text().splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue  # the last line of a worker that died while it wrote
            lists = {name: tuple(row[name]) for name in _LISTS}
            operation = Operation(**{**row, **lists, "places": tuple(map(tuple, row["places"]))})
            # A worker does one thing after the other: an answer follows its beginning at once.
            if mine and mine[-1].ended is None and _same_call(mine[-1], operation):
                mine.pop()
            mine.append(operation)
        found += mine
    return found


def _same_call(one: Operation, other: Operation) -> bool:
    return (one.worker, one.verb, one.began) == (other.worker, other.verb, other.began)
