"""What several workers did to one queue, written down by each, and the check that together it was allowed.

A worker notes each call before (`began`) and after it (`ended`), in milliseconds of the machine's clock, which all
workers and their leases share. A call without an `ended` belongs to a worker that died: it may have happened.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ledger.clock import system_clock


@dataclass(frozen=True)
class Operation:
    """One call. `ids`: the messages it changed, as it was answered (asked for, as long as it has no answer)."""

    worker: str
    verb: str  # send, receive, extend, release, delete
    began: int
    ended: int | None = None
    ids: tuple[str, ...] = ()
    receipt: str | None = None
    received_at: int | None = None  # the instant by which a receive decided
    deadline: int | None = None  # of a receive or an extension
    version: int | None = None  # of a receive: its fencing token
    queue: str = ""
    places: tuple[tuple[str, int], ...] = ()  # of a FIFO receive: each message's group and sequence number
    keys: tuple[str, ...] = ()  # of a FIFO send: each message's deduplication id


class Log:
    """A worker's operations, a line each in a file, so that they outlive it."""

    def __init__(self, path: Path, worker: str) -> None:
        self._file, self._worker = Path(path).open("a", buffering=1), worker  # noqa: SIM115 - as long as the worker

    def began(self, verb: str, ids: Iterable[str] = (), receipt: str | None = None) -> Operation:
        """Notes that a call begins."""
        operation = Operation(self._worker, verb, system_clock(), None, tuple(ids), receipt)
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
            lists = {name: tuple(row[name]) for name in ("ids", "keys")}
            operation = Operation(**{**row, **lists, "places": tuple(map(tuple, row["places"]))})
            # A worker does one thing after the other: an answer follows its beginning at once.
            if mine and mine[-1].ended is None and _same_call(mine[-1], operation):
                mine.pop()
            mine.append(operation)
        found += mine
    return found


def _same_call(one: Operation, other: Operation) -> bool:
    return (one.worker, one.verb, one.began) == (other.worker, other.verb, other.began)


def violations(
    operations: Iterable[Operation],
    remaining: Iterable[str] | None = None,
    quota: int | None = None,
    dead_after: int | None = None,
) -> list[str]:
    """What was not allowed, in words; an empty list for a good history.

    `remaining`: still stored in the end, in any queue. `quota`: how many messages may be in flight at once.
    `dead_after`: how often a message is received before it is a dead letter.
    """
    from tests.races import rules

    operations = list(operations)
    remaining = None if remaining is None else list(remaining)
    by_verb: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_verb[operation.verb].append(operation)
    by_receipt: dict[str | None, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_receipt[operation.receipt].append(operation)
    grants = _by_message(by_verb["receive"])
    deletes = _by_message(by_verb["delete"])
    problems = [*_versions_twice(by_verb["receive"])]
    for message, received in grants.items():
        received.sort(key=lambda grant: grant.version)
        problems += _two_holders(message, received, by_receipt)
        problems += _came_back(message, received, deletes.get(message, []))
    problems += _deleted_twice(deletes)
    problems += _stale_worked(grants, by_verb["extend"] + by_verb["release"] + by_verb["delete"])
    problems += _lost_or_invented(by_verb["send"], grants, by_verb["delete"], remaining)
    problems += rules.stored_twice(by_verb["send"], remaining or [])
    problems += rules.order_broken(by_verb["send"], by_verb["receive"], by_verb["delete"], dead_after)
    if dead_after is not None:
        problems += rules.received_too_often(by_verb["receive"], by_verb["redrive"], dead_after)
    if quota is not None:
        problems += rules.quota_exceeded(quota, by_verb["receive"], by_receipt)
    return problems


def _by_message(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.ended is not None:
            for message in operation.ids:
                found[message].append(operation)
    return found


def _versions_twice(receives: Iterable[Operation]) -> Iterable[str]:
    seen: dict[int, str] = {}
    for grant in receives:
        if grant.ids and grant.version is not None and seen.setdefault(grant.version, grant.receipt) != grant.receipt:
            yield f"two receipts have the fencing token {grant.version}: {seen[grant.version]} and {grant.receipt}"


def _two_holders(
    message: str, received: list[Operation], by_receipt: dict[str | None, list[Operation]]
) -> Iterable[str]:
    """A later grant decided before the earlier one's deadline, which nobody had given up."""
    for first, second in itertools.pairwise(received):
        if first.receipt == second.receipt:
            continue
        deadline = held_until(message, first, by_receipt, second)
        if deadline is not None and second.received_at < deadline:
            yield (
                f"{message} had two holders: {first.receipt} of {first.worker} until {deadline}, and "
                f"{second.receipt} of {second.worker} from {second.received_at}"
            )


def held_until(
    message: str, first: Operation, by_receipt: dict[str | None, list[Operation]], second: Operation
) -> int | None:
    """The deadline of a grant's message as it surely was when a second receive decided; None when nothing is sure."""
    mine = [o for o in by_receipt[first.receipt] if message in o.ids]
    given_up = any(o.verb in ("release", "delete") and o.began <= second.ended for o in mine)
    # A call without an answer may have shortened the lease.
    unsure = any(o.verb == "extend" and (o.ended is None or o.ended >= second.began) for o in mine)
    if given_up or unsure:
        return None
    deadlines = [o for o in mine if o.deadline is not None and o.ended is not None and o.ended < second.began]
    return max(deadlines, key=lambda o: o.ended).deadline if deadlines else first.deadline


def _came_back(message: str, received: list[Operation], deleted: list[Operation]) -> Iterable[str]:
    for delete in deleted:
        for grant in received:
            if grant.began > delete.ended:
                yield f"{message} was deleted by {delete.worker} and came back to {grant.worker}"


def _deleted_twice(deletes: dict[str, list[Operation]]) -> Iterable[str]:
    for message, deleted in deletes.items():
        if len(deleted) > 1:
            yield f"{message} was deleted {len(deleted)} times: by {', '.join(delete.worker for delete in deleted)}"


def _stale_worked(grants: dict[str, list[Operation]], acts: Iterable[Operation]) -> Iterable[str]:
    """A receipt did something to a message after another receipt had been granted it."""
    for act in acts:
        for message in act.ids if act.ended is not None else ():
            mine = [grant for grant in grants.get(message, ()) if grant.receipt == act.receipt]
            if not mine:
                yield f"{act.verb} of {act.worker} worked on {message}, which {act.receipt} was never granted"
                continue
            later = [g for g in grants[message] if g.version > mine[-1].version and g.receipt != act.receipt]
            if any(grant.ended < act.began for grant in later):
                yield f"{act.verb} of {act.worker} worked on {message} through the stale receipt {act.receipt}"


def _lost_or_invented(
    sends: list[Operation],
    grants: dict[str, list[Operation]],
    deletes: list[Operation],
    remaining: Iterable[str] | None,
) -> Iterable[str]:
    sent = {message for send in sends for message in send.ids}
    sure = {message for send in sends if send.ended is not None for message in send.ids}
    unsure_sends = any(send.ended is None for send in sends)
    if not unsure_sends:
        for message in sorted(set(grants) - sent):
            yield f"{message} was received and never sent"
    if remaining is not None:
        # A delete without an answer may have happened.
        gone = {message for delete in deletes for message in delete.ids}
        for message in sorted(sure - gone - set(remaining)):
            yield f"{message} is lost: sent, never deleted, and not there in the end"
        answered = {message for delete in deletes if delete.ended is not None for message in delete.ids}
        for message in sorted(answered & set(remaining)):
            yield f"{message} was deleted and is there in the end"
