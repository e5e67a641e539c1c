"""The end of a process by SIGTERM or Ctrl-C, and the end of its JVM."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

from ledger.delta_log.protocol import reason

LOOK_SECONDS = 0.25
#: Signals that come this soon after the first are one signal with it, as several SIGTERMs of the kernel are (see
#: `_raise_exit`).
ONE_SIGNAL_SECONDS = 0.05
#: How long what the second signal began, such as a release, is not interrupted by further ones.
ENDING_SECONDS = 10
#: Reasons for the release of a claim.
TERMINATED_REASON = "the process was told to end (SIGTERM)"
JVM_ENDED_REASON = "Spark's JVM has ended: by a signal to the job (SIGTERM), or for want of memory"


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into SystemExit during the block, so that the block can release a held claim.

    While the block handles the SystemExit, further SIGTERMs change nothing.

    Only the main thread handles the signal, and only if no other code does. In any thread, an error that the SystemExit
    caused becomes a SystemExit again: Py4J may turn it into any error.
    """
    is_unhandled = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_unhandled:
        signal.signal(signal.SIGTERM, _raise_exit)
    try:
        yield
    except Exception as error:
        if is_termination(error):
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        if is_unhandled:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise_exit(number: int, frame: object) -> None:
    # A further SIGTERM must not interrupt the release. The kernel sends several to a child (PR_SET_PDEATHSIG) if a
    # parent that has threads is killed: one for each thread whose end gives the child another parent. But if the error
    # of an earlier one was lost (in a fork, see `threads`), nothing handles it, and this one ends the block.
    if not is_termination(sys.exc_info()[1]):
        raise SystemExit(128 + number)


def is_termination(error: BaseException | None) -> bool:
    """Return whether an error is the SystemExit of SIGTERM, or has it among its causes."""
    return any(map(_is_exit_by_sigterm, _list_causes(error)))


def was_interrupted(error: BaseException | None) -> bool:
    """Return whether SIGTERM or Ctrl-C caused an error.

    An interrupt in `threading.Condition.wait` can become a RuntimeError, "release unlocked lock".
    """
    return any(isinstance(cause, KeyboardInterrupt) or _is_exit_by_sigterm(cause) for cause in _list_causes(error))


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_exit_by_sigterm(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code == 128 + signal.SIGTERM


def describe_end(error: BaseException) -> str:
    if is_termination(error):
        return TERMINATED_REASON
    return JVM_ENDED_REASON if has_jvm_ended(error) else reason(error)


def has_jvm_ended(error: BaseException) -> bool:
    """Return whether an error comes from Py4J and shows that Spark's JVM no longer answers.

    Under `spark-submit`, a signal to the job ends the JVM before Python.
    """
    if not any(frame.f_globals.get("__name__", "").startswith("py4j.") for frame, _ in walk_tb(error.__traceback__)):
        return False
    # Without a JVM, Py4J cannot connect, or finds no class by its name.
    lost = isinstance(error, OSError) or type(error).__name__ == "Py4JNetworkError"
    return lost or "does not exist in the JVM" in str(error)


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Hold Ctrl-C back from this thread. Processes that it starts inherit this, until they call `ignore_interrupts`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Make this process ignore Ctrl-C, even a Ctrl-C that was held back until now."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class Drain:
    """Notes the first signal that tells this process to end. `asked` is its number."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self._asked_at = self._raised_at = -math.inf

    def end(self) -> None:
        if self.asked is not None:
            raise self._make_exception(self.asked)

    def wait(self, seconds: float) -> bool:
        """Wait for some seconds, or until the process is told to end. Return whether it was told."""
        until = time.monotonic() + seconds
        # After a signal whose handler raises nothing, Python continues a sleep.
        while self.asked is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
        return self.asked is not None

    def on_signal(self, number: int, frame: object) -> None:
        """Note the first signal. For a later signal, raise its exception at once, unless an earlier one is handled."""
        now = time.monotonic()
        if self.asked is None:
            self.asked, self._asked_at = number, now
        elif now - self._asked_at >= ONE_SIGNAL_SECONDS and not self._is_ending(now):
            self._raised_at = now
            raise self._make_exception(number)

    def _is_ending(self, now: float) -> bool:
        return was_interrupted(sys.exc_info()[1]) and now - self._raised_at < ENDING_SECONDS

    @staticmethod
    def _make_exception(number: int) -> BaseException:
        return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


@contextlib.contextmanager
def draining() -> Iterator[Drain]:
    """Note SIGTERM and Ctrl-C in the Drain, in the main thread and if no other code handles them."""
    drain = Drain()
    usual: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    is_main_thread = threading.current_thread() is threading.main_thread()
    taken = [number for number, handler in usual.items() if is_main_thread and signal.getsignal(number) is handler]
    for number in taken:
        signal.signal(number, drain.on_signal)
    try:
        yield drain
    finally:
        for number in taken:
            signal.signal(number, usual[number])
