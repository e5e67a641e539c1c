"""This ledger, through either engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bodies import bodies
from folders import linked_copy, remove
from timing import Cell, timed

from ledger import Ledger, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ledger import Claim, Queue

LEASE = 3_600
#: Rounds of all verbs through Spark, until its compiler has seen them often enough.
WARM_UPS = 15
QUEUE = "benchmark"


class Templates:
    """A ledger with a backlog per size, sent once as a DataFrame and shared by both engines."""

    def __init__(self, work: Path, spark: SparkSession) -> None:
        self.work, self.spark = work, spark
        self._made: dict[int, tuple[Path, Cell]] = {}

    def warm_up(self) -> None:
        """Does every verb a few times, so that what is measured is not Spark's first job nor its JVM's first minute."""
        folder = self.work / "warm-up"
        queue = Ledger.open(str(folder), spark=self.spark, engine="spark").create_queue(QUEUE)
        for _ in range(WARM_UPS):
            queue.send(bodies(self.spark, 1_000).select("body"))
            claim = queue.receive(1_000, visibility_timeout=LEASE)
            claim.extend()
            claim.release()
            queue.receive(1_000).delete()
        remove(folder)

    def of(self, messages: int) -> tuple[Path, Cell]:
        """The folder of a ledger whose queue holds `messages`, and how long it took to send them."""
        if messages not in self._made:
            folder = self.work / f"template-{messages}"
            queue = Ledger.open(str(folder), spark=self.spark).create_queue(QUEUE)
            seconds, _ = timed(lambda: queue.send(bodies(self.spark, messages).select("body")))
            held = queue.counts().visible
            if held != messages:
                raise AssertionError(f"{held:,} of {messages:,} messages were sent")
            self._made[messages] = folder, Cell([seconds])
        return self._made[messages]


class Ours:
    """A contestant: one queue of this ledger."""

    def __init__(self, templates: Templates, engine: str, *, sync: bool = True) -> None:
        self.name = f"ledger, {engine}" if sync else f"ledger, {engine}, sync off"
        self.engine, self.settings = engine, Settings(sync=sync)
        self.templates = templates
        self._template: Path | None = None
        self._copy: Path | None = None
        self.queue: Queue | None = None

    def load(self, messages: int) -> Cell | None:
        self._template, sent = self.templates.of(messages)
        return sent

    def restore(self, taken: int) -> None:
        remove(self._copy)
        self._copy = linked_copy(self._template)
        self.queue = self.open(self._copy).queue(QUEUE)

    def settle(self) -> None:
        pass

    def open(self, root: Path) -> Ledger:
        """The ledger at `root` through this contestant's engine; delta-rs gets a session for DataFrames only."""
        return Ledger.open(str(root), spark=self.templates.spark, engine=self.engine, settings=self.settings)

    def claim(self, messages: int | None) -> Claim:
        return self.queue.receive(messages, visibility_timeout=LEASE)

    def count(self, claim: Claim) -> int:
        return claim.count

    def extend(self, claim: Claim) -> Any:
        return claim.extend()

    def release(self, claim: Claim) -> Any:
        return claim.release()

    def delete(self, claim: Claim) -> Any:
        return claim.delete()

    def unload(self) -> None:
        remove(self._copy)
        self._copy = None
