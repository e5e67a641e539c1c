"""Drivers disagree about the time: what is taken for now, beside commits that others made by their own clocks."""

from __future__ import annotations

from datetime import datetime, timezone

from ledger.errors import ClocksDisagree
from ledger.rules.limits import MILLISECONDS


def not_before(now: int, last_commit: int, maximum_skew: float) -> int:
    """`now`, but never before the last commit: time in a ledger only moves on.

    Raises ClocksDisagree when that commit is further ahead than `maximum_skew` seconds: then either clock is wrong,
    and a verb by this one could take over what another still holds.
    """
    require_alike(now, last_commit, maximum_skew, "the last commit is ahead", only_behind=True)
    return max(now, last_commit)


def require_alike(now: int, other: int, maximum_skew: float, what: str, *, only_behind: bool = False) -> None:
    """Raises ClocksDisagree when this clock (`now`) and another are further apart than `maximum_skew` seconds."""
    apart = (other - now) / MILLISECONDS
    if apart > maximum_skew or (not only_behind and -apart > maximum_skew):
        raise ClocksDisagree(
            f"This machine's clock says {_text(now)}, and {what}: {_text(other)}, {abs(apart):.1f} s apart; at most "
            f"{maximum_skew} s are allowed (setting maximum_clock_skew). Set the clock by a time server (NTP)"
        )


def _text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / MILLISECONDS, timezone.utc).isoformat(timespec="milliseconds")
