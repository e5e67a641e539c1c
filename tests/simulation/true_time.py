"""Judges commits by the true time, which no client knows: what a clock that jumped has done."""

from __future__ import annotations

from tests.simulation.log import Change

#: A commit may have been decided so long before it landed, in milliseconds: a client stands still for less.
DECIDED = 600_000


def judge_time(change: Change) -> list[str]:
    """By a clock that jumped nobody commits. An upkeep that has just started believes its clock: what becomes of that
    is judged by its facts, and not by what it says of the time."""
    call, at = change.actor.call, change.metadata.get("at")
    # A fill of receipts has the time of the newest commit that it tells of.
    is_told = change.metadata.get("verb") == "fill_receipts"
    if at is None or is_told or (call is not None and "ahead" in call.about):
        return []
    off = at - change.timestamp
    return [f"is done by a clock that is {off} ms off"] if abs(off) > DECIDED else []


def judge_lanes(change: Change) -> list[str]:
    """No lane's time is in the future, whoever moved it there."""
    columns = ["lane", "segment", "received_at"]
    rows = [row for _, file in change.added for row in file.rows.select(columns).to_pylist() if row["segment"] == ""]
    times = {row["lane"]: row["received_at"].timestamp() * 1_000 for row in rows if row["received_at"] is not None}
    ahead = sorted(lane for lane, at in times.items() if at > change.timestamp + DECIDED)
    return [f"moves the time of lanes {ahead} into the future"] if ahead else []
