"""Order, groups, lanes and quotas: what a commit must respect beyond the messages that it changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ledger.rules.visibility import GONE, Status
from tests.simulation.facts import Facts, Key, Recorded, recorded_in
from tests.simulation.log import Change
from tests.simulation.patching import QUOTA


def judge_order(facts: Facts, change: Change) -> list[str]:
    """F2, of a receive's commit on the facts before it: nobody is given a message past an earlier one of its group."""
    at, problems = change.metadata["at"], []
    granted, written = _granted(facts, change), _written(facts, change)
    for queue, keys in granted.items():
        if queue not in facts.queues or facts.queues[queue].attributes.get("FifoQueue") != "true":
            continue
        # What one move brought came at one instant; the numbers that queues of their own gave do not compare.
        members: dict[str | None, list[tuple[int, int, int, Key]]] = defaultdict(list)
        groups = {facts.messages[key].group for key in keys if key in facts.messages}
        for key, message in facts.messages.items():
            recorded = facts.records[queue].get(key)
            if message.group in groups and (recorded is not None or message.queue == queue):
                members[message.group].append((facts.came(queue, key), message.sent_at, message.number or 0, key))
        for group, ordered in members.items():
            ordered.sort()
            places = [place for place, (*_, key) in enumerate(ordered) if key in keys]
            for place, (*_, key) in enumerate(ordered[: max(places, default=0)]):
                state, behind = facts.status(queue, key, at), [ordered[n][-1] for n in places if n > place]
                is_over = key in keys or key in written[queue] or state in GONE
                if not is_over and not _lands_meanwhile(facts, change, queue, key, behind):
                    problems.append(f"group {group} of {queue} is received past {key[0][:8]}/{key[1]}, {state.value}")
    return problems


def _lands_meanwhile(facts: Facts, change: Change, queue: str, key: Key, behind: list[Key]) -> bool:
    """Whether a message that a receive passed over was committed after the receive was called, by a sender whose clock
    puts it before what a move had brought: the receive came first. What was sent alone has an order of its own."""
    call, records = change.actor.call, facts.records[queue]
    meanwhile = call is not None and facts.landed.get(key, -1) >= call.began
    return meanwhile and all(one in records and records[one].record.enqueued_at is not None for one in behind)


def _written(facts: Facts, change: Change) -> dict[str, set[Key]]:
    """The messages that a receive's commit acknowledges because their rows are in an output table, by queue. Whether
    they are there OutputJudge says."""
    found: dict[str, set[Key]] = defaultdict(set)
    heads = dict(facts.heads)
    for (queue, key), recorded in recorded_in(facts, change.added, [], 1).items():
        if recorded.record.deleted_at is not None and recorded.record.write_id is not None:
            found[queue].add(key)
    facts.heads = heads
    return found


def _granted(facts: Facts, change: Change) -> dict[str, set[Key]]:
    """The messages that a receive's commit gives to its receipt, or moves away, by queue."""
    found: dict[str, set[Key]] = defaultdict(set)
    heads = dict(facts.heads)
    for (queue, key), recorded in recorded_in(facts, change.added, [], 1).items():
        before = facts.records[queue].get(key)
        record, known = recorded.record, before and before.record
        # An attempt that gets its claim again is given nothing that it does not have.
        again = known is not None and known.receipt_id == record.receipt_id is not None
        arrived = record.origin_queue is not None and record.receipt_id is None and record.moved_to is None
        if record != known and not arrived and not (again and record.moved_to is None):
            found[queue].add(key)
    facts.heads = heads
    return found


def judge_places(
    facts: Facts, differing: dict[tuple[str, Key], tuple[Recorded | None, Recorded | None]], change: Change
) -> list[str]:
    """Each segment of a queue, and each group, in one lane; no more in flight than the quota. On the facts after."""
    problems = []
    for queue in {queue for queue, _ in differing if queue in facts.queues}:
        attributes, records = facts.queues[queue].attributes, facts.records[queue]
        problems += _in_two_lanes(facts, queue, {key[0] for where, key in differing if where == queue})
        if attributes.get("FifoQueue") == "true":
            problems += _groups_in_two_lanes(facts, queue)
        if attributes["Limits"] == "SQS" and change.metadata.get("verb") == "receive":
            at = change.metadata["at"]
            held = sum(facts.status(queue, key, at) is Status.IN_FLIGHT for key in records)
            if held > QUOTA:
                problems.append(f"{held} messages of {queue} are in flight, and the quota is {QUOTA}")
    return problems


def _in_two_lanes(facts: Facts, queue: str, segments: set[str]) -> Iterable[str]:
    lanes: dict[str, set[int]] = defaultdict(set)
    for key, recorded in facts.records[queue].items():
        if key[0] in segments:
            lanes[key[0]].add(recorded.lane)
    for segment, there in lanes.items():
        if len(there) > 1:
            yield f"segment {segment[:8]} of {queue} is in lanes {sorted(there)}"


def _groups_in_two_lanes(facts: Facts, queue: str) -> Iterable[str]:
    lanes: dict[str | None, set[int]] = defaultdict(set)
    for key, message in facts.messages.items():
        if (message.queue == queue or key in facts.records[queue]) and queue in facts.counts_in(key):
            lanes[message.group].add(facts.lane(queue, key))
    for group, there in lanes.items():
        if len(there) > 1:
            yield f"group {group} of {queue} is in lanes {sorted(there)}"
