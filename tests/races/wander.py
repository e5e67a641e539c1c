"""A process of several wanderers, or of upkeep: `python -m tests.races.wander JSON`."""

from __future__ import annotations

import json
import random
import sys
import threading
from pathlib import Path
from typing import Any

from ledger import Ledger, Settings
from ledger.rules import limits
from ledger.store.delta.commit.locks import NoLock
from tests.races.habits import HABITS
from tests.races.keeper import Keeper
from tests.races.troubles import at_steps, now_and_then
from tests.races.wanderer import Wanderer

#: What was acknowledged is forgotten soon, and segments end soon, so that upkeep has something to drop.
SETTINGS = Settings(keep_deleted_receipts=3, open_segment_seconds=3)


def open_ledger(config: dict[str, Any], dice: random.Random) -> Ledger:
    """The ledger, in this process's own way; without `locks` as on storage where there are none."""
    ledger = Ledger.open(config["root"], engine="delta-rs", settings=SETTINGS)
    if not config["locks"]:
        ledger.store.transactions.locks = dict.fromkeys(ledger.store.transactions.locks, NoLock())
    at_steps(ledger, now_and_then(dice, config["dying"], config["stalling"], config["longest"]))
    return ledger


def main(config: dict[str, Any]) -> None:
    """Wanders until the world says that it is over."""
    limits.MAXIMUM_IN_FLIGHT = limits.MAXIMUM_IN_FLIGHT_FIFO = config["quota"]
    process, incarnation, folder = config["name"], config["incarnation"], Path(config["folder"])
    dice = random.Random(f"{process}.{incarnation}")
    ledgers = [open_ledger(config, dice) for _ in range(1 if config["shared"] else config["threads"])]
    ready, end = threading.Barrier(config["threads"]), Path(config["end"])

    def wander(thread: int) -> None:
        ledger = ledgers[thread % len(ledgers)]
        name, seed = f"{process}.{incarnation}-{thread}", dice.randrange(1 << 30)
        if config["role"] == "keeper":
            step = Keeper(name, ledger, folder, seed, config["brittle"]).step
        else:
            outputs, habits = Path(config["outputs"]), HABITS[config["habits"]]
            worker = Wanderer(name, ledger, folder, outputs, seed, config["timeout"], config["brittle"], habits)
            worker.recover(folder / f"{process}.{incarnation - 1}-{thread}.log")
            step = worker.wander_on
        ready.wait()
        while not end.exists():
            step()

    threads = [threading.Thread(target=wander, args=(number,)) for number in range(config["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
