"""A process that is told to end, by SIGTERM, and one whose JVM has ended."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from traceback import walk_tb

from ledger.delta_log.protocol import reason

#: Why a claim is given back when its process is told to end.
TERMINATED = "the process was told to end (SIGTERM)"
#: Why it is when Python outlives Spark's driver.
JVM_ENDED = "Spark's JVM has ended: by a signal to the job (SIGTERM), or for want of memory"


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Turns SIGTERM, where nobody else looks at it, into SystemExit: so the claim in hand is given back."""
    mine = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not mine:
        yield
        return
    signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
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
