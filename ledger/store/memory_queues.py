"""The queues of the store in memory, and what each of them holds."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ledger.errors import QueueDoesNotExist
from ledger.rules.message import Entry
from ledger.rules.move_task import MoveTask
from ledger.rules.state import UNTOUCHED, Record
from ledger.store import QueueRecord

Place = tuple[str, int]


@dataclass
class Stored:
    """A message and what is recorded about it. `home`: the id of the queue that it was sent to."""

    home: str
    entry: Entry
    sent_at: int
    available_at: int
    sequence_number: int
    record: Record = UNTOUCHED


class MemoryQueues:
    """The queues of a MemoryStore. One lock makes every verb atomic."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._queues: dict[str, QueueRecord] = {}
        self._messages: dict[str, dict[Place, Stored]] = {}
        self._tasks: dict[str, MoveTask] = {}
        self._version = 0

    def create_queue(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], now: int) -> QueueRecord:
        with self._lock:
            known = self._queues.get(name)
            if known is None:
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

    def change_queue(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str], now: int) -> QueueRecord:
        with self._lock:
            self._commit()
            self._queues[name] = replace(self.queue(name), attributes=attributes, tags=tags, modified_at=now)
            return self._queues[name]

    def delete_queue(self, name: str) -> None:
        with self._lock:
            self._messages.pop(self.queue(name).id)
            self._queues.pop(name)
            self._commit()

    def tasks(self) -> list[MoveTask]:
        with self._lock:
            return list(self._tasks.values())

    def put_task(self, task: MoveTask) -> bool:
        with self._lock:
            known = self._tasks.get(task.task)
            if (known.revision if known else 0) != task.revision - 1:
                return False
            self._tasks[task.task] = task
            return True

    def change_token(self) -> object:
        return self._version

    def _commit(self) -> int:
        self._version += 1
        return self._version

    def _stored(self, queue: QueueRecord) -> dict[Place, Stored]:
        if queue.id not in self._messages:
            raise QueueDoesNotExist(queue.name, self._queues)
        return self._messages[queue.id]
