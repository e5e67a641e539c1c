"""A ledger: one root with many queues. `Ledger.open` is where everything starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ledger.clock import Clock, system_clock
from ledger.errors import QueueNameExists
from ledger.queue import Queue
from ledger.rules import attributes as attribute_rules
from ledger.settings import Settings
from ledger.store import QueueRecord, Store
from ledger.store.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.opening import Opened

#: The folder a ledger lies in when none is named.
DEFAULT_ROOT = "ledger-data"


class Ledger:
    """Queues on Delta tables under one root. Threads may share it; processes open their own."""

    def __init__(self, store: Store, clock: Clock, settings: Settings, opened: Opened | None = None) -> None:
        self.store, self._clock, self.settings, self._opened = store, clock, settings, opened

    @classmethod
    def open(
        cls, root: str = DEFAULT_ROOT, spark: SparkSession | None = None, engine: str | None = None, *,
        settings: Settings | None = None, owner: str | None = None, clock: Clock = system_clock,
        storage_options: Mapping[str, str] | None = None,
    ) -> Ledger:
        """Opens the ledger at `root`, making its tables if there are none.

        `root` is a path or URI of a folder, or `schema:NAME` for a schema of Spark's catalog. Without `spark` all that
        is not a DataFrame works, through delta-rs, without a JVM. `engine` is auto, spark or delta-rs: auto commits
        through delta-rs where the storage is safe for both. `owner` is who the receipts ledger names (default: user,
        machine and process). `storage_options` go to delta-rs.
        Raises UnsafeStorage, SparkIsNeeded, LedgerTooNew.
        """
        from ledger.store.delta.opening import open_tables

        settings = settings or Settings()
        opened = open_tables(str(root), spark, engine or settings.engine, settings, owner, dict(storage_options or {}))
        return cls(opened.store, clock, settings, opened)

    @classmethod
    def in_memory(cls, clock: Clock = system_clock) -> Ledger:
        """A ledger of this process alone, gone with it: the executable specification. No DataFrames."""
        return cls(MemoryStore(), clock, Settings())

    def create_queue(
        self, name: str, attributes: Mapping[str, object] | None = None, tags: Mapping[str, str] | None = None
    ) -> Queue:
        """The queue of this name, made if there is none (idempotent). Raises QueueNameExists when it exists with a
        different value of a given attribute, InvalidAttributeName, InvalidAttributeValue, InvalidParameterValue."""
        attribute_rules.queue_name(name)
        complete = attribute_rules.complete(attributes or {})
        record = self.store.create_queue(name, complete, dict(tags or {}), self._clock())
        for attribute in attributes or {}:
            if record.attributes[attribute] != complete[attribute]:
                raise QueueNameExists(
                    f"A queue already exists with the same name and a different value for attribute {attribute}: {name} "
                    f"has {record.attributes[attribute]}, asked was {complete[attribute]}. Change it with set_attributes"
                )
        return self._queue(record)

    def queue(self, name: str) -> Queue:
        """The queue of this name; raises QueueDoesNotExist."""
        return self._queue(self.store.queue(name))

    def list_queues(self, prefix: str = "") -> list[Queue]:
        """All queues whose names begin with `prefix`, by name."""
        return [self._queue(record) for record in self.store.queues() if record.name.startswith(prefix)]

    def delete_queue(self, name: str) -> None:
        """Deletes the queue and all its messages; a queue made anew under the name is another one."""
        self.store.delete_queue(name)

    def _queue(self, record: QueueRecord) -> Queue:
        frames = self._opened.frames if self._opened else None
        return Queue(self.store, record, self._clock, frames, self.settings.poll_interval)
