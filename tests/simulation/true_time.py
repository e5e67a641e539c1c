"""Judges commits by the true time, which no client knows: what a clock that jumped has done.

The documented rule: a process refuses a step of its clock that no other owner's commit confirms. So the judge lets a
commit by a wrong clock pass in one case only: an earlier commit of another owner, to one of WITNESSES, is as wrong. Two
clocks that agree are the time to all who can only ask each other, so what is old by such a clock may be dropped. All
other damage that such clocks do to messages is judged by the facts all the same.
"""

from __future__ import annotations

from tests.simulation.log import Change

#: A commit may have been decided so long before it landed, in milliseconds: a client stands still for less.
DECIDED = 600_000
#: The tables whose commits may confirm a step.
WITNESSES = ("messages", "visibility")
#: How far a clock may be behind the commit that confirms it, and how far ahead of it, in milliseconds.
BEHIND, AHEAD = 30_000, 600_000


class TimeJudge:
    """Follows what commits say of the time."""

    def __init__(self) -> None:
        #: Of each commit to WITNESSES that is ahead of the true time: the owner and the instant.
        self._ahead: list[tuple[str, int]] = []

    def commit(self, table: str, change: Change) -> list[str]:
        """Judge the next commit to a table of the ledger."""
        problems = self._wrong_instant(change)
        if table == "visibility":
            problems += self._lanes_ahead(change)
        at = change.metadata.get("at")
        if table in WITNESSES and at is not None and at > change.timestamp + DECIDED:
            self._ahead.append((change.metadata.get("owner", ""), at))
        return problems

    def _wrong_instant(self, change: Change) -> list[str]:
        """Nobody commits by a clock that jumped. An upkeep that has just started believes its clock: the judge goes by
        what it does to messages, and not by what it says of the time."""
        call, at = change.actor.call, change.metadata.get("at")
        # A fill of receipts has the time of the newest commit that it tells of.
        is_told = change.metadata.get("verb") == "fill_receipts"
        if at is None or is_told or (call is not None and "ahead" in call.about):
            return []
        off = at - change.timestamp
        if abs(off) <= DECIDED or self.is_confirmed(change):
            return []
        return [f"is done by a clock that is {off} ms off"]

    def _lanes_ahead(self, change: Change) -> list[str]:
        """Nobody moves a lane's time into the future."""
        columns = ["lane", "segment", "received_at"]
        rows = [row for _, file in change.added for row in file.rows.select(columns).to_pylist()]
        heads = [row for row in rows if row["segment"] == "" and row["received_at"] is not None]
        times = {row["lane"]: round(row["received_at"].timestamp() * 1_000) for row in heads}
        ahead = sorted(
            lane for lane, at in times.items() if at > change.timestamp + DECIDED and not self._says(change, at)
        )
        return [f"moves the time of lanes {ahead} into the future"] if ahead else []

    def is_confirmed(self, change: Change) -> bool:
        """Return whether the commit's own time is ahead, and an earlier commit of another owner says the same."""
        at = change.metadata.get("at")
        return at is not None and self._says(change, at)

    def _says(self, change: Change, at: int) -> bool:
        """Return whether an earlier commit of another owner, which is ahead of the true time, says that it is about
        this time."""
        owner = change.metadata.get("owner", "")
        return any(other != owner and at - AHEAD < said <= at + BEHIND for other, said in self._ahead)
