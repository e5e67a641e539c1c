"""Drivers disagree about the time: what is taken for now, beside commits that others made by their own clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from ledger.errors import ClocksDisagree
from ledger.rules.limits import MILLISECONDS
from ledger.rules.state import Record

#: So long ago a commit of another owner still tells what time it is, in seconds.
WITNESSED = 600
#: The instants of a record that tell of what has happened.
_HAPPENED = ("first_received_at", "received_at", "released_at", "deleted_at")


def not_before(now: int, last_commit: int, maximum_skew: float) -> int:
    """`now`, but never before the last commit: time in a ledger only moves on.

    Raises ClocksDisagree when that commit is further ahead than `maximum_skew` seconds: then either clock is wrong,
    and a verb by this one could take over what another still holds.
    """
    require_alike(now, last_commit, maximum_skew, "the last commit is ahead", only_behind=True)
    return max(now, last_commit)


def require_expiry(now: int, noted_at: int, maximum_skew: float) -> None:
    """Raises ClocksDisagree when a clock that is further ahead than `maximum_skew` seconds may have noted what had
    expired in a queue, at the instant `noted_at`: by that, what is sent now may have expired."""
    what = "the queue was changed by a clock that is ahead, and with it what has expired"
    require_alike(now, noted_at, maximum_skew, what, only_behind=True)


def require_alike(
    now: int,
    other: int,
    maximum_skew: float,
    what: str,
    *,
    only_behind: bool = False,
    bound: str = "setting maximum_clock_skew",
) -> None:
    """Raises ClocksDisagree when this clock (`now`) and another are further apart than `maximum_skew` seconds, which
    are this `bound`."""
    apart = (other - now) / MILLISECONDS
    if apart > maximum_skew or (not only_behind and -apart > maximum_skew):
        repair = ". If this clock is right, `ledger repair --clock` puts right what a wrong one left" * only_behind
        raise ClocksDisagree(
            f"This machine's clock says {_text(now)}, and {what}: {_text(other)}, {abs(apart):.1f} s apart; at most "
            f"{maximum_skew} s are allowed ({bound}). Set the clock by a time server (NTP){repair}"
        )


def require_steady(now: int, expected: int, maximum_skew: float) -> None:
    """Raise ClocksDisagree when a clock says `now`, and by the time that passed since it was read last should say
    `expected`, and the two are further apart than `maximum_skew` seconds."""
    apart = (now - expected) / MILLISECONDS
    if abs(apart) > maximum_skew:
        raise ClocksDisagree(
            f"This machine's clock says {_text(now)}, and by the time that passed since it was read last it should say "
            f"{_text(expected)}, {abs(apart):.1f} s apart; at most {maximum_skew} s are allowed (setting "
            "maximum_clock_skew). Set the clock by a time server (NTP). If it is right now, because it was wrong "
            "before or because the machine slept, open the ledger anew"
        )


def explains(others: Iterable[int], now: int, expected: int, maximum_skew: float) -> bool:
    """Whether commits of others, at the instants `others`, explain that a clock says `now` and not `expected`.

    They explain a step forward only: one of them is beyond what was expected, and not long before `now`. A commit from
    before a step back has the same instant as one from after it, and so proves nothing.
    """
    skew = round(maximum_skew * MILLISECONDS)
    recent = now - WITNESSED * MILLISECONDS
    return any(max(expected + skew, recent) < at <= now + skew for at in others)


def contradicts(others: Iterable[int], at: int, maximum_skew: float) -> bool:
    """Whether commits that landed after the instant `at` was noted say that it is in their future: then it was noted
    by a clock that was ahead, or theirs are behind."""
    return any(other < at - round(maximum_skew * MILLISECONDS) for other in others)


def put_back(
    record: Record, latest: int, now: int, skew: int, longest: int, arrivals: Mapping[int, int] | None = None
) -> Record:
    """Return what is recorded about a message, as a right clock had recorded it; milliseconds.

    `latest` is the time of its lane, ahead of `now`, and `longest` the longest hold of its queue. What happened in the
    future happened now. A hold that began in the future begins now. A deadline that is further away than any hold lasts
    comes back by as much as the lane does. A nearer one may be right, and stays: no lease ends early. An arrival that
    is no further ahead than clocks may be stays, too: it is a place in an order. One that is becomes what `arrivals`
    has for it, else now.
    """
    visible = record.visible_at
    if record.received_at is not None and record.received_at > now + skew and visible is not None:
        visible = now + max(0, visible - record.received_at)
    elif visible is not None and visible > now + longest + skew:
        visible = max(now, visible - (latest - now))
    known = {name: getattr(record, name) for name in _HAPPENED}
    arrived = record.enqueued_at
    if arrived is not None and arrived > now + skew:
        arrived = (arrivals or {}).get(arrived, now)
    return record._replace(
        visible_at=visible, enqueued_at=arrived, **{name: at and min(at, now) for name, at in known.items()}
    )


def _text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / MILLISECONDS, timezone.utc).isoformat(timespec="milliseconds")
