"""The processor time of trees of processes, which a busy machine changes less than seconds by the clock."""

from __future__ import annotations

import contextlib


class Processes:
    """What some processes, and all that they started, have done so far."""

    def __init__(self, *roots: int) -> None:
        """`roots` are the ids of the processes. Without ids, it is this process."""
        import psutil

        self._roots = [psutil.Process(root) for root in roots] or [psutil.Process()]
        self._gone = psutil.NoSuchProcess

    def cpu_seconds(self) -> float:
        """CPU seconds, those of children that have ended included."""
        seconds = 0.0
        for root in self._roots:
            for one in (root, *root.children(recursive=True)):
                with contextlib.suppress(self._gone):
                    times = one.cpu_times()
                    seconds += times.user + times.system + times.children_user + times.children_system
        return seconds
