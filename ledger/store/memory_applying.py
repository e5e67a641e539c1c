"""The actions of one call applied to the messages of the store in memory, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ledger.rules.limits import Limits
from ledger.rules.state import Record
from ledger.rules.visibility import Outcome, Receipts
from ledger.store import OUTCOME_RUNS, Action, QueueRecord, apply_action
from ledger.store.memory_queues import Place


def applied(
    queue: QueueRecord,
    actions: Sequence[Action],
    records: Mapping[Place, Record],
    limits: Limits,
    receipts: Receipts,
    now: int,
) -> tuple[dict[Place, Record], list[pa.Table]]:
    """What is recorded anew, and the answer to each action. M2: where two would record different things, none does."""
    wishes: dict[Place, set[Record]] = {}
    decided = []
    for action in actions:
        each = []
        for run in action.runs.to_pylist():
            for place in ((run["segment"], seq) for seq in range(run["first_seq"], run["last_seq"] + 1)):
                outcome = Outcome.SETTLED if action.whole_claim else Outcome.ALREADY_DELETED
                before = after = records.get(place)
                if before is not None:
                    outcome, after = apply_action(queue, action, before, limits, receipts, now)
                if after is not None and after != before:
                    wishes.setdefault(place, set()).add(after)
                each.append((run["lane"], place, outcome, after != before))
        decided.append(each)
    changed = {place: next(iter(wished)) for place, wished in wishes.items() if len(wished) == 1}
    return changed, [_outcome_runs(each, wishes.keys() - changed.keys()) for each in decided]


def _outcome_runs(decided: Sequence[tuple[int, Place, Outcome, bool]], contradicted: set[Place]) -> pa.Table:
    """The answer to an action of which (lane, place, outcome, whether it changes the message) is decided."""
    rows = []
    for lane, (segment, seq), outcome, changes in decided:
        if changes and (segment, seq) in contradicted:
            outcome = Outcome.CONTRADICTED
        rows.append({"lane": lane, "segment": segment, "first_seq": seq, "last_seq": seq, "outcome": outcome.value})
    return pa.Table.from_pylist(rows, OUTCOME_RUNS)
