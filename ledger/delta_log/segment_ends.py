"""Where a writer believes that its open segments end: an append that extends one is refused where it does not.

A segment has one writer, which numbers its messages. But a writer may be there twice without knowing: in a forked
process and its parent, or in a snapshot of a machine that was resumed twice. Both would give out the same ordinals. So
an append names the last ordinal that its writer knows, and commits only while the log tells the same: the first of the
two goes on, and the other one begins a new segment.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.delta_log.followed import Files
from ledger.delta_log.protocol import SegmentEnd, SegmentTaken


def require_ends(files: Files, ends: Sequence[SegmentEnd]) -> None:
    """Raises SegmentTaken where the newest files of `messages` do not end as the writer of a segment knows them."""
    for end in ends:
        there = files.of((end.queue, str(end.lane), end.segment))
        last = files.statistics.last_ordinal(end.segment) if there and files.statistics is not None else None
        # Of files without statistics nobody knows where they end.
        if last != end.last or (there and last is None):
            raise SegmentTaken(f"the segment {end.segment} ends at {last}, and this writer left it at {end.last}")


def require_new(ends: Sequence[SegmentEnd]) -> None:
    """Raises SegmentTaken where an append extends a segment: for engines' queries, which do not look at its end."""
    for end in ends:
        if end.last is not None:
            raise SegmentTaken(f"nobody looks where the segment {end.segment} ends: the table was altered")
