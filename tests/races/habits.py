"""What wanderers do and how often: everything on all queues, or what is likely to break one promise, on few of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Habits:
    """`queues`: patterns of names, and how often they are taken; steps and acts by their weights; how large a share of
    the claims is slept over until the lease is about to end, and is acted on twice; how many messages are claimed or
    moved."""

    queues: Mapping[str, float]
    steps: Mapping[str, float]
    acts: Mapping[str, float]
    oversleeping: float = 0.2
    twice: float = 0.2
    most: tuple[int, ...] = (1, 1, 2, 5, 10)


STEPS = {"send": 4, "work": 9, "move": 3, "lock": 1, "bring_back": 1, "replay": 1}
ACTS = {"delete": 7, "release": 5, "write": 5, "forget": 3, "delete_all": 1, "release_all": 1}
HABITS = {
    "everything": Habits({"*.fifo": 4, "newborn-*": 1, "[!n]*": 3, "[ns]o*": 2}, STEPS, ACTS),
    # Several queues, of different lanes, feed a third one and a fourth one, a message at a time.
    "feeding": Habits(
        {"north": 4, "south": 4, "third": 6, "dead": 1},
        {"send": 1, "work": 8, "move": 10},
        {"delete": 2, "release": 5, "forget": 1},
        oversleeping=0.0,
        most=(1, 1, 1, 2),
    ),
    # Receivers of FIFO queues, also of one ledger, while others send.
    "ordered": Habits(
        {"north.fifo": 5, "third.fifo": 2, "dead.fifo": 1},
        {"send": 6, "work": 10, "move": 1},
        {"delete": 10, "release": 3, "forget": 1},
        oversleeping=0.05,
        most=(1, 2, 5),
    ),
    # Claims that write their output, late, and again, and elsewhere.
    "writing": Habits(
        {"fourth": 3, "narrow": 1},
        {"send": 3, "work": 10, "replay": 2},
        {"write": 10, "delete": 2, "release": 2},
        oversleeping=0.4,
        twice=0.4,
        most=(1, 2, 3),
    ),
}
