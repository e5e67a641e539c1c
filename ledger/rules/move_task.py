"""Message move tasks (D2): what one is, and how many messages it may have moved by now."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ledger.errors import InvalidParameterValue, ResourceNotFound
from ledger.rules.limits import MILLISECONDS

#: The service's own ids have dashes. A handle with such an id is one, of a task that there is not.
_ID_IN_A_HANDLE = re.compile(r"[0-9a-f-]{1,64}")
#: An update that is older than this many milliseconds says that nobody runs the task any more.
ABANDONED_AFTER = 60_000


class TaskStatus(str, Enum):
    """SQS's statuses of a message move task."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


class MoveTask(NamedTuple):
    """A task that moves the messages of a dead-letter queue. Instants in milliseconds.

    `source` is the id of that queue, `destination` a queue's name, None for where each message came from; `rate` in
    messages a second, None for all at once; `moved` and `to_move` are approximate, as in SQS.
    """

    task: str
    source: str
    destination: str | None
    rate: int | None
    started_at: int
    updated_at: int
    to_move: int
    moved: int = 0
    status: str = TaskStatus.RUNNING.value
    failure: str | None = None
    revision: int = 1

    @property
    def is_running(self) -> bool:
        """Whether it may move more."""
        return self.status == TaskStatus.RUNNING.value


def new_task(
    source: str, destination: str | None, rate: int | None, to_move: int, now: int, others: Iterable[MoveTask]
) -> MoveTask:
    """A task that starts now; `others` are all of the same source. Recorded: only one may run at a time.

    Its id follows from theirs: of two that start beside the same others, each of which does not know of the other, both
    have one id, and a store keeps one of them, by the key alone. A MERGE of Spark's sees no more than that.
    """
    others = list(others)
    if any(task.is_running for task in others):
        bound = (
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time"
        )
        raise InvalidParameterValue("SourceArn", source, bound, message=f"{bound}.")
    known = json.dumps([source, *sorted(task.task for task in others)])
    return MoveTask(hashlib.sha256(known.encode()).hexdigest()[:32], source, destination, rate, now, now, to_move)


def follows(task: MoveTask, known: Iterable[MoveTask]) -> bool:
    """Whether `task` may be stored beside those stored: over its own revision before; a new one while no other task of
    its source runs."""
    mine = next((one for one in known if one.task == task.task), None)
    if mine is not None:
        return mine.revision == task.revision - 1
    return task.revision == 1 and not any(one.is_running and one.source == task.source for one in known)


def allowance(task: MoveTask, now: int) -> int | None:
    """How many messages it may move now to keep its rate since its start, the first second's at once; None: all."""
    if task.rate is None:
        return None
    seconds = 1 + (now - task.started_at) // MILLISECONDS
    return max(0, int(task.rate * seconds) - task.moved)


def is_abandoned(task: MoveTask, now: int) -> bool:
    """Whether a running task was left behind by who ran it, so that somebody else may take the next step."""
    return task.is_running and now - task.updated_at > ABANDONED_AFTER


def put_back(task: MoveTask, now: int) -> MoveTask:
    """The task as it is after a clock ahead of `now` has started it, or carried it on: with a rate it goes on at once,
    as if it had begun so long ago as what it has moved takes."""
    begun = now if task.rate is None else now - task.moved * MILLISECONDS // task.rate
    started_at, updated_at = min(task.started_at, begun), min(task.updated_at, now)
    return task._replace(started_at=started_at, updated_at=updated_at, revision=task.revision + 1)


def taken(task: MoveTask, now: int) -> MoveTask:
    """The task when somebody is about to take its next step: who stores this is the only one to move anything then."""
    return task._replace(updated_at=now, revision=task.revision + 1)


def progressed(task: MoveTask, moved: int, allowed: int | None, now: int) -> MoveTask:
    """The task after `moved` more messages: completed when there were fewer than it was allowed to move."""
    done = allowed is None or moved < allowed
    status = TaskStatus.COMPLETED.value if done and task.is_running else task.status
    return task._replace(moved=task.moved + moved, updated_at=now, status=status, revision=task.revision + 1)


def ended(task: MoveTask, status: TaskStatus, now: int, failure: str | None = None) -> MoveTask:
    """The task, ended before it was done."""
    return task._replace(status=status.value, updated_at=now, failure=failure, revision=task.revision + 1)


def handle_of(task: MoveTask, source_arn: str) -> str:
    """The handle that users get: as the service's, base64 of the JSON of the task's id and its source's ARN."""
    said = json.dumps({"taskId": task.task, "sourceArn": source_arn}, separators=(",", ":"))
    return base64.b64encode(said.encode()).decode()


def task_id(handle: object) -> str:
    """Return the task's id in a handle. Raises InvalidParameterValue."""
    return _read(handle)["taskId"]


def source_of(handle: object) -> str:
    """The ARN of the queue that the task of a handle is of. Raises InvalidParameterValue."""
    return _read(handle)["sourceArn"]


def _read(handle: object) -> dict[str, str]:
    """What a handle says. Recorded for what is none: "Value for parameter TaskHandle is invalid."."""
    try:
        said = json.loads(base64.b64decode(handle, validate=True)) if isinstance(handle, str) else None
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict) and isinstance(said.get("sourceArn"), str):
        found = said.get("taskId")
        if isinstance(found, str) and _ID_IN_A_HANDLE.fullmatch(found):
            return said
    bound = "It is not the handle of a message move task"
    raise InvalidParameterValue(
        "TaskHandle", handle, bound, f"{bound}.", message="Value for parameter TaskHandle is invalid."
    )


def to_cancel(tasks: Iterable[MoveTask], handle: object) -> MoveTask:
    """The running task of this handle, see `task_id`; raises ResourceNotFound."""
    wanted = task_id(handle)
    for task in tasks:
        if task.task == wanted and task.is_running:
            return task
    raise ResourceNotFound(
        "Task does not exist.",
        "No running message move task has this handle; it was completed or cancelled, or never was.",
    )
