"""What the verbs of one queue need. A Queue has it, and hands it on to its claims and to whoever acts for them."""

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
    """Access to one queue of a ledger. `frames` is None without Spark.

    `made` is the queue as it was when it was asked for: its name and its id stay as they are, all else may have changed
    since. A verb looks it up once, by `record`, and does all that it does by what it found.
    """

    store: Store
    clock: Clock
    settings: Settings
    frames: Frames | None
    made: QueueRecord
    #: Opens the ledger in another process, started by spawn, and returns access to this queue; None where none can.
    reopen: Callable[[], Access] | None = field(default=None, compare=False)
    #: What was ended through the claims that came from here.
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
        """The queue as it is now. Raises QueueDoesNotExist, also when another one has its name by now."""
        record = self.store.queue(self.name)
        if record.id != self.made.id:
            raise QueueDoesNotExist(self.name, made_anew=True)
        return record

    def named_jobs(self, verb: str, receipt_id: str | None = None) -> AbstractContextManager[None]:
        """A context whose Spark jobs, if there are any, name the verb, the queue and the receipt."""
        return nullcontext() if self.frames is None else self.frames.named_jobs(verb, self.name, receipt_id)

    def spark(self, what: str = "A DataFrame", instead: str = "") -> Frames:
        """What moves DataFrames. Raises SparkIsNeeded, for `what`; `instead` is a sentence on what needs none."""
        if self.frames is None:
            said = f"{what} needs Spark: open the ledger with Ledger.open(root, spark=spark)"
            raise SparkIsNeeded(said, instead)
        return self.frames
