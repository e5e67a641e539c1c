"""The actions that give messages back, each message with its own reason (up to 100 reasons, see `rules.reasons`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.outputs.named_messages import compare_with_claim, named_by_array, others_of_claim
from ledger.rules import reasons as rule
from ledger.rules.visibility import Verb
from ledger.store.protocol import RUNS, Action, Grant, Postponed


def give_back_each(
    queue: str,
    grant: Grant,
    runs: pa.Table,
    timeout: int,
    reasons: pa.Table | None = None,
    without: str | None = None,
    postponed: Postponed = Postponed.RETRY,
    mark: int = 0,
    *,
    counted: bool = True,
) -> list[Action]:
    """Return the actions that release messages, or release them and hide them for `timeout` seconds.

    Args:
        queue: the queue's id.
        runs: messages of the claim.
        reasons: a column of message ids or receipt handles, and a column of reasons. Of several rows with the same id
            or handle, the first counts.
        without: the reason of messages that get none from `reasons`.
        postponed: why the messages are hidden, if they are.
        mark: the mark of the first action (see `rules.visibility.change`). Each further action has the next number.
        counted: False subtracts this receive from each message's receive count.
    """
    hidden = postponed if timeout else None
    return [
        Action(
            *(Verb.CHANGE, grant.receipt_id, some, timeout, True),
            reason=why,
            counted=counted,
            postponed=hidden,
            mark=mark + number,
        )
        for number, (why, some) in enumerate(_by_reason(queue, runs.select(RUNS.names), reasons, without))
    ]


def _by_reason(
    queue: str, runs: pa.Table, reasons: pa.Table | None, without: str | None
) -> Iterator[tuple[str | None, pa.Table]]:
    """Yield pairs of a reason and its messages: the most frequent reasons, then FURTHER, then `without`."""
    remaining = runs
    if reasons is not None and reasons.num_rows and remaining.num_rows:
        first = _first_of_each(reasons)
        texts_kept = [rule.kept(text) for text in first.column(1).to_pylist()]
        texts, names = pa.array(texts_kept, pa.string()), rule.distinct(texts_kept)
        for why in names:
            part, remaining = _parted(queue, remaining, first.column(0).filter(pc.equal(texts, why)))
            yield from ((why, part),) if part.num_rows else ()
        further = pc.and_(pc.is_valid(texts), pc.invert(pc.is_in(texts, pa.array(names, pa.string()))))
        part, remaining = _parted(queue, remaining, first.column(0).filter(further))
        yield from ((rule.FURTHER, part),) if part.num_rows else ()
    if remaining.num_rows:
        yield without, remaining


def _first_of_each(reasons: pa.Table) -> pa.Table:
    named = reasons.filter(pc.is_valid(reasons.column(0)))
    codes = named.column(0).combine_chunks().cast(pa.large_string()).dictionary_encode().indices.to_numpy()
    return named.take(pa.array(np.sort(np.unique(codes, return_index=True)[1])))


def _parted(queue: str, runs: pa.Table, named: pa.ChunkedArray) -> tuple[pa.Table, pa.Table]:
    if not len(named):
        return runs.slice(0, 0), runs
    named_runs = compare_with_claim(runs, named_by_array(named, queue).messages)[0]
    return named_runs, others_of_claim(runs, named_runs).select(RUNS.names)
