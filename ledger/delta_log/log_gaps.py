"""A listing of the log that misses a version: what to do about it.

A folder is listed entry by entry while others commit, so a listing may hold version 6 and not 5, though 5 was there
first. Both engines take that for a damaged log. Whoever looks once more sees 5; if it is really gone, nobody does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Read = TypeVar("Read")
#: How delta-rs and Delta on Spark say that the versions that they saw have a gap.
GAPS = ("Expected contiguous commit files", "Gap between checkpoint version", "DELTA_VERSIONS_NOT_CONTIGUOUS")
#: Seconds to wait before each further look: a damaged log is believed after a second.
PAUSES = (0.001, 0.01, 0.05, 0.1, 0.3, 0.5)


def is_gap(error: BaseException) -> bool:
    """Whether an engine's error says that a version of the log is missing."""
    return any(gap in str(error) for gap in GAPS)


def without_gaps(read: Callable[[], Read]) -> Read:
    """What `read` returns, tried again while it meets a gap. Raises what it raises."""
    for pause in PAUSES:
        try:
            return read()
        except Exception as error:
            if not is_gap(error):
                raise
        time.sleep(pause)
    return read()
