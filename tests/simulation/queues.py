"""Whether queues changed as was asked, what was answered is in their rows, and nothing is given of one that is gone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.simulation.calls import Call
from tests.simulation.facts import Facts, Key, Queue, Recorded
from tests.simulation.log import Change

#: What changes a queue's row. Their calls say of which `id`, and which attributes, tags or labels of permissions become
#: what: a tag None, or a label False, is to be gone.
CHANGING = ("settings", "tag", "untag", "retag", "permit", "forbid")
RECEIVING = ("receive", "receive_many")


class QueueJudge:
    """Follows the rows of queues."""

    def __init__(self, before: Facts) -> None:
        #: By id: the points at which the row became what it is, None once it is gone.
        self._rows: dict[str, list[tuple[int, Queue | None]]] = defaultdict(list)
        for identifier, queue in before.queues.items():
            self._rows[identifier].append((-1, queue))

    def commit(self, old: dict[str, Queue], new: dict[str, Queue], change: Change) -> list[str]:
        """Judges a commit to `queues`."""
        for identifier in {**old, **new}:
            if old.get(identifier) != new.get(identifier):
                self._rows[identifier].append((change.actor.at_point, new.get(identifier)))
        call, problems = change.actor.call, []
        if change.metadata.get("verb") == "create_queue":
            names = [queue.name for queue in new.values()]
            problems += [f"there are two queues {name}" for name in set(names) if names.count(name) > 1]
        if call is None or call.verb not in CHANGING:
            return problems
        for identifier in {**old, **new}:
            before, after = old.get(identifier), new.get(identifier)
            if before == after or (before and after and before[:3] == after[:3]):
                continue
            if identifier != call.about["id"] or before is None or after is None:
                problems.append(f"settings of {call.about['id']} changed {identifier}")
                continue
            problems += _unasked(identifier, before, after, call)
        return problems

    def records(
        self, differing: dict[tuple[str, Key], tuple[Recorded | None, Recorded | None]], change: Change
    ) -> list[str]:
        """Judges what a commit to `visibility` gives of queues that are gone."""
        problems = []
        for (queue, key), (before, after) in differing.items():
            receipt = after.record.receipt_id if after is not None else None
            given = receipt is not None and (before is None or before.record.receipt_id != receipt)
            if given and change.metadata.get("verb") == "receive" and self._gone(queue) < change.actor.looked:
                problems.append(f"{key[0][:8]}/{key[1]} of {queue} is given, and its queue was deleted before")
        return problems

    def end(self, calls: Sequence[Call]) -> list[str]:
        """Judges what was answered."""
        problems = []
        for call in calls:
            if call.ended is not None and call.verb in CHANGING:
                found = self._answered(call)
            elif call.ended is not None and call.verb in RECEIVING and call.error is None and "id" in call.about:
                found = ["answered, and its queue was deleted before"] if self._gone_at(call) else []
            else:
                continue
            problems += [
                f"{call.client}'s {call.verb} {call.queue} ({call.began} to {call.ended}): {one}" for one in found
            ]
        return problems

    def _gone_at(self, call: Call) -> bool:
        """Whether its queue was gone when the last look of a receive began."""
        return self._gone(call.about["id"]) < call.looked

    def _gone(self, identifier: str) -> float:
        """The point at which a queue was deleted."""
        return next((point for point, row in self._rows[identifier] if row is None), float("inf"))

    def _answered(self, call: Call) -> Iterable[str]:
        rows = list(self._during(call))
        if call.error is None and not any(row is not None and _is_in(call, row) for row in rows):
            yield f"answered, and at no time {call.about['id']} was so"
        if call.error != "InvalidParameterValue":
            return
        for label, there in call.about.get("labels", {}).items():
            if all(row is not None and (label in _labels(row)) is not there for row in rows):
                yield f"refused, and the label {label} was {'free' if there else 'there'} all the time"

    def _during(self, call: Call) -> Iterator[Queue | None]:
        """The rows of its queue from when a call began until it ended."""
        before = [row for point, row in self._rows[call.about["id"]] if point <= call.began]
        yield from before[-1:]
        yield from (row for point, row in self._rows[call.about["id"]] if call.began < point <= call.ended)


def _unasked(identifier: str, before: Queue, after: Queue, call: Call) -> Iterable[str]:
    """What a change of a queue changed beside what it was called for."""
    asked = {*call.about.get("attributes", ()), *(("Policy",) if "labels" in call.about else ())}
    names = {n for n in {**before.attributes, **after.attributes} if _of(before, n) != _of(after, n)}
    for name in sorted(names - asked):
        yield f"{name} of {identifier} changed from {_of(before, name)} to {_of(after, name)} unasked"
    tags = {key for key in {**before.tags, **after.tags} if before.tags.get(key) != after.tags.get(key)}
    if tags - set(call.about.get("tags", ())):
        yield f"the tags of {identifier} changed from {before.tags} to {after.tags} unasked"
    if "labels" in call.about:
        labels = _labels(before) ^ _labels(after)
        if labels - set(call.about["labels"]):
            yield f"the permissions {sorted(labels)} of {identifier} changed, {list(call.about['labels'])} was asked"


def _is_in(call: Call, row: Queue) -> bool:
    about = call.about
    return (
        all(_same(_of(row, name), value) for name, value in about.get("attributes", {}).items())
        and all(row.tags.get(key) == value for key, value in about.get("tags", {}).items())
        and all((label in _labels(row)) is there for label, there in about.get("labels", {}).items())
    )


def _same(there: str | None, asked: str) -> bool:
    """JSON may be written otherwise."""
    return there == asked or (there is not None and asked.startswith("{") and json.loads(there) == json.loads(asked))


def _labels(row: Queue) -> set[str]:
    statements = json.loads(row.attributes.get("Policy") or "{}").get("Statement", [])
    return {statement.get("Sid") for statement in statements}


def _of(queue: Queue, name: str) -> Any:
    return queue.attributes.get(name)
