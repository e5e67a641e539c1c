"""Running message move tasks: start, list, cancel, and carry on one that its process left behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from ledger.errors import ClocksDisagree, LedgerError, QueueDoesNotExist, ResourceNotFound
from ledger.rules import move_task, redrive
from ledger.rules.attributes import limits_of
from ledger.rules.limits import move_rate
from ledger.rules.move_task import MoveTask, TaskStatus
from ledger.rules.state import Status
from ledger.runtime.threads import start_thread
from ledger.store.protocol import QueueRecord, Store

log = logging.getLogger("ledger.move_tasks")
TICK = 1.0


class MoveTasks:
    """The tasks of one source queue. What they move, they move by `Store.redrive`, a commit at a time."""

    def __init__(self, store: Store, source: QueueRecord, clock: Callable[[], int]) -> None:
        self._store, self._source, self._clock = store, source, clock

    def start(self, destination: str | None, rate: int | None, sources: list[str]) -> MoveTask:
        """See Queue.start_message_move_task."""
        if not sources:
            raise redrive.no_dead_letter_queue(self._source.name)
        move_rate(rate, limits_of(self._source.attributes))
        self._destination(destination)
        to_move = self._store.counts(self._source, self._clock).by_status[Status.VISIBLE]
        while True:
            # Stored only while no other one runs; if one was first, it is among `all` now, and the rule refuses.
            task = move_task.new_task(self._source.id, destination, rate, to_move, self._clock(), self.all())
            if self._store.put_task(task):
                break
        after = self._move(task, self._source)
        if after is None or after.is_running:
            start_thread(partial(self.run, task.task, -1 if after is None else after.revision), "ledger-move-task")
        return task

    def all(self) -> list[MoveTask]:
        """The tasks of this queue, the latest first."""
        mine = [task for task in self._store.tasks() if task.source == self._source.id]
        return sorted(mine, key=lambda task: -task.started_at)

    def cancel(self, handle: str) -> int:
        """See Queue.cancel_message_move_task."""
        while True:
            task = move_task.to_cancel(self.all(), handle)
            if self._store.put_task(move_task.ended(task, TaskStatus.CANCELLED, self._clock())):
                return task.moved

    def run(self, handle: str, revision: int, sleep: Callable[[float], None] = time.sleep) -> None:
        """Carries a task on until it ends; `revision` is that of its last step here. While somebody else carries it
        on, after a stall here say, this one waits."""
        while (task := self._latest(handle)) is not None and task.is_running:
            if task.revision == revision or move_task.is_abandoned(task, self._clock()):
                after = self.step(task)
                revision = -1 if after is None else after.revision
            sleep(TICK)

    def step(self, task: MoveTask) -> MoveTask | None:
        """Moves what a running task may move now; returns the task after it, or None when somebody else takes this
        step, it was cancelled, or it waits: of all who try, one moves."""
        taken = move_task.taken(task, self._clock())
        return self._move(taken) if self._store.put_task(taken) else None

    def _move(self, task: MoveTask, source: QueueRecord | None = None) -> MoveTask | None:
        """Moves what a task may move now that this process has taken its step; returns the task after it, None where it
        waits for as long as an abandoned one does. `source`: the queue, where it was looked up a moment ago."""
        try:
            source, target = source or self._as_it_is(), self._destination(task.destination)
            allowed = move_task.allowance(task, self._clock())
            moved = self._store.redrive(source, target, allowed, None, self._clock) if allowed != 0 else 0
        except ClocksDisagree as error:
            # Until somebody has put the clock, or the queue's time, right.
            log.warning("the move task %s of %s waits: %s", task.task, self._source.name, error)
            return None
        except LedgerError as error:
            log.warning("the move task %s of %s failed: %s", task.task, self._source.name, error)
            after = move_task.ended(task, TaskStatus.FAILED, self._clock(), str(error))
            # Who cancelled it meanwhile, say, has the last word.
            return after if self._store.put_task(after) else self._stored(task.task)
        while True:
            after = move_task.progressed(task, moved, allowed if allowed != 0 else -1, self._clock())
            if self._store.put_task(after):
                return after
            # It was cancelled, or taken for abandoned: what was moved counts nevertheless.
            task = self._stored(task.task)

    def _latest(self, handle: str) -> MoveTask | None:
        return next((task for task in self.all() if task.task == handle), None)

    def _stored(self, handle: str) -> MoveTask:
        """The task as it is stored now. Raises ResourceNotFound."""
        found = self._latest(handle)
        if found is None:
            raise ResourceNotFound("Task does not exist.", "Somebody removed it from the ledger's tables.")
        return found

    def _as_it_is(self) -> QueueRecord:
        """The source now: a task may run for hours, and what has expired meanwhile, by the retention that was set
        meanwhile, stays where it is. Raises QueueDoesNotExist."""
        source = self._store.queue(self._source.name)
        if source.id != self._source.id:
            raise QueueDoesNotExist(source.name, made_anew=True)
        return source

    def _destination(self, name: str | None) -> QueueRecord | None:
        try:
            return None if name is None else self._store.queue(name)
        except QueueDoesNotExist as error:
            raise ResourceNotFound(
                "The resource that you specified for the DestinationArn parameter doesn't exist.", error.advice
            ) from None


def carry_on(store: Store, clock: Callable[[], int]) -> int:
    """A step of every task that its process left behind; returns how many tasks that were."""
    queues = {record.id: record for record in store.queues()}
    left = [task for task in store.tasks() if move_task.is_abandoned(task, clock())]
    for task in left:
        if task.source in queues:
            MoveTasks(store, queues[task.source], clock).step(task)
        else:
            store.put_task(move_task.ended(task, TaskStatus.FAILED, clock(), "The source queue was deleted"))
    return len(left)
