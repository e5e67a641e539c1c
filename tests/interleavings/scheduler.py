"""Runs a few clients in every order there is: each in a thread that only goes on when the scheduler says so.

A client stops at the steps of its verb: "chosen" (it has read and decided) and "committed" (it has not answered yet;
of three clients, or beside one with `reads`, only at "chosen": what follows "committed" touches nothing, and there
would be thousands of orders). With `reads`, also each time it has read what is recorded about messages ("loaded"),
before it reads which messages there are ("looking"), and before it removes anything ("deleting"). One client moves at a
time, from stop to stop. An interleaving is the list of who moved; the next one is found by going back to a choice that
could have been another, and running everything anew on a copy of the same ledger.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger import Ledger
from ledger.errors import LedgerError
from ledger.settings import Settings
from tests.clock import FrozenClock

#: Nobody waits for a table alone: with one client standing in the middle of its turn that would be for ever.
PATIENT = Settings(losses_before_waiting=1_000)
STUCK = 60.0
Verb = Callable[[Ledger], Any]


@dataclass(frozen=True)
class Client:
    """A verb to run on a ledger of its own, by a clock that is `ahead` seconds of the others'."""

    verb: Verb
    ahead: float = 0.0
    reads: bool = False


class Player:
    """A client's thread. `answer` is what its verb answered, or the name of the error it raised."""

    def __init__(self, client: Client, number: int, root: str, clock: FrozenClock, steps: Sequence[str]) -> None:
        self.answer: Any = None
        self._steps = steps
        self._go, self._stopped = threading.Semaphore(0), queue.SimpleQueue()
        here = FrozenClock(clock.now)
        here.advance(client.ahead)
        self._ledger = Ledger.open(root, engine="delta-rs", clock=here, settings=PATIENT)
        self._ledger.store.transactions.on_step = self._stop
        if client.reads:
            self._stop_at_reads(self._ledger.store)
        self._thread = threading.Thread(target=self._play, args=(client.verb,), name=f"client {number}", daemon=True)
        self._thread.start()

    def move(self) -> bool:
        """Lets it go on to its next stop; false when it ended instead. What was no LedgerError is raised here."""
        self._go.release()
        said = self._stopped.get(timeout=STUCK)
        if isinstance(said, Exception):
            raise said
        return said != "ended"

    def _play(self, verb: Verb) -> None:
        self._go.acquire()
        try:
            self.answer = verb(self._ledger)
        except LedgerError as error:
            self.answer = type(error).__name__
        except Exception as error:
            self._stopped.put(error)
        self._stopped.put("ended")

    def _stop(self, step: str) -> None:
        if step in self._steps:
            self._stopped.put(step)
            self._go.acquire()

    def _stop_at_reads(self, store: Any) -> None:
        engine, listings = store.engine, store.listings
        load, delete, newest = engine.load, engine.delete, listings.newest

        def loading(*arguments: Any) -> Any:
            answer = load(*arguments)
            if arguments[0] == "visibility":
                self._stop("loaded")
            return answer

        def deleting(*arguments: Any) -> Any:
            self._stop("deleting")
            return delete(*arguments)

        def looking(*arguments: Any) -> Any:
            self._stop("looking")
            return newest(*arguments)

        engine.load, engine.delete, listings.newest = loading, deleting, looking


@dataclass(frozen=True)
class Outcome:
    """What an interleaving came to: the clients' answers, and a ledger to look at what is left."""

    order: tuple[int, ...]
    answers: list[Any]
    ledger: Ledger
    clock: FrozenClock

    def whereabouts(self, message_id: str) -> dict[str, str]:
        """The queues that have the message, and its status in each; nowhere: it is lost."""
        found = {}
        for one in self.ledger.list_queues():
            try:
                found[one.name] = one.peek(message_id).status.value
            except LedgerError:
                continue
        return found


def explore(
    template: Path, clock: FrozenClock, clients: Sequence[Client | Verb], check: Callable[[Outcome], None]
) -> int:
    """Checks what comes out of every interleaving of the clients on copies of a ledger; answers how many there are."""
    named = [client if isinstance(client, Client) else Client(client) for client in clients]
    ahead, count = [()], 0
    while ahead:
        prefix = ahead.pop()
        moves = _run(template, clock, named, prefix, check)
        count += 1
        for at in range(len(prefix), len(moves)):
            could, did = moves[at]
            before = tuple(who for _, who in moves[:at])
            ahead += [(*before, other) for other in could if other > did]
    return count


def _run(
    template: Path,
    clock: FrozenClock,
    clients: Sequence[Client],
    prefix: tuple[int, ...],
    check: Callable[[Outcome], None],
) -> list[tuple[list[int], int]]:
    with tempfile.TemporaryDirectory() as folder:
        root = str(shutil.copytree(template, Path(folder) / "ledger"))
        many = len(clients) > 2 or any(client.reads for client in clients)
        steps = ("chosen", "loaded", "looking", "deleting", *(() if many else ("committed",)))
        players = [Player(client, number, root, clock, steps) for number, client in enumerate(clients)]
        moves, left = [], list(range(len(players)))
        while left:
            who = prefix[len(moves)] if len(moves) < len(prefix) else left[0]
            moves.append((list(left), who))
            if not players[who].move():
                left.remove(who)
        order = tuple(who for _, who in moves)
        answers = [player.answer for player in players]
        later = FrozenClock(clock.now)
        later.advance(max(0.0, *(client.ahead for client in clients)))
        ledger = Ledger.open(root, engine="delta-rs", clock=later)
        try:
            check(Outcome(order, answers, ledger, later))
        except AssertionError as error:
            raise AssertionError(f"in the order {order}, answered {answers}: {error}") from error
        return moves
