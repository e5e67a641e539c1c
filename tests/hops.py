"""How many files of the package a call passes, and how often it goes from one to another: `python -m tests.hops`.

A reader who follows a call with a debugger meets each of these hops. Only calls of the calling thread count.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TypeVar

from ledger import Ledger
from tests.sources import CHECKOUT

Answer = TypeVar("Answer")
PACKAGE = f"{CHECKOUT / 'ledger'}/"


class Passed(NamedTuple):
    """Which files a call passes, in the order of their first calls, how many functions, and the hops between files."""

    files: tuple[str, ...]
    functions: int
    hops: int


def trace(call: Callable[[], Answer]) -> tuple[Passed, Answer]:
    """Make a call; return what it has passed, and its answer."""
    files: dict[str, None] = {}
    functions: set[object] = set()
    hops, here = 0, ""

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal hops, here
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(PACKAGE) or frame.f_code.co_name.startswith("<"):
            return
        functions.add(frame.f_code)
        files.setdefault(name.removeprefix(PACKAGE))
        hops += name != here
        here = name

    sys.setprofile(note)
    try:
        answer = call()
    finally:
        sys.setprofile(None)
    return Passed(tuple(files), len(functions), hops), answer


def traced_verbs(root: str) -> dict[str, Passed]:
    """What each verb of a ledger at `root` passes when it is called for the second time."""
    queue = Ledger.open(root).create_queue("work", {"Lanes": 1})
    passed = {}
    for _ in range(2):
        passed["send"], _ = trace(lambda: queue.send("a"))
        passed["receive"], claim = trace(lambda: queue.receive(1_000_000))
        passed["extend"], _ = trace(partial(claim.extend, 60))
        passed["delete"], _ = trace(claim.delete)
    return passed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for verb, found in traced_verbs(str(Path(folder, "ledger"))).items():
            print(f"{verb}: {len(found.files)} files, {found.functions} functions, {found.hops} hops")
            if "-v" in sys.argv:
                print("   ", "\n    ".join(found.files))
