"""The process of an Airflow task: the task logs what the process prints, and the process ends with the task.

This module imports nothing of Airflow.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence


class TaskProcess:
    """A command with its children, in a process group of its own. `say` gets each line that they print."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        tied = [sys.executable, "-m", "ledger.airflow.tied", str(os.getpid()), *command]
        self._process = subprocess.Popen(
            tied,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **environment},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(say,), name="ledger-task-output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, grace: float) -> int:
        """Wait until the command ends, then end its children. Return the command's exit code, negative for a signal.

        The children have `grace` seconds, and are then killed: a killed spark-submit leaves its driver, which gives its
        claim back.
        """
        code = self._process.wait()
        give_up = time.monotonic() + grace
        alive = self._signal(signal.SIGTERM)
        while alive and time.monotonic() < give_up:
            time.sleep(0.05)
            alive = self._signal(0)
        self._signal(signal.SIGKILL)
        self._reader.join()
        return code

    def terminate(self, grace: float) -> None:
        """Send SIGTERM to the command, and return. Kill it after `grace` seconds."""
        if self._process.poll() is None:
            self._process.terminate()
            killer = threading.Timer(grace, self._process.kill)
            killer.daemon = True
            killer.start()

    def _signal(self, number: int) -> bool:
        """Send a signal to the remaining processes of the group. Return whether there are any."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True

    def _read(self, say: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            say(line.rstrip())
