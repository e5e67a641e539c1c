"""KeyboardInterrupt at any place where Python looks for signals: behind each call, at each entry and each jump back."""

from __future__ import annotations

import contextlib
import dis
import fcntl
import itertools
import os
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from functools import cache
from pathlib import Path

import ledger

#: Behind these a signal's handler may run.
LOOKING = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "CALL_FUNCTION", "CALL_METHOD"}
#: Where that counts: the ledger, and what runs its contexts.
TRACED = (str(Path(ledger.__file__).parent), contextlib.__file__)
#: Python's threads and pools.
THREADS = (threading.__file__, str(Path(futures.__file__).parent))


class Interrupt(BaseException):
    """As KeyboardInterrupt, which would end the tests."""


@cache
def _code(code) -> bytes:
    return code.co_code


class Interrupter:
    """Interrupts a function at the `number`-th place; `at` says where that was, None: it has fewer. Places are in files
    whose paths begin with one of TRACED, or of `more`."""

    def __init__(self, number: int, *more: str) -> None:
        self.at: str | None = None
        self._number, self._places, self._traced = number, itertools.count(1), (*TRACED, *more)
        self._before: dict[int, str] = {}

    def run(self, function: Callable[[], object]) -> tuple[object, BaseException | None]:
        """What the function returned, and what ended it: with its traceback, as a notebook keeps it."""
        sys.settrace(self._trace)
        try:
            answer = function()
        except Interrupt as interrupt:
            return None, interrupt
        finally:
            sys.settrace(None)
        return answer, None

    def _trace(self, frame, event, argument):
        if event == "call":
            if not frame.f_code.co_filename.startswith(self._traced):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._before[id(frame)] = "RESUME"
        elif event == "opcode":
            looks = self._before.get(id(frame)) in LOOKING
            self._before[id(frame)] = dis.opname[_code(frame.f_code)[frame.f_lasti]]
            if looks and self.at is None and next(self._places) == self._number:
                self.at = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                raise Interrupt
        return self._trace


def locked_files(folder: Path) -> list[str]:
    """The lock files that somebody holds now."""
    held = []
    for path in sorted([*folder.glob("*.gate"), *folder.glob("*.turn")]):
        probe = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.append(path.name)
        finally:
            os.close(probe)
    return held
