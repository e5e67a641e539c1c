"""What `ledger doctor` says of a ledger's load: the disk, claims that hang, old messages, receipts, conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ledger.rules.limits import LEAST_FREE_BYTES

if TYPE_CHECKING:
    from ledger.store.delta.verbs.vitals import OldestClaim, Vitals

#: As `runtime.checks.Finding` takes it: the outcome, the subject, what was found, and what to do.
Judged = tuple[str, str, str, str]
#: A disk with fewer bytes free, or with room for fewer days of what is written, fills up soon.
LOW_BYTES, LOW_DAYS = 1 << 30, 2
#: A claim that is held for so many seconds is looked at: a heartbeat hides a worker that hangs.
LONG_HELD_SECONDS = 6 * 3_600
#: So many receipts make a receive some 15 ms slower (see docs/explanation/measured.md).
MANY_RECEIPTS = 20_000
#: With so many conflicts a minute verbs wait for each other most of the time.
MANY_CONFLICTS = 60


def judge_vitals(vitals: Vitals) -> Iterator[Judged]:
    """Yield what the doctor says."""
    yield _disk(vitals)
    claim = vitals.oldest_claim
    yield ("OK", "claims", "nothing is in flight", "") if claim is None else _claim(claim)
    oldest = vitals.oldest_message
    found = "none is there" if oldest is None else f"the oldest is in {oldest.queue}, sent {in_time(oldest.age)} ago"
    yield "OK", "messages", found, ""
    receipts = vitals.unjoined_receipts
    found = f"{receipts:,} of acknowledged claims that upkeep has not joined"
    if receipts > MANY_RECEIPTS:
        advice = "run `ledger upkeep` more often, with a shorter keep_deleted_receipts in its settings"
        yield "WARN", "receipts", found, advice
    else:
        yield "OK", "receipts", found, ""
    recent = vitals.recent
    found = f"{recent.conflicts_a_minute:,.1f} a minute in the {recent.commits:,} commits of the last "
    found += in_time(recent.seconds)
    if recent.conflicts_a_minute > MANY_CONFLICTS:
        advice = "let fewer processes commit to one queue, or make another queue with more lanes, which stay as they "
        advice += "are made (`ledger queues create NAME -a Lanes=N`)"
        yield "WARN", "conflicts", found, advice
    else:
        yield "OK", "conflicts", found, ""


def _disk(vitals: Vitals) -> Judged:
    disk = vitals.disk
    found = f"{in_bytes(disk.bytes)} in {disk.files:,} files, of these {in_bytes(disk.log_bytes)} of logs; "
    found += f"{in_bytes(disk.written_a_day)} written a day, by the last {in_time(disk.measured_seconds)}"
    if disk.free is None:
        return "OK", "disk", found, ""
    found += f"; {in_bytes(disk.free)} free"
    days = disk.days_left
    is_low = disk.free < LOW_BYTES or (days is not None and days < LOW_DAYS)
    if not is_low:
        return "OK", "disk", found, ""
    found += "" if days is None or days >= LOW_DAYS else f", which is enough for {days * 24:,.0f} h"
    advice = "free space on this disk, then run `ledger upkeep`; it keeps files for deleted_file_retention and "
    advice += "log_retention: shorter ones (`ledger upkeep --settings FILE`) free more"
    return "FAIL" if disk.free < LEAST_FREE_BYTES else "WARN", "disk", found, advice


def _claim(claim: OldestClaim) -> Judged:
    beat = "no beat in the newest commits" if claim.beat_age is None else f"the last beat {in_time(claim.beat_age)} ago"
    found = f"the oldest is of {claim.queue}, receipt {claim.receipt_id}: held for {in_time(claim.age)}, {beat}"
    if claim.age < LONG_HELD_SECONDS:
        return "OK", "claims", found, ""
    advice = "does its worker still work? If not, end it (SIGTERM twice, or kill -9); then "
    advice += "`ledger release QUEUE --receipt RECEIPT --reason hung` gives its messages to others"
    return "WARN", "claims", found, advice


def in_bytes(count: float) -> str:
    """Return bytes in the largest unit that leaves at least 1."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} B"


def in_time(seconds: float) -> str:
    """Return seconds in the largest unit that leaves at least 2."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s"
