"""A process that is told to end, by SIGTERM, and one whose JVM has ended."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

from ledger.delta_log.protocol import reason

#: How soon a wait notices a signal.
LOOK_SECONDS = 0.25
#: Why a claim is given back when its process is told to end.
TERMINATED = "the process was told to end (SIGTERM)"
#: Why it is when Python outlives Spark's driver.
JVM_ENDED = "Spark's JVM has ended: by a signal to the job (SIGTERM), or for want of memory"


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Turns SIGTERM, where nobody else looks at it, into SystemExit: so the claim in hand is given back. An error that
    came of SIGTERM is SystemExit, too: Py4J raises any error (KeyError: 'p') on a call that was interrupted."""
    mine = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    except Exception as error:
        if is_termination(error):
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        if mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def is_termination(error: BaseException | None) -> bool:
    """Whether an error is SIGTERM's, or came of it: Py4J makes an error of its own where it was interrupted."""
    while error is not None:
        if isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM:
            return True
        error = error.__cause__ or error.__context__
    return False


def why_ended(error: BaseException) -> str:
    """Why work ended with an error, in a line."""
    if is_termination(error):
        return TERMINATED
    return JVM_ENDED if jvm_has_ended(error) else reason(error)


def jvm_has_ended(error: BaseException) -> bool:
    """Whether Spark's JVM does not answer any more, as an error shows that Py4J raised. Of `spark-submit` it is the JVM
    that a signal to the job ends first."""
    if not any(frame.f_globals.get("__name__", "").startswith("py4j.") for frame, _ in walk_tb(error.__traceback__)):
        return False
    # A JVM that answers tells of errors of its own as Py4JJavaError; Python's names of classes it no longer finds.
    lost = isinstance(error, OSError) or type(error).__name__ == "Py4JNetworkError"
    return lost or "does not exist in the JVM" in str(error)


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Hold Ctrl-C back from this thread for a moment, and from the processes that it starts until `ignore_interrupts`:
    those would end with a traceback while they import."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Have this process ignore Ctrl-C, also one that was held back until now."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class Drain:
    """Whether this process was told to end, and by which signal: `asked` is None as long as it was not."""

    def __init__(self) -> None:
        self.asked: int | None = None

    def end(self) -> None:
        """Raise the signal's own exception, if there was one: SystemExit, or KeyboardInterrupt for Ctrl-C."""
        if self.asked is not None:
            raise self._ending(self.asked)

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds, or until the process is told to end; return whether it was."""
        until = time.monotonic() + seconds
        # Python goes on with an interrupted sleep where the signal's handler raises nothing.
        while self.asked is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
        return self.asked is not None

    def on_signal(self, number: int, frame: object) -> None:
        """Note the first signal; raise the exception of the second one at once."""
        if self.asked is not None:
            raise self._ending(number)
        self.asked = number

    @staticmethod
    def _ending(number: int) -> BaseException:
        return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


@contextlib.contextmanager
def draining() -> Iterator[Drain]:
    """Have SIGTERM and Ctrl-C noted in the Drain, where this is the main thread and nobody else looks at them."""
    drain = Drain()
    usual: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    mine = threading.current_thread() is threading.main_thread()
    taken = [number for number, known in usual.items() if mine and signal.getsignal(number) is known]
    for number in taken:
        signal.signal(number, drain.on_signal)
    try:
        yield drain
    finally:
        for number in taken:
            signal.signal(number, usual[number])
