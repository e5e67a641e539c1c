"""Several processes (children) that consume one queue, and the parent process that starts and ends them.

Each child opens the ledger and runs a Consumer. Through a pipe it reports its counts, its log lines, the groups that
its handler closed (see `group_limits.ClosedGroups`), and the exception that ended it. The parent passes closed groups
on to the other children. After a signal, or after a child has raised, the parent tells all children to end. If the
parent has ended, its children drain.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from ledger.client.access import Access
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.results import Consumed
from ledger.rules.attempts import Share
from ledger.runtime.progress import Meter
from ledger.runtime.termination import (
    ONE_SIGNAL_SECONDS,
    draining,
    ignore_interrupts,
    interrupts_held_back,
    is_termination,
)
from ledger.work.claim_source import STORED_STATES
from ledger.work.consumer import Consumer
from ledger.work.tasks import Consumption, ignore, log

LOOK_SECONDS = 0.1
END, CLOSED, PROGRESS, STEP, WARNING, RAISED = "end", "closed", "progress", "step", "warning", "raised"
#: How a child ends: it drains, or gives back all messages without a drain.
DRAIN, AT_ONCE = "drain", "at once"


def consume(access: Access, options: Consumption, bar: bool | None) -> Consumed:
    counts = access.store.counts(access.record(), access.clock).by_status
    meter = Meter("messages", sum(counts.get(status, 0) for status in STORED_STATES), options.say, show=bar)
    options = replace(options, on_progress=lambda done: meter.update(done.messages, done.failed, done.cost))
    with limits_folder(options) as folder:
        options = replace(options, limits_folder=folder)
        consumer = Consumer(access, options) if options.processes == 1 else ConsumerProcesses(access, options)
        with meter:
            done = consumer.run()
        if done.parked:
            options.warn(
                f"{done.parked:,} messages are parked: hidden for {options.park:,} seconds since they failed. The view "
                f"in_flight has their reasons; `ledger release {access.name} --postponed` makes them visible at once"
            )
        return done


@contextlib.contextmanager
def limits_folder(options: Consumption) -> Iterator[str | os.PathLike[str] | None]:
    """Yield the folder in which processes share the limits of groups: the caller's, or a temporary one."""
    if options.group_limits is None or options.limits_folder is not None:
        yield options.limits_folder
        return
    with tempfile.TemporaryDirectory(prefix="ledger-limits-") as folder:
        yield folder


class ConsumerProcesses:
    def __init__(self, access: Access, options: Consumption) -> None:
        require_importable(options.handler)
        self._reopen, self._options = require_reopenable(access), options
        # Raises the errors of wrong arguments before a process is started.
        Consumer(access, options)
        self._context = multiprocessing.get_context("spawn")
        self._children: dict[Connection, _Child] = {}
        self._done: dict[int, Consumed] = {}
        self._raised: list[BaseException] = []
        #: How many children were killed or failed, and how many a SIGTERM ended that is not the parent's.
        self._killed = self._ended = 0
        self._has_sent_end = False

    def run(self) -> Consumed:
        """Run the children until all have ended; return the sum of their counts.

        Raises:
            Exception: The first exception that a child reported.
            LedgerError: Each child was killed, was ended by SIGTERM, or failed without a report.
            SystemExit, KeyboardInterrupt: A signal told this process to end.
        """
        with draining() as drain:
            try:
                for number in range(self._options.processes):
                    self._start(number)
                while self._children:
                    self._listen_once()
                    if (drain.asked or self._raised) and not self._has_sent_end:
                        self._has_sent_end = True
                        self._tell_all((END, DRAIN))
            except BaseException:
                self._has_sent_end = True
                self._tell_all((END, AT_ONCE))
                raise
            finally:
                # A child may wait until the parent reads its pipe, so read until all have ended.
                while self._children:
                    self._listen_once()
            drain.end()
        if self._raised:
            raise self._raised[0]
        if self._killed + self._ended == self._options.processes:
            back = "They gave their messages back"
            if self._killed:
                back = f"The messages of {self._killed:,} of them come back when their lease ends"
            raise LedgerError(
                f"All {self._options.processes} processes were killed, ended or failed. {back}; start again"
            )
        return self._sum_counts()

    def _start(self, number: int) -> None:
        own_end, child_end = self._context.Pipe()
        options = replace(
            self._options,
            processes=1,
            share=Share(number, self._options.processes),
            # Functions that can be pickled. `_run_child` replaces them.
            say=log.info,
            warn=log.warning,
            on_progress=ignore,
        )
        # No daemon: a child may start processes of its own.
        process = self._context.Process(
            target=_run_child, args=(child_end, self._reopen, options), name=f"consumer {number}"
        )
        # If `process.start` started the resource tracker, interrupts would be unblocked.
        resource_tracker.ensure_running()
        with interrupts_held_back():
            process.start()
        child_end.close()
        self._children[own_end] = _Child(number, process)

    def _listen_once(self) -> None:
        for connection in wait(list(self._children), LOOK_SECONDS):
            assert isinstance(connection, Connection)
            self._listen(connection)

    def _listen(self, connection: Connection) -> None:
        child = self._children[connection]
        try:
            kind, *values = connection.recv()
        except (EOFError, OSError):
            del self._children[connection]
            connection.close()
            self._note_end(child)
            return
        if kind == PROGRESS:
            (self._done[child.number],) = values
            self._options.on_progress(self._sum_counts())
        elif kind == STEP:
            self._options.say(f"process {child.number}: {values[0]}")
        elif kind == WARNING:
            self._options.warn(f"process {child.number}: {values[0]}")
        elif kind == CLOSED:
            self._tell_all((CLOSED, *values), but=connection)
        elif kind == RAISED:
            child.has_raised = True
            self._raised.append(values[0])

    def _note_end(self, child: _Child) -> None:
        child.process.join()
        code = child.process.exitcode or 0
        if (
            code == 0
            or child.has_raised
            or (self._has_sent_end and abs(code) in (signal.SIGTERM, 128 + signal.SIGTERM))
        ):
            return
        if code == 128 + signal.SIGTERM:
            self._ended += 1
            how = "was ended by SIGTERM, and gave its messages back"
        else:
            self._killed += 1
            how = f"was killed by signal {-code}" if code < 0 else f"ended with the exit code {code}"
            how += ": its messages come back when their lease ends"
        self._options.warn(
            f"process {child.number} (pid {child.process.pid}) {how}. "
            f"{len(self._children)} of {self._options.processes} processes go on"
        )

    def _tell_all(self, message: tuple[Any, ...], but: Connection | None = None) -> None:
        for connection in list(self._children):
            with contextlib.suppress(OSError):
                if connection is not but:
                    connection.send(message)

    def _sum_counts(self) -> Consumed:
        return functools.reduce(Consumed.and_then, self._done.values(), Consumed())


