"""Starts a command that ends with its parent: `python -m ledger.airflow.tied PARENT COMMAND ARGUMENT...`.

A worker of Airflow that is killed by SIGKILL cannot end what it started. On Linux the kernel then sends SIGTERM to the
command, which gives back what it holds; elsewhere it goes on, and its heartbeat with it. PARENT is the parent's process
id. The command takes this process's place.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Asks for the signal, and becomes the command; does not return."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            # It died before the kernel was asked.
            sys.exit(128 + signal.SIGTERM)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
