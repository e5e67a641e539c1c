"""Message move tasks: one at a time for a source, over once it is over, and what it moved counted right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ledger.rules.redrive import parse_source_arn, task_id
from tests.simulation.calls import Call
from tests.simulation.facts import Key, Recorded
from tests.simulation.log import Change, Storage

#: The calls that take steps of tasks.
STEPPING = ("start_task", "step", "upkeep")
RUNNING = "RUNNING"


class TaskJudge:
    """Follows the tasks, and what their steps move."""

    def __init__(self, before: Storage) -> None:
        self._tasks: Mapping[str, dict[str, Any]] = {}
        #: The points at which a source's tasks changed, and whether one was running from then on.
        self._runs: dict[str, list[tuple[int, bool]]] = {}
        #: By source: how many messages steps moved.
        self._moved: Counter[str] = Counter()

    def commit(self, change: Change) -> list[str]:
        """Judges a commit to `tasks`."""
        rows = [row for files in change.state.values() for file in files for row in file.rows.to_pylist()]
        old, problems = self._tasks, []
        self._tasks = {row["task"]: row for row in rows}
        running = Counter(row["source"] for row in rows if row["status"] == RUNNING)
        problems += [f"{n} tasks run on {source}" for source, n in running.items() if n > 1]
        for source in {row["source"] for row in rows}:
            self._runs.setdefault(source, []).append((change.actor.at_point, running[source] > 0))
        for task, row in old.items():
            new = self._tasks.get(task)
            if new is None:
                problems.append(f"the task {task[:6]} vanished")
                continue
            if row["status"] not in (RUNNING, new["status"]):
                problems.append(f"the task {task[:6]} was {row['status']}, and is {new['status']}")
            if new["moved"] < row["moved"]:
                problems.append(f"the task {task[:6]} had moved {row['moved']}, and has {new['moved']}")
        return problems

    def records(
        self, differing: dict[tuple[str, Key], tuple[Recorded | None, Recorded | None]], change: Change
    ) -> list[str]:
        """Judges what a step moves."""
        call, source = change.actor.call, change.metadata.get("queue", "")
        if change.metadata.get("verb") != "redrive" or call is None or call.verb not in STEPPING:
            return []
        moved = sum(
            queue == source and after is not None and after.record.moved_to is not None
            for (queue, _), (_, after) in differing.items()
        )
        self._moved[source] += moved
        if moved and not self._ran(source, call.began):
            return [f"{moved} messages are moved out of {source}, and no task was running there"]
        return []

    def end(self, calls: Sequence[Call]) -> list[str]:
        """Judges what the tasks say that they moved, and what clients were answered."""
        problems = []
        counted: Counter[str] = Counter()
        for row in self._tasks.values():
            counted[row["source"]] += row["moved"]
        sure = all(call.ended is not None and call.error is None for call in calls if call.verb in ("step", "upkeep"))
        started = [call for call in calls if call.verb == "start_task"]
        sure = sure and all(call.ended is not None and call.error in SAYING_NO for call in started)
        for source in {*counted, *self._moved}:
            said, moved = counted[source], self._moved[source]
            if said > moved or (sure and said != moved):
                problems.append(f"tasks of {source} say that they moved {said} messages, and it were {moved}")
        for call in calls:
            if call.ended is not None and call.error is None:
                problems += [f"{call.client}'s {call.verb} ({call.began}): {one}" for one in self._answered(call)]
        return problems

    def _answered(self, call: Call) -> Iterable[str]:
        if call.verb == "start_task" and task_id(call.answer) not in self._tasks:
            yield "answered a task that is not in the table"
        elif call.verb == "start_task" and not parse_source_arn(call.answer).endswith(f":{call.queue}"):
            yield f"answered a task of {parse_source_arn(call.answer)}"
        elif call.verb == "cancel_task":
            task = self._tasks[task_id(call.about["handle"])]
            if task["status"] != "CANCELLED":
                yield f"answered that the task is cancelled, and it is {task['status']}"
            if call.answer > task["moved"]:
                yield f"answered that the task had moved {call.answer}, and it has {task['moved']}"
        elif call.verb == "list_tasks":
            if sum(task.is_running for task in call.answer) > 1:
                yield "answered more than one task that runs"
            times = [task.started_at for task in call.answer]
            if times != sorted(times, reverse=True):
                yield "answered tasks out of their order"

    def _ran(self, source: str, since: int) -> bool:
        """Whether a task of this source was running at any time since a point."""
        known = self._runs.get(source, [])
        before = [running for point, running in known if point <= since]
        return any([*before[-1:], *(running for point, running in known if point > since)])


#: Errors after which nothing was stored.
SAYING_NO = (None, "InvalidParameterValue", "ResourceNotFound", "QueueDoesNotExist")
