"""Commits that several clients share, taken apart again: what each of them made of the lanes, in the order in which
that was decided, so that each is judged by what it was called for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ledger.store.delta.model.message_runs import Runs
from ledger.store.delta.model.tables import INSTANT_COLUMNS, RECORD_COLUMNS, VISIBILITY
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.snapshot import Loaded
from ledger.store.delta.verbs import sharing
from tests.simulation.facts import Facts, recorded_in
from tests.simulation.log import Change, File, Partition


@dataclass(frozen=True)
class Step:
    """A decision: whose call it was, its verb, and all that was taken to be recorded before and after it."""

    call: Any
    verb: str
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]


@contextlib.contextmanager
def noting(running: Any) -> Iterator[None]:
    """The clients that `running` returns note the steps of what they commit for others, too."""
    made, commit = sharing.GroupedCall.__init__, sharing.SharedVerbs._commit
    one, jointly = sharing.CommitDecisions.add_one, sharing.CommitDecisions.add_jointly

    def make(self: Any, *arguments: Any, **more: Any) -> None:
        made(self, *arguments, **more)
        client = running()
        self.call = None if client is None else client.doing

    def decide_one(self: sharing.CommitDecisions, verb: Any) -> None:
        before, count, client = _rows(self.loaded), len(self.decisions), running()
        one(self, verb)
        if client is not None and len(self.decisions) > count:
            client.steps.append(Step(verb.call, verb.name, before, _rows(self.loaded)))

    def decide_jointly(self: sharing.CommitDecisions, verbs: Sequence[Any]) -> bool:
        before, recorded, client = _rows(self.loaded), self.loaded.lanes.runs, running()
        if not jointly(self, verbs):
            return False
        if client is not None:
            client.steps += _steps(self.loaded, verbs, self.joints[-1], before, recorded)
        return True

    def commit_noted(self: Any, *arguments: Any) -> None:
        client = running()
        try:
            commit(self, *arguments)
        finally:
            if client is not None:
                client.steps = []

    sharing.GroupedCall.__init__, sharing.SharedVerbs._commit = make, commit_noted
    sharing.CommitDecisions.add_one, sharing.CommitDecisions.add_jointly = decide_one, decide_jointly
    try:
        yield
    finally:
        sharing.GroupedCall.__init__, sharing.SharedVerbs._commit = made, commit
        sharing.CommitDecisions.add_one, sharing.CommitDecisions.add_jointly = one, jointly


def _steps(
    loaded: Loaded, verbs: Sequence[Any], joint: sharing.Joint, before: list[dict[str, Any]], recorded: Runs
) -> Iterator[Step]:
    """A decision about several verbs as a step for each. What is nobody's part, as messages that a receive moves to
    another queue, or acknowledges since their rows are written, goes with the first."""
    decided = loaded.lanes.runs
    others = Runs.concatenate([Runs.empty(), *joint.parts[1:]]).in_order()
    state = recorded.paint(decided.split_by(others)[1])
    for number, verb in enumerate(verbs):
        if number:
            state = state.paint(joint.parts[number])
        loaded.lanes.runs = state
        after = _rows(loaded)
        yield Step(verb.call, verb.name, before, after)
        before = after
    loaded.lanes.runs = decided


def parts(change: Change) -> Iterable[Change]:
    """A commit to `visibility` as one for each of the calls that share it, without head rows; itself when it is one's
    alone."""
    steps = change.actor.steps
    if len(steps) <= 1:
        return [change]
    touched = {partition for partition, _ in (*change.removed, *change.added)}
    return [
        replace(
            change,
            metadata={**change.metadata, "verb": step.verb},
            removed=_files(step.before, touched),
            added=_files(step.after, touched),
            actor=replace(change.actor, call=step.call),
        )
        for step in steps
    ]


def differences(facts: Facts, change: Change) -> list[str]:
    """What a shared commit recorded otherwise than its parts decided; `facts` are those after all of them."""
    problems: list[str] = []
    old, new = recorded_in(facts, change.removed, [], -1), recorded_in(facts, change.added, problems, 1)
    for queue, key in {**old, **new}:
        if facts.records[queue].get(key) != new.get((queue, key)):
            problems.append(f"{key[0][:8]}/{key[1]} of {queue} is not recorded as it was decided")
    return problems


def _rows(loaded: Loaded) -> list[dict[str, Any]]:
    return [row for lanes in (loaded.lanes, *loaded.others.values()) for row in _rows_of(lanes)]


def _rows_of(lanes: Lanes) -> Iterator[dict[str, Any]]:
    runs = lanes.runs
    columns = [column.to_pylist() for column in lanes.to_arrow(runs)]
    for lane, segment, first_seq, last_seq, code in zip(*columns, runs.code.tolist()):
        where = {"queue": lanes.queue, "lane": lane, "segment": segment, "first_seq": first_seq, "last_seq": last_seq}
        yield {**where, **dict(zip(RECORD_COLUMNS, lanes.record(code)))}


def _files(rows: list[dict[str, Any]], touched: set[Partition]) -> list[tuple[Partition, File]]:
    found = []
    for partition in sorted(touched):
        mine = [
            {
                name: value * 1_000 if name in INSTANT_COLUMNS and value is not None else value
                for name, value in row.items()
            }
            for row in rows
            if (row["queue"], row["lane"]) == partition
        ]
        found.append((partition, File(pa.Table.from_pylist(mine, schema=VISIBILITY))))
    return found
