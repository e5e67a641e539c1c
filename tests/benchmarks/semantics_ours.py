"""The second benchmark's operations on this ledger, through either engine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bodies import bodies
from folders import linked_copy, remove
from ours import LEASE, QUEUE, Ours, Templates
from processes import Processes
from semantics_rows import EVERY_OTHER, RECEIVES, REPEATED, Scale, expect, measured
from timing import Patience, say

from ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ledger import Queue

FIFO, DEAD = f"{QUEUE}.fifo", f"{QUEUE}-dead"
#: For what is in flight while others are received: longer than the benchmark.
LONG = 12 * LEASE
MINUTE = 60_000


class Semantics:
    """A contestant: this ledger through one engine. Its DataFrames go through Spark with both."""

    def __init__(self, templates: Templates, engine: str, scale: Scale, patience: Patience) -> None:
        self._ours, self._templates = Ours(templates, engine), templates
        self.name, self._scale, self._patience = self._ours.name, scale, patience

    def sends(self) -> dict[str, Any]:
        """FIFO sends of one DataFrame each."""
        scale, numbers = self._scale, itertools.count()
        folder = self._templates.work / f"sends-{self._ours.engine}"
        ledger, state = self._ours.open(folder), {}

        def new_queue() -> None:
            state["queue"] = _fifo_queue(ledger, f"{next(numbers)}-{FIFO}")

        def send() -> None:
            expect("sent", state["queue"].send(self._rows(f"id <= {scale.batch}", scale.batch)).count, scale.batch)

        found = {"send": self._measured("send", send, new_queue)}
        remove(folder)
        sent_at, root = self._fifo(scale.large, lanes=1)
        # Always a minute after the backlog, so that it is remembered however long the benchmark takes.
        queue = Ledger.open(
            str(root), spark=self._templates.spark, engine=self._ours.engine, clock=lambda: sent_at + MINUTE
        ).queue(FIFO)
        fresh = scale.batch - scale.batch // REPEATED

        def send_again() -> None:
            first = scale.large + 1 + next(numbers) * fresh
            last = first + fresh - 1
            rows = self._rows(f"id <= {scale.batch // REPEATED} OR id BETWEEN {first} AND {last}", last)
            expect("sent", queue.send(rows).count, fresh)

        numbers = itertools.count()
        found["send repeats"] = self._measured("send repeats", send_again)
        remove(root)
        return found

    def receives(self) -> dict[str, Any]:
        """FIFO receives, each released before the next."""
        scale = self._scale
        found = {"receive small": self._receive("receive small", self._fifo(scale.small, lanes=1)[1])}
        for key, lanes in (("receive large", 1), ("receive 8 lanes", 8)):
            found[key] = self._receive(key, self._fifo(scale.large, lanes)[1])
        found["receive half held"] = self._receive("receive half held", self._half_held())
        root, numbers = self._fifo(scale.large, lanes=1)[1], itertools.count()

        def send(queue: Queue) -> None:
            number = next(numbers)
            queue.send("one more", message_group_id=f"group-{number}", message_deduplication_id=f"x{number}")

        found["receive after send"] = self._receive("receive after send", root, send)
        return found

    def dead_letters(self) -> dict[str, Any]:
        """Everything moves there and back, over and over."""
        root = self._with_dead_letter_queue()
        ledger, messages = self._ours.open(root), self._scale.large
        queue, dead = ledger.queue(QUEUE), ledger.queue(DEAD)

        def worn() -> None:
            dead.redrive()
            _wear_out(queue)

        def bury() -> None:
            expect("received although dead", queue.receive(None).count, 0)

        def buried() -> None:
            if not dead.counts().visible:
                _wear_out(queue)
                bury()
            expect("dead letters", dead.counts().visible, messages)

        found = {"bury": self._measured("bury", bury, worn)}
        buried()
        found["redrive"] = self._measured("redrive", lambda: expect("redriven", dead.redrive(), messages), buried)
        remove(root)
        wants = self._patience.wants
        predicates = {"redrive half": self._scale.first_half, "redrive every other": EVERY_OTHER}
        return found | {key: self._redrive_where(key, where) for key, where in predicates.items() if wants(key)}

    def _redrive_where(self, key: str, where: str) -> dict[str, Any]:
        """Each repeat starts from a new copy, as the runs that a predicate leaves behind are others than before."""
        template, state = self._buried(), {}

        def copy() -> None:
            remove(state.get("root"))
            state["root"] = linked_copy(template)
            ledger = self._ours.open(state["root"])
            state["dead"] = ledger.queue(DEAD)
            expect("dead letters", state["dead"].counts().visible, self._scale.large)
            ledger.view("messages").limit(1).collect()

        def redrive() -> None:
            expect("redriven", state["dead"].redrive(where=where), self._scale.large // 2)

        found = self._measured(key, redrive, copy)
        remove(state["root"])
        remove(template)
        return found

    def _receive(self, key: str, root: Path, also: Callable[[Queue], None] | None = None) -> dict[str, Any]:
        queue, held, batch = self._ours.open(root).queue(FIFO), [], self._scale.batch

        def release() -> None:
            while held:
                expect("received", held[-1].count, batch)
                held.pop().release()
            if also is not None:
                also(queue)

        def receive() -> None:
            held.append(queue.receive(batch, visibility_timeout=LEASE))

        found = self._measured(key, receive, release)
        expect("received", held[-1].count, batch)
        groups = held[-1].dataframe.select("message_group_id").distinct().count()
        say(f"{self.name}: {key}: {groups:,} groups")
        remove(root)
        return found | {"groups": groups, "runs": held[-1].grant.runs.num_rows}

    def _measured(self, key: str, call: Callable[[], Any], before: Callable[[], Any] | None = None) -> dict[str, Any]:
        if not self._patience.wants(key):
            return {}
        title = (self._scale.fifo | self._scale.dead)[key]
        return measured(self.name, title, call, self._patience, before, Processes().cpu_seconds)

    def _rows(self, condition: str, last: int) -> DataFrame:
        rows = bodies(self._templates.spark, last).where(condition)
        group, key = f"concat('group-', id % {self._scale.groups})", "concat('id-', id)"
        return rows.selectExpr("body", f"{group} AS message_group_id", f"{key} AS message_deduplication_id")

    def _fifo(self, messages: int, lanes: int) -> tuple[int, Path]:
        """When a FIFO queue's backlog was sent, and a copy of the ledger with it. The template is kept."""
        template = self._templates.work / f"fifo-{messages}-{lanes}"
        if not template.exists():
            queue = _fifo_queue(Ledger.open(str(template), spark=self._templates.spark), FIFO, lanes)
            expect("sent", queue.send(self._rows(f"id <= {messages}", messages)).count, messages)
        queue = Ledger.open(str(template), engine="delta-rs").queue(FIFO)
        return int(time.time() * 1_000 - queue.counts().age_of_oldest * 1_000), linked_copy(template)

    def _half_held(self) -> Path:
        """Half of what is received first is deleted, that of every other group; the rest stays in flight."""
        template = self._templates.work / "fifo-half-held"
        if not template.exists():
            self._fifo(self._scale.large, lanes=1)[1].rename(template)
            queue = Ledger.open(str(template), spark=self._templates.spark).queue(FIFO)
            claim = queue.receive(self._scale.batch, visibility_timeout=LONG)
            number = "cast(substring(message_group_id, 7) AS int)"
            queue.delete(claim.dataframe.where(f"{number} % 2 = 1").select("receipt_handle"))
            expect("in flight", queue.counts().in_flight, self._scale.batch // 2)
        return linked_copy(template)

    def _with_dead_letter_queue(self) -> Path:
        root = linked_copy(self._templates.of(self._scale.large)[0])
        ledger = Ledger.open(str(root), engine="delta-rs")
        ledger.create_queue(DEAD)
        policy = {"deadLetterTargetArn": DEAD, "maxReceiveCount": RECEIVES}
        ledger.queue(QUEUE).set_attributes({"RedrivePolicy": policy})
        return root

    def _buried(self) -> Path:
        root = self._with_dead_letter_queue()
        queue = Ledger.open(str(root), engine="delta-rs").queue(QUEUE)
        _wear_out(queue)
        queue.receive(None)
        return root


def _fifo_queue(ledger: Ledger, name: str, lanes: int = 1) -> Queue:
    return ledger.create_queue(name, {"FifoQueue": "true", "Lanes": lanes})


def _wear_out(queue: Queue) -> None:
    for _ in range(RECEIVES):
        queue.receive(None, visibility_timeout=LEASE).release()
