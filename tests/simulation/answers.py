"""Whether what clients were answered is what happened."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.simulation.calls import Call
from tests.simulation.facts import Facts, apply, beginning
from tests.simulation.log import Storage
from tests.simulation.run import Run
from tests.simulation.worlds import WORLDS

#: How far apart clocks may be, in milliseconds.
ALLOWED = 30_000
INTERVAL = 300_000


def judge_answers(run: Run, changed: dict[int, list[Any]]) -> list[str]:
    """`changed`: what the commits of each call changed, see judge.violations."""
    sent = _ever_sent(run)
    # Nobody receives what lies under the id of a queue that this ledger never had. A send to the ledger of before, that
    # was told so, may have left it there, once for each of its tries.
    bodies = Counter(message.body for message in sent.messages.values() if message.queue in sent.known)
    problems = judge_calls(run, run.calls, changed)
    problems += [
        f"{body!r} was sent once, and is there {n} times" for body, n in bodies.items() if n > 1 and " " in body
    ]
    problems += _twice_in_the_interval(sent, run.storage)
    return problems


def judge_calls(run: Any, calls: Iterable[Call], changed: dict[int, list[Any]]) -> list[str]:
    """Judges what some calls were answered."""
    sent, problems = _ever_sent(run), []
    bodies = Counter(message.body for message in sent.messages.values())
    skewed = WORLDS[run.schedule.world].jumps or max(skews(run)) - min(skews(run)) > ALLOWED
    for call in calls:
        found = list(_answer(call, sent, bodies, changed.get(id(call), [])))
        if call.error is not None and call.error.startswith("bare "):
            found.append(f"ended in {call.error}")
        if call.error == "ClocksDisagree" and not skewed:
            found.append("no two clocks are further apart than allowed, and it says ClocksDisagree")
        problems += [f"{call.client}'s {call.verb} {call.queue} ({call.began} to {call.ended}): {one}" for one in found]
    return problems


def _ever_sent(run: Run) -> Facts:
    """All messages that this ledger was ever sent, and all queues that it ever had as `known`."""
    facts = beginning(run.before)
    for change in run.storage.tables["messages"].changes[len(run.before.tables["messages"].changes) :]:
        apply(facts, "messages", [], [one for one in change.added if not change.removed])
    for change in run.storage.tables["queues"].changes[len(run.before.tables["queues"].changes) :]:
        facts.known.update(row["queue"] for _, file in change.added for row in file.rows.to_pylist())
    return facts


def skews(run: Run) -> list[int]:
    """How far clocks ever were from the true time, which was there, too; processes that ended had theirs."""
    events = (event.number for event in run.scheduler.plan.happened.values() if event.kind == "skew")
    return [0, *run.schedule.skews, *events]


def moved(run: Run) -> int:
    """By how many milliseconds a process's clock was moved while it ran, at most; 0 where none was."""
    events = [event.number for event in run.scheduler.plan.happened.values() if event.kind == "skew"]
    known = [0, *run.schedule.skews, *events]
    return max(known) - min(known) if events else 0


def _answer(call: Call, sent: Facts, bodies: Counter[str], commits: list[Any]) -> Iterable[str]:
    if call.error is not None or call.ended is None:
        return
    if call.verb == "send":
        for identifier, text in zip(call.answer, call.about.get("bodies") or call.about["keys"]):
            message = sent.messages.get((identifier[:28], int(identifier[28:], 16)))
            if message is None:
                yield f"answered the id of {text!r}, which is not in the table"
            elif message.body != text:
                yield f"answered the id of {message.body!r} for {text!r}"
    elif call.verb == "receive" and call.answer:
        receipt = call.answer.receipt_id
        # What a retry finds written is acknowledged in the same commit, under the same receipt.
        given = sum(
            after is not None and after.record.receipt_id == receipt and after.record.deleted_at is None
            for change, differing in commits
            for _, after in differing.values()
            if change.version == call.answer.version
        )
        # The same attempt, a moment later: nothing had to be recorded, and the version is that of what was read.
        if given != call.answer.count and (given or call.about["attempt"] is None):
            yield f"answered {call.answer.count} messages, and its commit gave {given}"
    elif call.verb == "receive_many":
        for claim, asked in zip(call.answer, call.about["requests"]):
            given = sum(
                after is not None and after.record.receipt_id == claim.receipt_id and after.record.deleted_at is None
                for change, differing in commits
                for _, after in differing.values()
                if change.version == claim.version
            )
            if claim and given != claim.count and (given or len(asked) < 3):
                yield f"answered {claim.count} messages under one of its receipts, and its commit gave {given}"
        if len({claim.version for claim in call.answer if claim}) > 1:
            yield "answered claims of several versions"
    elif call.verb in ("delete_many", "change_many"):
        said = Counter(
            key for key, one in zip(call.about["keys"], call.answer) if one.outcome in ("deleted", "changed")
        )
        done = {key for _, differing in commits for _, key in differing}
        # A deadline may become what it was.
        if not done <= set(said) or (call.verb == "delete_many" and set(said) != done):
            yield f"answered that it changed {sorted(said)}, and it changed {sorted(done)}"
    elif call.verb == "write" and "failed" in call.about:
        back = {
            key
            for _, differing in commits
            for (_, key), (_, after) in differing.items()
            if key in call.about["failed"] and after is not None and after.record.deleted_at is None
        }
        if len(back) != call.answer.failed:
            yield f"answered {call.answer.failed} given back, and {len(back)} were"
    elif call.verb == "reject":
        moved = sum(
            after is not None and after.record.moved_to is not None and (before is None or not before.record.moved_to)
            for _, differing in commits
            for before, after in differing.values()
        )
        # None: its queue has no dead-letter queue.
        if moved != (call.answer or 0):
            yield f"answered {call.answer} dead letters, and it made {moved}"
    elif call.verb == "delete":
        deleted = sum(
            after is not None
            and after.record.deleted_at is not None
            and (before is None or before.record.deleted_at is None)
            for _, differing in commits
            for before, after in differing.values()
        )
        if deleted != call.answer.messages:
            yield f"answered {call.answer.messages} deleted, and {deleted} were"
    elif call.verb == "redrive":
        moved = sum(
            after is not None
            and after.record.moved_to is not None
            and (before is None or before.record.moved_to is None)
            for _, differing in commits
            for before, after in differing.values()
        )
        if moved != call.answer:
            yield f"answered {call.answer} moved, and {moved} were"


def _twice_in_the_interval(sent: Facts, storage: Storage) -> Iterable[str]:
    """F1: of one deduplication id, one message within the interval; M3: a purge begins a new one."""
    by_key: dict[Any, list[int]] = {}
    for message in sent.messages.values():
        if message.deduplication is not None:
            purges = storage.tables["messages"].transactions.get(f"purged/{message.queue}", ())
            before = sum(message.number >> 32 > sends for _, sends in purges)
            by_key.setdefault((message.queue, message.deduplication, before), []).append(message.sent_at)
    for (queue, key, _), times in by_key.items():
        times.sort()
        if any(later - earlier < INTERVAL for earlier, later in itertools.pairwise(times)):
            yield f"{key} was sent to {queue} at {times}, less than 5 minutes apart"
