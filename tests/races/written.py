"""The rules of outputs: a message's row is written exactly once, by the receipt that acknowledged it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tests.races.facts import Facts
from tests.races.history import Operation
from tests.races.holding import held_until


def violations(facts: Facts, remaining: Sequence[str]) -> Iterable[str]:
    """All of this module."""
    yield from _rows(facts, set(remaining))
    yield from _without_a_row(facts)
    for write in facts.by_verb["write"]:
        if write.refused:
            yield from _refused_while_held(facts, write)


def _rows(facts: Facts, remaining: set[str]) -> Iterable[str]:
    said = {m: body for one in facts.by_verb["receive"] for m, body in zip(one.ids, one.bodies)}
    by_message: dict[str, list[str]] = defaultdict(list)
    for table, message, receipt, body in facts.rows:
        by_message[message].append(receipt)
        mine = [grant for grant in facts.grants.get(message, ()) if grant.receipt == receipt]
        unanswered = any(one.ended is None for one in facts.by_verb["receive"])
        if not mine and not unanswered:
            yield f"{table} has a row of {message} by {receipt}, which was never granted it"
        if said.get(message, body) != body:
            yield f"{table} has {body!r} for {message}, which was {said[message]!r}"
        if facts.restores(receipt):
            continue
        later = [g for g in facts.grants.get(message, ()) if mine and g.version > mine[-1].version]
        if any(grant.receipt != receipt for grant in later):
            yield f"{message} was received by {later[0].worker} again, and {table} has its row by {receipt}"
        if message in remaining:
            yield f"{table} has a row of {message} by {receipt}, and the message is there in the end"
    for message, receipts in by_message.items():
        if len(receipts) > 1 + sum(len(facts.restores(receipt)) for receipt in set(receipts)):
            yield f"{message} is {len(receipts)} times in the output: by {', '.join(receipts)}"


def _without_a_row(facts: Facts) -> Iterable[str]:
    there = Counter((table, message, receipt) for table, message, receipt, _ in facts.rows)
    for write in facts.by_verb["write"]:
        for message in write.ids if write.ended is not None and not write.refused else ():
            if not there[write.to, message, write.receipt]:
                yield (
                    f"{message} was acknowledged by {write.worker} through {write.receipt} without a row in {write.to}"
                )


def _refused_while_held(facts: Facts, write: Operation) -> Iterable[str]:
    """A holder that gave nothing up, and lost nothing to a later one, was told that its lease is lost."""
    taken = [one for verb in ("purge", "remove") for one in facts.by_verb[verb] if one.queue == write.queue]
    # The same attempt, tried again meanwhile, takes the claim over from this run, and fences its write off: also when
    # it died after that, or stood still until the lease was over and it was granted something else.
    attempts = {one.attempt for one in facts.by_receipt[write.receipt]} - {None}
    tried = [one for one in facts.by_verb["receive"] if one.attempt in attempts and one.began <= write.ended]
    again = [one for one in facts.by_receipt[write.receipt] if one.verb in ("receive", "write") and one is not write]
    doubtful = any(one.ended is None or one.ended >= write.began for one in [*taken, *again, *tried])
    if not doubtful and write.ids and all(_surely_held(facts, message, write) for message in write.ids):
        yield f"the write of {write.worker} through {write.receipt} was refused, and it held {', '.join(write.ids)}"


def _surely_held(facts: Facts, message: str, write: Operation) -> bool:
    received = facts.grants.get(message, [])
    mine = [grant for grant in received if grant.receipt == write.receipt]
    others = [
        grant for grant in received if mine and grant.version > mine[-1].version and grant.receipt != write.receipt
    ]
    if not mine or any(other.began <= write.ended for other in others):
        return False
    deadline = held_until(facts, message, mine[-1], write)
    return deadline is not None and deadline > write.ended
