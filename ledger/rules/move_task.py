"""Message move tasks (D2 of docs/reference/rules.md): their records, and their progress at a rate.

Each function that changes a task returns the task's next revision, which a store accepts by `follows`.
"""

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

#: SQS's ids have dashes, ours have none. A handle with an id of SQS's is valid, but its task does not exist.
_ID_IN_A_HANDLE = re.compile(r"[0-9a-f-]{1,64}")
#: In milliseconds without an update.
ABANDONED_AFTER = 60_000


class TaskStatus(str, Enum):
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


class MoveTask(NamedTuple):
    """A task that moves the messages of a dead-letter queue. Instants are in milliseconds.

    `source` is the id of the dead-letter queue. `destination` is a queue's name (None: the queue that each message came
    from). `rate` is in messages a second (None: all move at once). `moved` and `to_move` are approximate, as in SQS.
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
        """Whether the task may move more messages."""
        return self.status == TaskStatus.RUNNING.value


def new_task(
    source: str, destination: str | None, rate: int | None, to_move: int, now: int, others: Iterable[MoveTask]
) -> MoveTask:
    """Return a task that starts now; `others` are all tasks of the same source.

    Two tasks that start at once have the same id, so a store keeps only one of them.

    Raises:
        InvalidParameterValue: Another task of the source runs (recorded).
    """
    others = list(others)
    if any(task.is_running for task in others):
        bound = (
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time"
        )
        raise InvalidParameterValue("SourceArn", source, bound, message=f"{bound}.")
    identity = json.dumps([source, *sorted(task.task for task in others)])
    return MoveTask(hashlib.sha256(identity.encode()).hexdigest()[:32], source, destination, rate, now, now, to_move)


def follows(task: MoveTask, stored_tasks: Iterable[MoveTask]) -> bool:
    """Return whether `task` may be stored: as a stored task's next revision, or if no other task of its source runs."""
    stored = next((one for one in stored_tasks if one.task == task.task), None)
    if stored is not None:
        return stored.revision == task.revision - 1
    return task.revision == 1 and not any(one.is_running and one.source == task.source for one in stored_tasks)


def allowance(task: MoveTask, now: int) -> int | None:
    """Return how many messages a task may move now; None means all.

    The rate counts from the task's start. It allows the messages of each second when the second begins.
    """
    if task.rate is None:
        return None
    seconds = 1 + (now - task.started_at) // MILLISECONDS
    return max(0, int(task.rate * seconds) - task.moved)


def is_abandoned(task: MoveTask, now: int) -> bool:
    """Return whether another process may take the running task's next step."""
    return task.is_running and now - task.updated_at > ABANDONED_AFTER


def put_back(task: MoveTask, now: int) -> MoveTask:
    """Return the task as a right clock would have dated it.

    The new start allows for the messages that the task has moved, so a task with a rate continues at once.
    """
    begun = now if task.rate is None else now - task.moved * MILLISECONDS // task.rate
    started_at, updated_at = min(task.started_at, begun), min(task.updated_at, now)
    return task._replace(started_at=started_at, updated_at=updated_at, revision=task.revision + 1)


def taken(task: MoveTask, now: int) -> MoveTask:
    """Mark the task for a process. Only the process that stores this revision makes the next step."""
    return task._replace(updated_at=now, revision=task.revision + 1)


def progressed(task: MoveTask, moved: int, allowed: int | None, now: int) -> MoveTask:
    """Return the task after `moved` messages. It is completed if `allowed` is greater, or None."""
    done = allowed is None or moved < allowed
    status = TaskStatus.COMPLETED.value if done and task.is_running else task.status
    return task._replace(moved=task.moved + moved, updated_at=now, status=status, revision=task.revision + 1)


def ended(task: MoveTask, status: TaskStatus, now: int, failure: str | None = None) -> MoveTask:
    return task._replace(status=status.value, updated_at=now, failure=failure, revision=task.revision + 1)


def handle_of(task: MoveTask, source_arn: str) -> str:
    """Return the task's handle, in SQS's form."""
    text = json.dumps({"taskId": task.task, "sourceArn": source_arn}, separators=(",", ":"))
    return base64.b64encode(text.encode()).decode()


def task_id(handle: object) -> str:
    return _read(handle)["taskId"]


def source_of(handle: object) -> str:
    return _read(handle)["sourceArn"]


def _read(handle: object) -> dict[str, str]:
    try:
        contents = json.loads(base64.b64decode(handle, validate=True)) if isinstance(handle, str) else None
    except (ValueError, RecursionError):
        contents = None
    if isinstance(contents, dict) and isinstance(contents.get("sourceArn"), str):
        identifier = contents.get("taskId")
        if isinstance(identifier, str) and _ID_IN_A_HANDLE.fullmatch(identifier):
            return contents
    bound = "It is not the handle of a message move task"
    raise InvalidParameterValue(
        "TaskHandle", handle, bound, f"{bound}.", message="Value for parameter TaskHandle is invalid."
    )


def to_cancel(tasks: Iterable[MoveTask], handle: object) -> MoveTask:
    """Return the running task of this handle. Raises ResourceNotFound and InvalidParameterValue."""
    identifier = task_id(handle)
    for task in tasks:
        if task.task == identifier and task.is_running:
            return task
    raise ResourceNotFound(
        "Task does not exist.",
        "No running message move task has this handle: it was completed or cancelled, it failed, or it never existed.",
    )
