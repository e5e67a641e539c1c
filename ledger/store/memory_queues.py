"""The queues of the store in memory, and what each of them holds."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from ledger.clock import Clock
from ledger.errors import QueueDoesNotExist
from ledger.rules import intervals, move_task, redrive
from ledger.rules.attributes import limits_of
from ledger.rules.message import Entry
from ledger.rules.move_task import MoveTask
from ledger.rules.state import UNTOUCHED, Record
from ledger.settings import Settings
from ledger.store import Change, QueueRecord

Place = tuple[str, int]


@dataclass
class Stored:
    """A message and what is recorded about it. `home`: the id of the queue that it was sent to; `lane`: where it would
    lie there, and in the queues that it is moved to."""

    home: str
    entry: Entry
    sent_at: int
    available_at: int
    sequence_number: int
    lane: int
    record: Record = UNTOUCHED
    sender_id: str | None = None


class MemoryQueues:
    """The queues of a MemoryStore. One lock makes every verb atomic."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, threading.RLock()
        self._queues: dict[str, QueueRecord] = {}
        self._messages: dict[str, dict[Place, Stored]] = {}
        self._tasks: dict[str, MoveTask] = {}
        self._version = 0
        self._deleted: dict[str, int] = {}

    def create_queue(
        self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], clock: Clock
    ) -> QueueRecord:
        with self._lock:
            known, now = self._queues.get(name), clock()
            if known is None:
                redrive.require_target(self.queues(), name, attributes, attributes)
                interval = self._settings.deletion_interval
                intervals.require_name(name, self._deleted.get(name), limits_of(attributes), interval, now)
                known = QueueRecord(f"{name}-{self._commit():08x}", name, attributes, tags, now, now)
                self._queues[name], self._messages[known.id] = known, {}
            return known

    def queue(self, name: str) -> QueueRecord:
        with self._lock:
            if name not in self._queues:
                raise QueueDoesNotExist(name, self._queues)
            return self._queues[name]

    def queues(self) -> list[QueueRecord]:
        with self._lock:
            return [self._queues[name] for name in sorted(self._queues)]

    def change_queue(self, queue: QueueRecord, change: Change, clock: Clock) -> QueueRecord:
        with self._lock:
            known = self._required(queue)
            changed = known.changed(*change(known, self.queues()), clock())
            if changed is not known:
                self._commit()
                self._queues[queue.name] = changed
            return changed

    def delete_queue(self, queue: QueueRecord, clock: Clock) -> None:
        with self._lock:
            self._messages.pop(self._required(queue).id)
            self._queues.pop(queue.name)
            self._deleted[queue.name] = clock()
            self._commit()

    def tasks(self) -> list[MoveTask]:
        with self._lock:
            return list(self._tasks.values())

    def put_task(self, task: MoveTask) -> bool:
        with self._lock:
            stored = move_task.follows(task, self.tasks())
            if stored:
                self._tasks[task.task] = task
            return stored

    def change_token(self) -> object:
        return self._version

    def require_tables(self) -> None:
        pass

    def require_ready(self, free_bytes: int) -> None:
        pass

    def refusals(self) -> Mapping[str, tuple[str, str]]:
        return {}

    @property
    def place(self) -> str:
        return f"memory {id(self)}"

    def _commit(self) -> int:
        self._version += 1
        return self._version

    def _required(self, queue: QueueRecord) -> QueueRecord:
        known = self._queues.get(queue.name)
        if known is None or known.id != queue.id:
            raise QueueDoesNotExist(queue.name, self._queues)
        return known

    def _stored(self, queue: QueueRecord) -> dict[Place, Stored]:
        if queue.id not in self._messages:
            raise QueueDoesNotExist(queue.name, self._queues)
        return self._messages[queue.id]
