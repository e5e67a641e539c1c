"""Whether what happened in a simulation was allowed. Every commit is judged on the facts before and after it.

A judge that only hears the clients' answers has to guess what took effect and when; here the log tells. What is left to
guess is nothing: who committed, by which clock, on whose behalf, and what the tables said at that very moment.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from tests.simulation.answers import judge_answers, judge_calls, moved, skews
from tests.simulation.calls import Call
from tests.simulation.facts import Facts, apply, beginning, later
from tests.simulation.groups import judge_order, judge_places
from tests.simulation.leases import LeaseJudge
from tests.simulation.log import Change, Era
from tests.simulation.moves import TaskJudge
from tests.simulation.outputs import OutputJudge
from tests.simulation.queues import QueueJudge
from tests.simulation.receipts import ReceiptsJudge
from tests.simulation.records import ACTIONS, judge_messages, judge_records
from tests.simulation.retention import RetentionJudge
from tests.simulation.run import Run
from tests.simulation.shared import differences, parts
from tests.simulation.true_time import TimeJudge

#: Verbs that decide by the clock.
MOVING = ("redrive", "reject", "begin_write", "finish_write", "undo_write")
TIMED = ("receive", *ACTIONS, "restore", "lock", "purge", *MOVING)
#: What a few calls of the engine take, in milliseconds: a decision's clock may be so old.
SLACK = 500


def violations(run: Run) -> list[str]:
    """What was not allowed, in words; nothing for a good run."""
    eras = run.eras()
    judged = [_judged(run, era, [call for call in run.calls if _is_within(call, era)]) for era in eras]
    problems = [problem for found, _ in judged for problem in found]
    # What was answered behind a replacement may be so in the ledger of before, or in the one of now.
    for call in (call for call in run.calls if not any(_is_within(call, era) for era in eras)):
        both = [(_Part(run, era, [call]), changed) for era, (_, changed) in zip(eras, judged) if _is_beside(call, era)]
        wrong = [judge_calls(part, [call], changed) for part, changed in both]
        problems += wrong[-1] if wrong and all(wrong) else []
    return problems + run.problems


class _Part:
    """Of a run what happened while one ledger lay in the storage: as judges look at it."""

    def __init__(self, run: Run, era: Era, calls: list[Call]) -> None:
        self.schedule, self.scheduler = run.schedule, run.scheduler
        self.before, self.storage, self.calls = era.before, era.after, calls


def _is_within(call: Call, era: Era) -> bool:
    return era.began <= call.began and (era.ended == inf if call.ended is None else call.ended <= era.ended)


def _is_beside(call: Call, era: Era) -> bool:
    return call.began <= era.ended and (call.ended is None or call.ended >= era.began)


def _judged(run: Run, era: Era, calls: list[Call]) -> tuple[list[str], dict[int, list[Any]]]:
    """Judges one ledger, and the calls that were called and answered while it lay in the storage. Returns what was not
    allowed, and what the commits of each call changed."""
    part, facts, problems = _Part(run, era, calls), beginning(era.before), []
    facts.began, facts.ended = era.began, era.ended
    judges = Judges(
        OutputJudge(era.before, moved(run)),
        QueueJudge(facts),
        RetentionJudge(facts, max(skews(run))),
        TaskJudge(era.before),
        LeaseJudge(part, facts),
        TimeJudge(),
        ReceiptsJudge(era.before),
    )
    changed: dict[int, list[Any]] = {}
    for table, change in later(era.before, era.after):
        for problem in (*judges.time.commit(table, change), *judges.receipts.commit(table, change)):
            problems.append(f"{table} at version {change.version} ({_who(change)}): {problem}")
        shared = parts(change) if table == "visibility" else [change]
        for one in shared:
            for problem in _judge(facts, judges, table, one, changed):
                problems.append(f"{table} at version {change.version} ({_who(one)}): {problem}")
        if len(shared) > 1:
            problems += [f"{table} at version {change.version}: {problem}" for problem in differences(facts, change)]
    problems += judges.outputs.end(facts)
    problems += judges.queues.end(calls)
    problems += judges.tasks.end(calls)
    problems += judges.leases.end()
    problems += judge_answers(part, changed)
    return problems, changed


class Judges(NamedTuple):
    """Those that remember what they saw."""

    outputs: OutputJudge
    queues: QueueJudge
    retention: RetentionJudge
    tasks: TaskJudge
    leases: LeaseJudge
    time: TimeJudge
    receipts: ReceiptsJudge


def _judge(facts: Facts, judges: Judges, table: str, change: Change, changed: dict[int, list[Any]]) -> list[str]:
    if table.startswith("output "):
        return judges.outputs.commit(facts, table.removeprefix("output "), change)
    before_order: list[str] = []
    if table == "visibility" and change.metadata.get("verb") == "receive":
        before_order = judge_order(facts, change)
    old, new, problems = apply(facts, table, change.removed, change.added)
    problems = before_order + problems
    if table == "queues":
        problems += judges.queues.commit(old, new, change)
        problems += judges.retention.queues(new, change, is_confirmed=judges.time.is_confirmed(change))
    elif table == "tasks":
        problems += judges.tasks.commit(change)
    elif table == "messages":
        facts.landed.update((key, change.actor.at_point) for key in new if key not in old)
        problems += judge_messages(facts, old, new, change)
    elif table == "visibility":
        differing = {
            where: (old.get(where), new.get(where)) for where in {**old, **new} if old.get(where) != new.get(where)
        }
        problems += judge_records(facts, differing, change)
        problems += judge_places(facts, differing, change)
        problems += judges.outputs.records(differing, change)
        problems += judges.queues.records(differing, change)
        problems += judges.retention.records(facts, differing, change)
        problems += judges.tasks.records(differing, change)
        judges.leases.records(facts, differing, change)
        if change.actor.call is not None:
            changed.setdefault(id(change.actor.call), []).append((change, differing))
        verb, at = change.metadata.get("verb"), change.metadata.get("at", 0)
        if verb in TIMED and at < change.actor.since - SLACK:
            problems.append(f"decided by a clock read {change.actor.since - at} ms before it had its turn")
    return problems


def _who(change: Change) -> str:
    call = change.actor.call
    name = change.metadata.get("verb", "compaction")
    return f"{name} of {call.client}'s {call.verb} {call.queue}" if call else str(name)
