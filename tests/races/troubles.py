"""What happens to processes: they die at a step of a verb, or are stopped there and go on later."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from typing import Any

from ledger import Ledger

#: Takes a process id and seconds: lets that process go on after a while.
_WAKER = "import os, signal, sys, time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), signal.SIGCONT)"


def die(step: str = "") -> None:
    """As by kill -9: nothing is flushed, nothing unwound."""
    os.kill(os.getpid(), signal.SIGKILL)


def stall(seconds: float) -> None:
    """The whole process is stopped, and goes on after so long: as by a debugger, a full disk, or a laptop's lid."""
    arguments = [sys.executable, "-S", "-E", "-c", _WAKER, str(os.getpid()), str(seconds)]
    subprocess.Popen(arguments, start_new_session=True)
    os.kill(os.getpid(), signal.SIGSTOP)


def at_steps(ledger: Ledger, listener: Any) -> None:
    """Calls `listener` with each step of each verb: chosen, committed, appending, appended, begun, written."""
    ledger.store.transactions.on_step = listener
    engine = ledger.store.engine
    append = engine.append

    def told(*arguments: Any, **keywords: Any) -> Any:
        listener("appending")
        answer = append(*arguments, **keywords)
        listener("appended")
        return answer

    engine.append = told


def now_and_then(dice: random.Random, dying: float, stalling: float, longest: float) -> Any:
    """A listener that dies, or stalls for at most `longest` seconds, at so large a share of the steps."""

    def listener(step: str) -> None:
        luck = dice.random()
        if luck < dying:
            die()
        elif luck < dying + stalling:
            stall(longest * dice.random() ** 2)

    return listener
