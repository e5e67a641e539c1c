"""Access to one queue of a ledger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.client.settlements import OpenClaims
from ledger.clock import Clock
from ledger.errors import QueueDoesNotExist, SparkIsNeeded
from ledger.settings import Settings
from ledger.store.protocol import QueueRecord, Store

if TYPE_CHECKING:
    from ledger.store.delta.dataframes.frames import Frames


@dataclass(frozen=True)
class Access:
    """What the calls of a Queue and its claims share. `frames` handles DataFrames (None: opened without Spark).

    `made` is the queue's record when the user opened the queue. All but its name and id may have changed since.
    """

    store: Store
    clock: Clock
    settings: Settings
    frames: Frames | None
    made: QueueRecord
    #: Opens the ledger in another process, started by spawn, and returns access to this queue. None: no process can.
    reopen: Callable[[], Access] | None = field(default=None, compare=False)
    #: By claim of this queue object: the messages that were ended through the claim or the object.
    endings: OpenClaims = field(default_factory=OpenClaims, init=False)

    @property
    def name(self) -> str:
        return self.made.name

    @property
    def arn(self) -> str:
        return self.settings.account.arn(self.name)

    def record(self) -> QueueRecord:
        """Return the queue's present record. Raises QueueDoesNotExist, also if a newer queue has the name."""
        record = self.store.queue(self.name)
        if record.id != self.made.id:
            raise QueueDoesNotExist(self.name, made_anew=True)
        return record

    def named_jobs(self, verb: str, receipt_id: str | None = None) -> AbstractContextManager[None]:
        """Return a context in which Spark's jobs name the verb, the queue and the receipt."""
        return nullcontext() if self.frames is None else self.frames.named_jobs(verb, self.name, receipt_id)

    def spark(self, what: str = "A DataFrame", instead: str = "") -> Frames:
        """Return the object that moves DataFrames, or raise SparkIsNeeded.

        The error says that `what` needs Spark. `instead` is advice: a call that needs no Spark.
        """
        if self.frames is None:
            message = f"{what} needs Spark: open the ledger with Ledger.open(root, spark=spark)"
            raise SparkIsNeeded(message, instead)
        return self.frames
