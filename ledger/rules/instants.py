"""The time of a ledger whose drivers have different clocks, and the repair of what a clock ahead recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from ledger.errors import ClocksDisagree
from ledger.rules.limits import MILLISECONDS
from ledger.rules.visibility import Record

#: For this many seconds, another owner's commit is evidence of the time: see `explains`.
WITNESSED = 600
_HAPPENED = ("first_received_at", "received_at", "released_at", "deleted_at")


def advance_to_last_commit(now: int, last_commit: int, maximum_skew: float) -> int:
    """Return `now`, or the instant of the last commit if that is later, so that time never goes back.

    Raises ClocksDisagree if the last commit is ahead by more than `maximum_skew` seconds. By a wrong clock, a verb
    could take messages that another process still holds.
    """
    require_alike(now, last_commit, maximum_skew, "the last commit is ahead", only_behind=True)
    return max(now, last_commit)


def require_expiry(now: int, noted_at: int, maximum_skew: float) -> None:
    """Raise ClocksDisagree if a queue's note of what has expired is ahead by more than `maximum_skew` seconds.

    By such a note, messages that are sent now could count as expired.
    """
    what = "the queue, and what has expired in it, was changed by a clock that is ahead"
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
    """Raise ClocksDisagree if `now` and `other` differ by more than `maximum_skew` seconds.

    With `only_behind`, only if `now` is earlier. `what` names `other` in words, and `bound` the source of
    `maximum_skew`.
    """
    apart = (other - now) / MILLISECONDS
    if apart > maximum_skew or (not only_behind and -apart > maximum_skew):
        repair = ". If this clock is right, `ledger repair --clock` puts right what a wrong one left" * only_behind
        raise ClocksDisagree(
            f"This machine's clock says {_text(now)}, and {what}: {_text(other)}, {abs(apart):.1f} s apart; at most "
            f"{maximum_skew} s are allowed ({bound}). Set the clock by a time server (NTP){repair}"
        )


def require_steady(now: int, expected: int, maximum_skew: float) -> None:
    """Raise ClocksDisagree if a clock differs from `expected` by more than `maximum_skew` seconds.

    `expected` is the last reading of the clock, plus the time since then.
    """
    apart = (now - expected) / MILLISECONDS
    if abs(apart) > maximum_skew:
        raise ClocksDisagree(
            f"This machine's clock says {_text(now)}, and by the time that passed since it was read last it should say "
            f"{_text(expected)}, {abs(apart):.1f} s apart; at most {maximum_skew} s are allowed (setting "
            "maximum_clock_skew). Set the clock by a time server (NTP). If it is right now, because it was wrong "
            "before or because the machine slept, open the ledger anew"
        )


def explains(commit_instants: Iterable[int], now: int, expected: int, maximum_skew: float) -> bool:
    """Return whether another owner's commits explain that a clock says `now`, later than `expected`.

    A commit explains the step if it is later than `expected` by more than the skew, and close to `now`.
    """
    skew = round(maximum_skew * MILLISECONDS)
    recent = now - WITNESSED * MILLISECONDS
    return any(max(expected + skew, recent) < at <= now + skew for at in commit_instants)


def contradicts(commit_instants: Iterable[int], at: int, maximum_skew: float) -> bool:
    """Return whether a commit that came after the note of an instant `at` is dated much earlier than `at`."""
    return any(other < at - round(maximum_skew * MILLISECONDS) for other in commit_instants)


def put_back(
    record: Record, latest: int, now: int, skew: int, longest: int, arrivals: Mapping[int, int] | None = None
) -> Record:
    """Return the record of a message as a right clock would have made it, as far as possible.

    No hold ends early: only a deadline that no right clock could have set is changed. An arrival that is ahead by at
    most `skew` stays, because it is a place in an order.

    Args:
        latest: The instant of the last commit to the message's lane, ahead of `now`. All times are in milliseconds.
        longest: The longest hold that the queue allows.
        arrivals: The new values of arrivals that are ahead. The default is `now`.
    """
    visible = record.visible_at
    if record.received_at is not None and record.received_at > now + skew and visible is not None:
        visible = now + max(0, visible - record.received_at)
    elif visible is not None and visible > now + longest + skew:
        visible = max(now, visible - (latest - now))
    events = {name: getattr(record, name) for name in _HAPPENED}
    arrived = record.enqueued_at
    if arrived is not None and arrived > now + skew:
        arrived = (arrivals or {}).get(arrived, now)
    return record._replace(
        visible_at=visible, enqueued_at=arrived, **{name: at and min(at, now) for name, at in events.items()}
    )


def _text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / MILLISECONDS, timezone.utc).isoformat(timespec="milliseconds")
