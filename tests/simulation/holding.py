"""What simulated clients do with what they hold, beyond a claim's own verbs: several receives at once, waits, lists of
receipt handles, looks whether a claim is held, heartbeats, and outputs of which a part failed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ledger.outputs.messages import give_back_each
from tests.simulation.clients import Player
from tests.simulation.facts import Key
from tests.simulation.programs import Step
from tests.simulation.run import Held
from tests.simulation.worlds import OUTPUTS


def key_of(message_id: str) -> Key:
    """The message of an id."""
    return message_id[:28], int(message_id[28:], 16)


def keys_of(claim: Any) -> list[Key]:
    """The messages of a claim, as it was granted."""
    runs = claim.grant.runs.select(["segment", "first_seq", "last_seq"]).to_pylist()
    return [(run["segment"], seq) for run in runs for seq in range(run["first_seq"], run["last_seq"] + 1)]


class Holding(Player):
    """The verbs on claims and handles that the first worlds do without."""

    def _await(self, step: Step) -> None:
        """A receive that waits for a message."""
        queue, luck = self._queue(step.which), self._luck
        if queue is None:
            return
        maximum, timeout, wait = luck.choice((1, 2, None)), luck.choice((5, 30)), luck.choice((2, 8, 20))
        call = lambda: queue.receive(maximum, timeout, wait)  # noqa: E731
        about = {"attempt": None, "maximum": maximum, "timeout": timeout, "wait": wait, "id": queue.id}
        self._take(queue, self._call("receive", queue.name, call, **about))

    def _several(self, step: Step) -> None:
        """Several receives at once."""
        queue, luck = self._queue(step.which), self._luck
        if queue is None:
            return
        requests = [(luck.choice((1, 1, 2, None)), luck.choice((5, 30))) for _ in range(luck.choice((1, 2, 3)))]
        asked: list[tuple[Any, ...]] = list(requests)
        if luck.random() < 0.4:
            asked[0] = (*asked[0], f"{queue.name} several {luck.randrange(2)}")
        call = lambda: queue.receive_many(asked)  # noqa: E731
        for claim in self._call("receive_many", queue.name, call, requests=asked, id=queue.id) or ():
            self._take(queue, claim)

    def _take(self, queue: Any, claim: Any) -> None:
        if claim:
            held = Held(queue.name, claim.receipt_id, self._slot.number, claim, self._slot.ledger)
            self._run.claims.append(held)
            self._read(held)

    def _check(self, step: Step) -> None:
        held = self._claim(step)
        if held is not None:
            self._call("check", held.queue, held.claim.check, receipt=held.receipt, keys=keys_of(held.claim))

    def _heartbeat(self, step: Step) -> None:
        """Works under a heartbeat, and ends some of the claim meanwhile, perhaps."""
        held, luck = self._claim(step), self._luck
        if held is None:
            return
        timeout, seconds, ends = luck.choice((6, 15, 30)), luck.choice((0, 4, 25, 65)), luck.random() < 0.4

        def work() -> Any:
            with held.claim.heartbeat(timeout) as heart:
                self._run.scheduler.sleep(1_000 * seconds)
                if ends:
                    verb = luck.choice(("delete", "release"))
                    self._call(verb, held.queue, getattr(held.claim, verb), receipt=held.receipt)
                    self._run.scheduler.sleep(1_000 * timeout)
            return heart

        self._call("heartbeat", held.queue, work, receipt=held.receipt, keys=keys_of(held.claim))

    def _reject(self, step: Step) -> None:
        """Makes dead letters of some of a claim at once, as a consumer does whose handler raises Reject."""
        held = self._claim(step)
        if held is None:
            return
        grant, access = held.claim.grant, held.claim.access
        runs = grant.runs if self._luck.random() < 0.5 else grant.runs.slice(0, 1)

        def reject() -> Any:
            record = access.record()
            actions = give_back_each(record.id, grant, runs, 0, None)
            return access.store.reject(record, actions, access.clock)

        self._call("reject", held.queue, reject, receipt=held.receipt)

    def _handles(self, step: Step) -> list[Any]:
        """Messages that somebody received from one queue, now or long ago, none twice under one receipt."""
        known = [held for held in self._run.claims if held.messages]
        if not known:
            return []
        name = known[step.which % len(known)].queue
        found = [message for held in known if held.queue == name for message in held.messages]
        mine = {message.receipt_handle: message for message in found}
        chosen = self._luck.sample(sorted(mine), min(len(mine), self._luck.choice((1, 2, 4))))
        return [mine[handle] for handle in chosen]

    def _on_handles(self, step: Step, verb: str) -> None:
        messages = self._handles(step)
        if not messages:
            return
        name = next(held.queue for held in self._run.claims if messages[0] in held.messages)
        queue = self._call("look up", name, lambda: self._slot.ledger.queue(name))
        if queue is None:
            return
        handles = [message.receipt_handle for message in messages]
        receipts = {held.receipt for held in self._run.claims if any(one in held.messages for one in messages)}
        about = {"receipts": receipts, "keys": [key_of(message.message_id) for message in messages]}
        if verb == "delete_many":
            self._call(verb, name, lambda: queue.delete(handles), **about)
        else:
            timeouts = [self._luck.choice((0, 5, 30)) for _ in handles]
            self._call(verb, name, lambda: queue.change_visibility(handles, timeouts), **about)

    def _delete_many(self, step: Step) -> None:
        self._on_handles(step, "delete_many")

    def _change_many(self, step: Step) -> None:
        self._on_handles(step, "change_many")

    def _fail(self, step: Step) -> None:
        """Writes what is done of a claim, and gives the rest of it back."""
        held = self._claim(step)
        if held is None:
            return
        if not held.messages:
            self._read(held)
        failed = [message for message in held.messages if self._luck.random() < 0.5]
        ids = [message.message_id for message in held.messages if message not in failed]
        rows = pa.table({"message_id": pa.array(ids, pa.string())})
        handles, timeout = [message.receipt_handle for message in failed], self._luck.choice((0, 20))
        call = lambda: held.claim.write(rows, OUTPUTS[0], failed=handles, visibility_timeout=timeout)  # noqa: E731
        keys = [key_of(message.message_id) for message in failed]
        about = {"receipt": held.receipt, "attempt": held.attempt, "ids": ids, "table": OUTPUTS[0], "failed": keys}
        if held.messages:
            self._call("write", held.queue, call, **about)