@dataclass
class _Child:
    number: int
    process: Any
    has_raised: bool = False


def require_reopenable(access: Access) -> Callable[[], Access]:
    bound = "Other processes cannot open it: it is in memory, read-only, through Spark, or has a clock of its own"
    reopen = access.reopen
    try:
        pickle.dumps(reopen)
    except Exception:
        reopen = None
    if reopen is None:
        raise InvalidParameterValue(
            "processes", "the ledger", bound, "Open it on Delta tables by delta-rs; or processes=1."
        )
    return reopen


def require_importable(handler: Any) -> None:
    fix = "Define it at the top level of a module that can be imported, and give that function; or processes=1."
    name = getattr(handler, "__qualname__", type(handler).__name__)
    try:
        pickle.dumps(handler)
    except Exception as error:
        bound = f"Another process cannot import it ({error})"
        raise InvalidParameterValue("handler", name, bound, fix) from None
    main = sys.modules.get("__main__")
    if getattr(handler, "__module__", None) == "__main__" and not getattr(main, "__file__", None):
        bound = "It is defined in a prompt or a notebook, and another process cannot import it"
        raise InvalidParameterValue("handler", name, bound, fix)


def _run_child(connection: Connection, reopen: Callable[[], Access], options: Consumption) -> None:
    # Ctrl-C reaches every process of a terminal, and only the parent reacts to it.
    ignore_interrupts()
    lock = threading.Lock()

    def tell(what: tuple[Any, ...]) -> None:
        # The listening thread notices the end of the parent.
        with lock, contextlib.suppress(OSError):
            connection.send(what)

    options = replace(
        options,
        say=lambda step: tell((STEP, step)),
        warn=lambda line: tell((WARNING, line)),
        on_progress=lambda done: tell((PROGRESS, done)),
    )
    try:
        consumer = Consumer(reopen(), options)
        consumer.closed.on_close = lambda group, until: tell((CLOSED, group, until))
        listener = threading.Thread(target=_listen, args=(connection, consumer), daemon=True, name="ledger-parent")
        listener.start()
        consumer.run()
    except BaseException as error:
        if is_termination(error):
            raise
        # A SystemExit that the handler raised is a failure, too.
        tell((RAISED, _make_picklable(error)))
        sys.exit(1)


def _listen(connection: Connection, consumer: Consumer) -> None:
    """Read the parent's messages and obey them, in a thread of a child.

    An END, or the end of the parent, drains the child by SIGTERM, unless a signal has begun a drain. END with AT_ONCE
    also ends the drain, as a second signal does.
    """
    while True:
        try:
            kind, *values = connection.recv()
        except (EOFError, OSError):
            if not consumer.is_draining:
                os.kill(os.getpid(), signal.SIGTERM)
            return
        if kind == CLOSED:
            consumer.closed.close(*values)
            continue
        if not consumer.is_draining:
            os.kill(os.getpid(), signal.SIGTERM)
        (how,) = values
        if how == AT_ONCE:
            # Two signals that come together are one signal.
            while not consumer.is_draining:
                time.sleep(ONE_SIGNAL_SECONDS)
            time.sleep(ONE_SIGNAL_SECONDS)
            os.kill(os.getpid(), signal.SIGTERM)


def _make_picklable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return LedgerError(f"{type(error).__name__}: {error}")
