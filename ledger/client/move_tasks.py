"""Message move tasks: start, list, cancel, and continue abandoned ones.

The process that started a task takes its steps, with a pause of STEP_PAUSE_SECONDS between two steps. A running task
that was not updated for more than a minute is *abandoned*, and any process may continue it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from ledger.errors import ClocksDisagree, LedgerError, QueueDoesNotExist, ResourceNotFound
from ledger.rules import redrive
from ledger.rules.attributes import limits_of
from ledger.rules.limits import check_move_rate
from ledger.rules.redrive import MoveTask, TaskStatus
from ledger.rules.visibility import Status
from ledger.runtime.threads import start_thread
from ledger.store.protocol import QueueRecord, Store

log = logging.getLogger("ledger.move_tasks")
STEP_PAUSE_SECONDS = 1.0


class MoveTasks:
    """The tasks of one source queue. A step calls `Store.redrive` at most once."""

    def __init__(self, store: Store, source: QueueRecord, clock: Callable[[], int]) -> None:
        self._store, self._source, self._clock = store, source, clock

    def start(self, destination: str | None, rate: int | None, sources: list[str]) -> MoveTask:
        """See Queue.start_message_move_task."""
        if not sources:
            raise redrive.make_no_dead_letter_queue_error(self._source.name)
        check_move_rate(rate, limits_of(self._source.attributes))
        self._find_destination(destination)
        to_move = self._store.counts(self._source, self._clock).by_status[Status.VISIBLE]
        while True:
            # If another task of this queue started meanwhile, `put_task` refuses this task. In the next round of the
            # loop `new_task` raises an error if the other task still runs, else it makes a new task.
            task = redrive.new_task(self._source.id, destination, rate, to_move, self._clock(), self.all())
            if self._store.put_task(task):
                break
        after = self._move(task, self._source)
        if after is None or after.is_running:
            start_thread(partial(self.run, task.task, -1 if after is None else after.revision), "ledger-move-task")
        return task

    def all(self) -> list[MoveTask]:
        tasks = [task for task in self._store.tasks() if task.source == self._source.id]
        return sorted(tasks, key=lambda task: -task.started_at)

    def cancel(self, handle: str) -> int:
        """See Queue.cancel_message_move_task."""
        while True:
            task = redrive.find_task_to_cancel(self.all(), handle)
            if self._store.put_task(redrive.end_task(task, TaskStatus.CANCELLED, self._clock())):
                return task.moved

    def run(self, task_id: str, revision: int, sleep: Callable[[float], None] = time.sleep) -> None:
        """Take the steps of a task until it ends.

        `revision` is the task's revision after this process's last step (-1: unknown). While another process continues
        the task, this process waits.
        """
        while (task := self._find_task(task_id)) is not None and task.is_running:
            if task.revision == revision or redrive.is_abandoned(task, self._clock()):
                after = self.step(task)
                revision = -1 if after is None else after.revision
            sleep(STEP_PAUSE_SECONDS)

    def step(self, task: MoveTask) -> MoveTask | None:
        """Move the messages that a running task may move now, and return the task after this step.

        Returns None if another process changed the task first, or if clocks disagree.
        """
        taken = redrive.start_step(task, self._clock())
        return self._move(taken) if self._store.put_task(taken) else None

    def _move(self, task: MoveTask, source: QueueRecord | None = None) -> MoveTask | None:
        """See `step`. After ClocksDisagree return None: the task waits until it is abandoned.

        Any other LedgerError ends the task as FAILED.
        """
        try:
            source, target = source or self._read_source(), self._find_destination(task.destination)
            allowed = redrive.allowance(task, self._clock())
            moved = self._store.redrive(source, target, allowed, None, self._clock) if allowed != 0 else 0
        except ClocksDisagree as error:
            log.warning("the move task %s of %s waits: %s", task.task, self._source.name, error)
            return None
        except LedgerError as error:
            log.warning("the move task %s of %s failed: %s", task.task, self._source.name, error)
            after = redrive.end_task(task, TaskStatus.FAILED, self._clock(), str(error))
            # An earlier change, such as a cancel, stays.
            return after if self._store.put_task(after) else self._stored(task.task)
        while True:
            after = redrive.record_progress(task, moved, allowed if allowed != 0 else -1, self._clock())
            if self._store.put_task(after):
                return after
            # Add the moved messages to the count of a task that was cancelled or continued meanwhile.
            task = self._stored(task.task)

    def _find_task(self, task_id: str) -> MoveTask | None:
        return next((task for task in self.all() if task.task == task_id), None)

    def _stored(self, task_id: str) -> MoveTask:
        task = self._find_task(task_id)
        if task is None:
            raise ResourceNotFound("Task does not exist.", "Somebody removed it from the ledger's tables.")
        return task

    def _read_source(self) -> QueueRecord:
        """Return the source queue as it is now: somebody may change its retention while the task runs."""
        source = self._store.queue(self._source.name)
        if source.id != self._source.id:
            raise QueueDoesNotExist(source.name, made_anew=True)
        return source

    def _find_destination(self, name: str | None) -> QueueRecord | None:
        try:
            return None if name is None else self._store.queue(name)
        except QueueDoesNotExist as error:
            raise ResourceNotFound(
                "The resource that you specified for the DestinationArn parameter doesn't exist.", error.advice
            ) from None


def continue_abandoned_tasks(store: Store, clock: Callable[[], int]) -> int:
    """Take a step of every abandoned task, or end it as FAILED if its source queue was deleted.

    Returns the number of abandoned tasks.
    """
    queues = {record.id: record for record in store.queues()}
    abandoned = [task for task in store.tasks() if redrive.is_abandoned(task, clock())]
    for task in abandoned:
        if task.source in queues:
            MoveTasks(store, queues[task.source], clock).step(task)
        else:
            store.put_task(redrive.end_task(task, TaskStatus.FAILED, clock(), "The source queue was deleted"))
    return len(abandoned)
