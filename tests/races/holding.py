"""The rules of one message's holders, wherever it is: a message that moves to another queue stays the same one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tests.races.facts import Facts
from tests.races.history import Operation


def violations(facts: Facts) -> Iterable[str]:
    """All of this module."""
    yield from _versions_twice(facts)
    for message, received in facts.grants.items():
        yield from _two_holders(facts, message, received)
        yield from _came_back(facts, message, received)
    yield from _deleted_twice(facts)
    yield from _stale_worked(facts)
    yield from _received_while_locked(facts)


def _versions_twice(facts: Facts) -> Iterable[str]:
    """Of one message: receives of several threads may be one commit, of claims that have no message in common."""
    seen: dict[tuple[int, str], str] = {}
    for grant in facts.by_verb["receive"]:
        for message in grant.ids or () if grant.version is not None else ():
            first = seen.setdefault((grant.version, message), grant.receipt)
            if first != grant.receipt:
                yield f"two receipts of {message} have the fencing token {grant.version}: {first} and {grant.receipt}"


def _two_holders(facts: Facts, message: str, received: list[Operation]) -> Iterable[str]:
    """A later grant, in whichever queue, decided before the earlier one's deadline, which nobody had given up."""
    for first, second in itertools.pairwise(received):
        if first.receipt == second.receipt:
            continue
        deadline = held_until(facts, message, first, second)
        if deadline is not None and second.received_at < deadline:
            yield (
                f"{message} had two holders: {first.receipt} of {first.worker} until {deadline} in {first.queue!r}, "
                f"and {second.receipt} of {second.worker} from {second.received_at} in {second.queue!r}"
            )


def held_until(facts: Facts, message: str, first: Operation, second: Operation) -> int | None:
    """The deadline of a grant's message as it surely was when a second receive decided; None when nothing is sure."""
    mine = [one for one in facts.by_receipt[first.receipt] if message in one.ids]
    given_up = any(
        one.verb in ("release", "delete", "write")
        and one.began <= second.ended
        and not one.refused
        and one is not second
        for one in mine
    )
    # A call without an answer, or one that overlaps the second, may have shortened the lease.
    timed = [one for one in mine if one.verb in ("extend", "receive")]
    unsure = any(one.verb == "extend" and (one.ended is None or one.ended >= second.began) for one in timed)
    if given_up or unsure:
        return None
    before = [one for one in timed if one.ended is not None and one.ended < second.began]
    if not before:
        return first.deadline
    # The last of them to be committed is one that does not end before another begins.
    last_began = max(one.began for one in before)
    return min(one.deadline for one in before if one.ended >= last_began)


def _came_back(facts: Facts, message: str, received: list[Operation]) -> Iterable[str]:
    for end in facts.ends.get(message, []):
        back = [one for one in facts.restores(end.receipt) if one.ended is None or one.ended >= end.began]
        for grant in received:
            if grant.received_at > end.ended and not any(one.began <= grant.ended for one in back):
                yield (
                    f"{message} was deleted by {end.worker} through {end.receipt} and came back to {grant.worker} in "
                    f"{grant.queue}"
                )


def _deleted_twice(facts: Facts) -> Iterable[str]:
    for message, ends in facts.ends.items():
        # A write that is tried again says what the first one did.
        written = {one.receipt: one for one in ends if one.verb == "write"}
        # Of a write and a delete through one receipt, at once, both say what is so.
        deleted = [one for one in ends if one.verb == "delete" and not _beside(one, written.get(one.receipt))]
        ends = [*written.values(), *deleted]
        receipts = {one.receipt for one in ends}
        restored = sum(len(facts.restores(receipt)) for receipt in receipts)
        if len(ends) > 1 + restored or len(ends) > len(receipts):
            yield f"{message} was deleted {len(ends)} times: by {', '.join(end.worker for end in ends)}"


def _beside(delete: Operation, write: Operation | None) -> bool:
    return write is not None and write.began <= delete.ended and delete.began <= write.ended


def _stale_worked(facts: Facts) -> Iterable[str]:
    """A receipt did something to a message after another receipt, or a lock, had come after it."""
    locks: dict[str, list[Operation]] = {}
    for lock in facts.by_verb["lock"]:
        for message in lock.ids if lock.ended is not None else ():
            locks.setdefault(message, []).append(lock)
    for act in (one for verb in ("extend", "release", "delete", "write") for one in facts.by_verb[verb]):
        for message in act.ids if act.ended is not None and not act.refused else ():
            mine = [grant for grant in facts.grants.get(message, ()) if grant.receipt == act.receipt]
            if not mine:
                yield f"{act.verb} of {act.worker} worked on {message}, which {act.receipt} was never granted"
                continue
            if act.verb == "write" and _written_before(facts, message, act):
                continue
            later = [
                *(g for g in facts.grants[message] if g.version > mine[-1].version and g.receipt != act.receipt),
                *(lock for lock in locks.get(message, ()) if lock.began > mine[-1].ended),
            ]
            if any(one.ended < act.began for one in later):
                yield f"{act.verb} of {act.worker} worked on {message} through the stale receipt {act.receipt}"


def _written_before(facts: Facts, message: str, act: Operation) -> bool:
    return any(
        one.verb == "write" and one is not act and message in one.ids and one.began < act.began
        for one in facts.by_receipt[act.receipt]
    )


def _received_while_locked(facts: Facts) -> Iterable[str]:
    for lock in facts.by_verb["lock"]:
        for message in lock.ids if lock.ended is not None else ():
            for grant in facts.grants.get(message, ()):
                if lock.ended < grant.began and grant.received_at < lock.deadline and not _moved_on(facts, lock, grant):
                    yield (
                        f"{message} was locked by {lock.worker} until {lock.deadline}, and received by {grant.worker} "
                        f"at {grant.received_at}"
                    )


def _moved_on(facts: Facts, lock: Operation, grant: Operation) -> bool:
    """Whether another lock, a shorter one, may have come between."""
    return any(
        one is not lock and set(one.ids) & set(lock.ids) and one.began <= grant.ended and one.deadline < lock.deadline
        for one in facts.by_verb["lock"]
    )
