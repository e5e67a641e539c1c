"""The product under a scheduler: its pauses, its randomness and its locks become the scheduler's.

Nothing of the product is changed for it: its modules look up `time`, `random`, `secrets`, `threading` and `pause` by
name, and find those of this module while `installed`.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import queue
import random
import secrets
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

from ledger.rules import limits
from ledger.runtime import threads
from ledger.store.delta.commit.transactions import Attempts
from ledger.store.delta.model import message_runs
from ledger.store.delta.verbs.output_writes import OutputTables
from tests.simulation import background
from tests.simulation.scheduler import Scheduler
from tests.simulation.shared import noting

#: A quota that a handful of messages meets.
QUOTA = 3
_WHILE_NOBODY_RUNS = random.Random("setup")
_now: list[Scheduler | None] = [None]


def use(scheduler: Scheduler | None, seed: str = "setup") -> None:
    """From now on the product runs under this scheduler; None: under nobody's, with randomness of this seed."""
    _now[0] = scheduler
    _WHILE_NOBODY_RUNS.seed(seed)


def dice() -> random.Random:
    """The randomness of whoever runs."""
    scheduler = _now[0]
    if scheduler is None or scheduler.current is None:
        return _WHILE_NOBODY_RUNS
    return scheduler.plan.dice(scheduler.current.name)


class Time:
    """Stands for the module `time`."""

    @staticmethod
    def sleep(seconds: float) -> None:
        if _now[0] is not None:
            _now[0].sleep(seconds * 1_000)

    @staticmethod
    def monotonic() -> float:
        return 0.0 if _now[0] is None else _now[0].now / 1_000

    perf_counter = time = monotonic


class Random:
    """Stands for the module `random`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(dice(), name)


class Secrets:
    """Stands for the module `secrets`."""

    @staticmethod
    def token_hex(length: int) -> str:
        return dice().randbytes(length).hex()

    @staticmethod
    def randbelow(bound: int) -> int:
        return dice().randrange(bound)


class Mutex:
    """Stands for threading.Lock and RLock: waits through the scheduler, so that whoever holds it can go on."""

    def __init__(self, again: bool = False) -> None:
        self._again, self._holder, self._depth = again, None, 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = _now[0]
        me = "nobody" if scheduler is None else scheduler.current
        if self._depth and not (self._again and self._holder is me):
            if not blocking:
                return False
            if scheduler is None:
                raise RuntimeError("nobody will ever free this lock")
            scheduler.wait_for(self, lambda: not self._depth)
        self._holder, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth and _now[0] is not None:
            _now[0].wake(self)

    def locked(self) -> bool:
        return bool(self._depth)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


def pause(losses: int, first: float, longest: float) -> None:
    """Stands for retrying.pause: somebody else may go on, and time passes."""
    Time.sleep(dice().uniform(0.001, 0.005 * 2 ** min(losses, 6)))


def keep_output(outputs: OutputTables, table: str, version: int) -> None:
    """Stands for OutputTables._make_durable, which syncs tables on local paths."""
    outputs._engine.make_output_durable(table, version)


class AttemptsWithin(Attempts):
    """Stands for the attempts of output_tables, to commit to another table: its pauses are within a decision, which
    goes on with the clock that it has read."""

    def __iter__(self) -> Iterator[int]:
        client = None if _now[0] is None else _now[0].current
        since, looked = client and client.since, client and client.looked
        for losses in super().__iter__():
            if client is not None:
                client.since, client.looked = since, looked
            yield losses
            since, looked = client and client.since, client and client.looked


#: What the product imports only when it is needed.
_LOADED_LATE = ("ledger.store.delta.opening", "ledger.store.delta.verbs.upkeep", "ledger.store.delta.verbs.receipts")
_THREADING = types.SimpleNamespace(**{name: getattr(threading, name) for name in threading.__all__})
_THREADING.Lock, _THREADING.RLock = Mutex, lambda: Mutex(again=True)
_THREADING.Thread = background.Thread
background.scheduler = lambda: _now[0]
_QUEUE = types.SimpleNamespace(SimpleQueue=background.SimpleQueue, Empty=queue.Empty)
_STANDS_FOR = {
    **{id(time): Time, id(random): Random(), id(secrets): Secrets, id(threading): _THREADING, id(queue): _QUEUE},
    **{id(threads.start_thread): background.start_thread, id(threads.map_at_once): background.map_in_order},
}


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """The product's modules find the scheduler's time, randomness and locks, and a small quota; and no run is too few
    for a row about a set, which the few messages of a simulation would seldom come to else."""
    for name in _LOADED_LATE:
        importlib.import_module(name)
    undo = []
    for name, module in list(sys.modules.items()):
        if name != "ledger" and not name.startswith("ledger."):
            continue
        for attribute, value in list(vars(module).items()):
            other = _STANDS_FOR.get(id(value))
            if attribute == "pause" and isinstance(value, types.FunctionType):
                other = pause
            if attribute == "Attempts" and name == "ledger.store.delta.verbs.output_writes":
                other = AttemptsWithin
            if other is not None:
                undo.append((module, attribute, value))
                setattr(module, attribute, other)
    undo.append((OutputTables, "_make_durable", OutputTables._make_durable))
    OutputTables._make_durable = keep_output  # type: ignore[method-assign]
    bounds = limits.MAXIMUM_IN_FLIGHT, limits.MAXIMUM_IN_FLIGHT_FIFO
    limits.MAXIMUM_IN_FLIGHT = limits.MAXIMUM_IN_FLIGHT_FIFO = QUOTA
    most_runs, message_runs.MOST_RUNS = message_runs.MOST_RUNS, 0
    logger = logging.getLogger("ledger")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with noting(lambda: None if _now[0] is None else _now[0].current), background.noting():
            yield
    finally:
        logger.setLevel(level)
        limits.MAXIMUM_IN_FLIGHT, limits.MAXIMUM_IN_FLIGHT_FIFO = bounds
        message_runs.MOST_RUNS = most_runs
        for module, attribute, value in undo:
            setattr(module, attribute, value)
