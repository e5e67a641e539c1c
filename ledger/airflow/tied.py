"""Starts a command that ends with its parent: `python -m ledger.airflow.tied PARENT COMMAND ARGUMENT...`.

PARENT is the parent's process id. An Airflow worker that is killed by SIGKILL cannot end its children. On Linux the
kernel then sends SIGTERM to the command, which can give back its claim. On other systems the command continues.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask the kernel for the signal, and replace this process by the command. Never return."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            # The parent died before the kernel was asked.
            sys.exit(128 + signal.SIGTERM)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
