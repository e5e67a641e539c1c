"""A worker in a process of its own: `python -m tests.races.play JSON`; and how it dies in the middle of a verb."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from ledger import Ledger
from ledger.rules import limits
from tests.races.roles import Roles
from tests.races.troubles import at_steps, die


def die_at(ledger: Ledger, at: str) -> None:
    """Makes this process die at a step of its next verb: chosen, committed, and for sends appending or appended."""
    at_steps(ledger, lambda step: die() if step == at else None)


def doomed(worker: Roles, ledger: Ledger, verb: str, at: str) -> None:
    """Claims under the attempt id "job" and dies in the middle of a verb."""
    queue = worker.queue
    if verb == "send":
        die_at(ledger, at)
        queue.send([f"sent {n}" for n in range(20)], attempt_id="job")
    elif verb == "receive":
        die_at(ledger, at)
        queue.receive(None, 60, attempt_id="job")
    else:
        claim = queue.receive(None, 60, attempt_id="job")
        handles = [message.receipt_handle for message in claim]
        die_at(ledger, at)
        if verb == "delete":
            claim.delete()
        else:
            claim.settle(delete=handles[::2], release=handles[1::2])


def main(config: dict[str, Any]) -> None:
    """Plays what `config` says; prints how it went."""
    if "quota" in config:
        limits.MAXIMUM_IN_FLIGHT = limits.MAXIMUM_IN_FLIGHT_FIFO = config["quota"]
    ledger = Ledger.open(config["root"], engine="delta-rs")
    worker = Roles(
        config["name"], ledger.queue(config["queue"]), Path(config["folder"]), config["seed"], config.get("timeout", 5)
    )
    if config["role"] == "doomed":
        doomed(worker, ledger, config["verb"], config["at"])
        return
    # All begin together.
    time.sleep(max(0.0, config["start"] - time.time()))
    print(json.dumps(worker.run(config["role"], config["seconds"])))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
