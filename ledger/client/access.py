"""Access to one queue of a ledger, for the calls of the Queue and its claims."""

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
    """Access to one queue of a ledger. `frames` handles DataFrames; it is None if the ledger was opened without Spark.

    `made` is the queue's record from the moment when the user opened the queue. All but its name and id may have
    changed since. A method that needs more calls `record`.
    """

    store: Store
    clock: Clock
    settings: Settings
    frames: Frames | None
    made: QueueRecord
    #: Opens the ledger in another process, started by spawn, and returns access to this queue. None: no process can.
    reopen: Callable[[], Access] | None = field(default=None, compare=False)
    #: For each claim of this queue object: the messages that were deleted or released through the claim or the object.
    endings: OpenClaims = field(default_factory=OpenClaims, init=False)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.made.name

    @property
    def arn(self) -> str:
        """The queue's ARN."""
        return self.settings.account.arn(self.name)

    def record(self) -> QueueRecord:
        """Return the queue's record as it is now. Raises QueueDoesNotExist, also if a newer queue has the same name."""
        record = self.store.queue(self.name)
        if record.id != self.made.id:
            raise QueueDoesNotExist(self.name, made_anew=True)
        return record

    def named_jobs(self, verb: str, receipt_id: str | None = None) -> AbstractContextManager[None]:
        """Return a context in which Spark's jobs name the verb, the queue and the receipt. (Without Spark, the context
        does nothing.)"""
        return nullcontext() if self.frames is None else self.frames.named_jobs(verb, self.name, receipt_id)

    def spark(self, what: str = "A DataFrame", instead: str = "") -> Frames:
        """Return the object that moves DataFrames. Raises SparkIsNeeded if the ledger was opened without Spark.

        The error says that `what` needs Spark. `instead` is its advice: a sentence about a call that needs no Spark.
        """
        if self.frames is None:
            message = f"{what} needs Spark: open the ledger with Ledger.open(root, spark=spark)"
            raise SparkIsNeeded(message, instead)
        return self.frames
