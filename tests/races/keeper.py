"""Who runs upkeep beside everything, and makes, purges and deletes queues."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from ledger import Ledger
from tests.races.history import Log

#: At most so many queues are made that stay.
NEWBORN = 12


class Keeper:
    """Runs upkeep, or looks after the queues: each thread does one of the two."""

    def __init__(self, name: str, ledger: Ledger, folder: Path, seed: int, brittle: Sequence[str]) -> None:
        self.ledger, self.brittle, self.dice = ledger, brittle, random.Random(seed)
        self.log, self.upkeep = Log(folder / f"{name}.log", name), name.endswith("-0")

    def step(self) -> None:
        """One thing; what it may not end in is a violation."""
        try:
            if self.upkeep:
                self.ledger.upkeep(vacuum=self.dice.random() < 0.1)
            else:
                self.dice.choice([self.purge, self.make_anew, self.make_anew, self.make_one_more])()
        except Exception as error:
            self.log.began("error", to=repr(error))
        time.sleep(self.dice.uniform(0, 0.5 if self.upkeep else 1.5))

    def purge(self) -> None:
        """Empties a queue."""
        queue = self._brittle()
        operation = self.log.began("purge", queue=queue.id)
        self.log.ended(operation, count=queue.purge())

    def make_anew(self) -> None:
        """Deletes a queue with all it has, and makes it anew, perhaps with other lanes."""
        queue = self._brittle()
        operation = self.log.began("remove", queue=queue.id)
        self.ledger.delete_queue(queue.name)
        self.log.ended(operation)
        time.sleep(self.dice.choice([0, 0, 0.3]))
        self._brittle(queue.name)

    def make_one_more(self) -> None:
        """Makes a queue that stays, and moves some messages into it at once."""
        number = len(self.ledger.list_queues("newborn-"))
        if number < NEWBORN:
            queue = self.ledger.create_queue(f"newborn-{number}", {"Lanes": self.dice.choice([1, 2, 4, 7])})
            source = self.ledger.queue(self.dice.choice(["dead", "third", "north", "south"]))
            operation = self.log.began("redrive", queue=source.id, to=queue.id)
            self.log.ended(operation, count=source.redrive(None, queue.name, self.dice.choice([1, 2, 5])))

    def _brittle(self, name: str | None = None):
        """One of the queues that may be deleted; made when it is not there, which a keeper that died left so."""
        name = name or self.dice.choice(self.brittle)
        known = [queue for queue in self.ledger.list_queues(name) if queue.name == name]
        fifo = {"FifoQueue": True} if name.endswith(".fifo") else {}
        lanes = self.dice.choice([2, 3, 3]) if fifo else self.dice.choice([1, 2, 5, 8])
        return known[0] if known else self.ledger.create_queue(name, {"Lanes": lanes, **fifo})
