"""What a simulated client does at each step of its program."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ledger.errors import LedgerError
from ledger.rules.attributes import is_fifo
from tests.simulation.calls import Call
from tests.simulation.engine import AnswerLost
from tests.simulation.programs import Step
from tests.simulation.run import Held, Run, Slot
from tests.simulation.scheduler import Client, Killed
from tests.simulation.worlds import OUTPUTS

#: Errors that say nothing about what happened.
UNANSWERED = ("AnswerLost", "StorageFailed", "OutputNotWritten", "OutputUnreadable")
WAITS = (1.0, 6.0, 22.0, 40.0)


class Player:
    """One client's program, step by step; after the end of its process it carries on in the next one."""

    client: Client

    def __init__(self, run: Run, slot: Slot, program: Sequence[Step]) -> None:
        self._run, self._slot, self._program = run, slot, program
        self._number, self._retry, self._luck = 0, False, random.Random()

    def play(self) -> None:
        """All steps."""
        for number, step in enumerate(self._program):
            for again in (False, True):
                self._number, self._retry = number, again
                try:
                    lost = self._step(step)
                except Killed:
                    self._run.live(self._slot)
                    self.client.process = self._slot.process
                    lost = True
                # A task that got no answer is tried once more, mostly.
                if not lost or step.dice % 4 == 0 or again:
                    break

    def _step(self, step: Step) -> bool:
        self._luck = random.Random(step.dice)
        before = len(self._run.calls)
        getattr(self, f"_{step.verb}")(step)
        mine = [call for call in self._run.calls[before:] if call.client == self.client.name]
        return any(call.error in UNANSWERED for call in mine)

    def _call(self, verb: str, queue: str, do: Callable[[], Any], **about: Any) -> Any:
        scheduler = self._run.scheduler
        call = Call(self.client.name, verb, queue, scheduler.steps, about)
        self._run.calls.append(call)
        self.client.doing, began = call, self._clock()
        scheduler.begins(self.client)
        try:
            call.answer = do()
        except LedgerError as error:
            call.error = type(error).__name__
        except AnswerLost:
            call.error = "AnswerLost"
        except Exception as error:
            call.error = f"bare {type(error).__name__}: {error}"
        call.ended, call.clocks, call.looked = scheduler.steps, (began, self._clock()), self.client.looked
        return call.answer

    def _clock(self) -> int:
        return self._run.scheduler.now + self.client.process.skew

    def _queue(self, number: int) -> Any:
        names = self._run.names
        name = names[number % len(names)]
        return self._call("look up", name, lambda: self._slot.ledger.queue(name))

    def _send(self, step: Step) -> None:
        queue = self._queue(step.which)
        if queue is None:
            return
        fresh = f"{self.client.name} {self._number}"
        if is_fifo(self._run.attributes[queue.name]):
            keys = [f"key-{self._luck.randrange(4, 12)}" for _ in range(self._luck.choice((1, 1, 2)))]
            entries = [
                {"MessageBody": key, "MessageGroupId": "abc"[int(key[4:]) % 3], "MessageDeduplicationId": key}
                for key in keys
            ]
            self._call("send", queue.name, lambda: queue.send(entries), keys=keys)
            return
        more = {"attempt_id": fresh} if self._luck.random() < 0.6 else {}
        # Without an attempt id a send that is tried again is another one.
        fresh += " again" if self._retry and not more else ""
        bodies = [f"{fresh} {n}" for n in range(self._luck.choice((1, 2, 3)))]
        if self._luck.random() < 0.1:
            more["delay_seconds"] = 5
        call = lambda: queue.send(bodies, **more)  # noqa: E731
        ids = self._call("send", queue.name, call, bodies=bodies, attempt=more.get("attempt_id"))
        self._run.message_ids += [(queue.name, one) for one in ids or ()]

    def _receive(self, step: Step) -> None:
        queue = self._queue(step.which)
        if queue is None:
            return
        luck = self._luck
        maximum, timeout = luck.choice((1, 1, 2, 3, None)), luck.choice((5, 30, 30, 60))
        attempt = f"{queue.name} {maximum} {luck.randrange(2)}" if luck.random() < 0.4 else None
        self._receive_as(queue, maximum, timeout, attempt)

    def _receive_as(self, queue: Any, maximum: int | None, timeout: int, attempt: str | None) -> Held | None:
        def receive() -> Any:
            return queue.receive(maximum, timeout, attempt_id=attempt)

        about = {"attempt": attempt, "maximum": maximum, "timeout": timeout, "id": queue.id}
        claim = self._call("receive", queue.name, receive, **about)
        if not claim:
            return None
        held = Held(queue.name, claim.receipt_id, self._slot.number, claim, self._slot.ledger, attempt=attempt)
        self._run.claims.append(held)
        if self._luck.random() < 0.5:
            self._read(held)
        return held

    def _read(self, held: Held) -> None:
        held.messages = self._call("read", held.queue, held.claim.messages, receipt=held.receipt) or []
        self._run.message_ids += [(held.queue, message.message_id) for message in held.messages]

    def _again(self, step: Step) -> None:
        """A task that is tried once more, elsewhere perhaps: the same receive."""
        attempts = [held for held in self._run.claims if held.attempt is not None]
        if not attempts:
            return
        held = attempts[step.which % len(attempts)]
        queue = self._call("look up", held.queue, lambda: self._slot.ledger.queue(held.queue))
        if queue is not None:
            word = held.attempt.split(" ")[1]
            self._receive_as(queue, None if word == "None" else int(word), 30, held.attempt)

    def _claim(self, step: Step) -> Held | None:
        """Some claim, mostly one of this process and recent; one of others is taken up by its receipt."""
        claims = self._run.claims
        mine = [held for held in claims if held.ledger is self._slot.ledger]
        chosen = mine[-3:] if mine and step.detail % 4 else claims
        if not chosen:
            return None
        held = chosen[step.which % len(chosen)]
        if held.ledger is self._slot.ledger:
            return held
        queue = self._call("look up", held.queue, lambda: self._slot.ledger.queue(held.queue))
        if queue is None:
            return None
        taken = self._call("claim", held.queue, lambda: queue.claim(held.receipt), receipt=held.receipt)
        if not taken:
            return None
        return Held(held.queue, held.receipt, self._slot.number, taken, self._slot.ledger, held.messages, held.attempt)

    def _act(self, step: Step, verb: str) -> None:
        held = self._claim(step)
        if held is not None:
            self._call(verb, held.queue, getattr(held.claim, verb), receipt=held.receipt)

    def _delete(self, step: Step) -> None:
        self._act(step, "delete")

    def _release(self, step: Step) -> None:
        self._act(step, "release")

    def _extend(self, step: Step) -> None:
        held = self._claim(step)
        if held is not None:
            timeout = self._luck.choice((0, 10, 30, 60))
            self._call("extend", held.queue, lambda: held.claim.extend(timeout), receipt=held.receipt)

    def _settle(self, step: Step) -> None:
        held = self._claim(step)
        if held is None:
            return
        if not held.messages:
            self._read(held)
        handles = [message.receipt_handle for message in held.messages]
        some, others = handles[::2], handles[1::2]
        if handles:
            call = lambda: held.claim.settle(delete=some, release=others)  # noqa: E731
            self._call("settle", held.queue, call, receipt=held.receipt)

    def _work(self, step: Step) -> None:
        """As a task does it: receives, takes its time, and writes."""
        queue = self._queue(step.which)
        held = queue and self._receive_as(queue, self._luck.choice((1, None, None)), 5, None)
        if held:
            self._run.scheduler.sleep(self._luck.choice((0, 0, 2_000, 4_900, 6_000)))
            self._write_for(held)

    def _write(self, step: Step) -> None:
        held = self._claim(step)
        if held is not None:
            self._write_for(held)

    def _write_for(self, held: Held) -> None:
        if not held.messages:
            self._read(held)
        chosen = held.messages if self._luck.random() < 0.7 else held.messages[::2]
        if not chosen:
            return
        ids = [message.message_id for message in chosen]
        rows = pa.table({"message_id": ids, "receipt": [held.receipt] * len(ids)})
        table, handles = OUTPUTS[self._luck.random() < 0.15], [message.receipt_handle for message in chosen]
        call = lambda: held.claim.write(rows, table, messages=handles)  # noqa: E731
        self._call("write", held.queue, call, receipt=held.receipt, attempt=held.attempt, ids=ids, table=table)

    def _restore(self, step: Step) -> None:
        if self._run.claims:
            held = self._run.claims[step.which % len(self._run.claims)]
            queue = self._call("look up", held.queue, lambda: self._slot.ledger.queue(held.queue))
            if queue is not None:
                self._call("restore", held.queue, lambda: queue.restore(held.receipt), receipt=held.receipt)

    def _lock(self, step: Step) -> None:
        if self._run.message_ids:
            name, identifier = self._run.message_ids[step.which % len(self._run.message_ids)]
            queue = self._call("look up", name, lambda: self._slot.ledger.queue(name))
            if queue is not None:
                self._call("lock", name, lambda: queue.lock(identifier, 20), message=identifier)

    def _purge(self, step: Step) -> None:
        queue = self._queue(step.which)
        if queue is not None:
            self._call("purge", queue.name, queue.purge)

    def _redrive(self, step: Step) -> None:
        queue = self._queue(step.which)
        if queue is None:
            return
        luck, names = self._luck, self._run.names
        destination = names[step.detail % len(names)] if luck.random() < 0.7 else None
        maximum = luck.choice((1, 2, None, None))
        call = lambda: queue.redrive(destination=destination, max_messages=maximum)  # noqa: E731
        self._call("redrive", queue.name, call, destination=destination)

    def _gather(self, step: Step) -> None:
        """Moves what is left of a segment in its own queue, or in the dead-letter queue, to the third one."""
        queue = self._call("look up", "dead", lambda: self._slot.ledger.queue(("left", "dead")[step.detail % 2]))
        segments = self._run.segments
        if queue is not None and segments:
            where = segments[step.which % min(3, len(segments))]
            call = lambda: queue.redrive(where=where, destination="third")  # noqa: E731
            self._call("redrive", queue.name, call, destination="third")

    def _upkeep(self, step: Step) -> None:
        self._call("upkeep", "", lambda: self._slot.ledger.upkeep(vacuum=False))

    def _delete_queue(self, step: Step) -> None:
        name = self._run.names[step.which % len(self._run.names)]
        self._call("delete_queue", name, lambda: self._slot.ledger.delete_queue(name))

    def _remake(self, step: Step) -> None:
        """Deletes a queue and makes it anew, with other Lanes."""
        self._delete_queue(step)
        name = self._run.names[step.which % len(self._run.names)]
        attributes = {**self._run.attributes[name], "Lanes": 1 + step.detail % 5}
        self._call("create_queue", name, lambda: self._slot.ledger.create_queue(name, attributes))
        self._send(step)

    def _rehouse(self, step: Step) -> None:
        """Makes a queue that never was, and moves there what another one has."""
        name = f"house-{self.client.name[-1]}-{self._number}"
        made = self._call("create_queue", name, lambda: self._slot.ledger.create_queue(name, {"Lanes": 2}))
        queue = self._queue(step.which)
        if made is not None and queue is not None and not is_fifo(self._run.attributes[queue.name]):
            call = lambda: queue.redrive(destination=name)  # noqa: E731
            self._call("redrive", queue.name, call, destination=name)
            self._run.names.append(name)
            self._run.attributes[name] = {"Lanes": "2"}

    def _settings(self, step: Step) -> None:
        queue = self._queue(step.which)
        if queue is None:
            return
        name = self._luck.choice(("VisibilityTimeout", "DelaySeconds", "MaximumMessageSize", "Policy"))
        value = json.dumps({"a": step.detail % 7}) if name == "Policy" else 2_000 + step.detail % 50
        value = 10 + step.detail % 50 if name in ("VisibilityTimeout", "DelaySeconds") else value
        changed = {name: value}
        identifier = queue.id
        call = lambda: queue.set_attributes(changed)  # noqa: E731
        self._call("settings", queue.name, call, attributes={name: str(value)}, id=identifier)

    def _wait(self, step: Step) -> None:
        with contextlib.suppress(IndexError):
            self._run.scheduler.sleep(1_000 * WAITS[step.which % len(WAITS)])
