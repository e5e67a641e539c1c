"""What heartbeats and checks say about a claim: lost when nothing of it is held any more, and not before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ledger.rules.visibility import is_postponed
from tests.simulation.calls import Call
from tests.simulation.facts import Facts, Key, Recorded
from tests.simulation.log import Change
from tests.simulation.run import Run

LOOKING = ("beat", "check")
#: What may end a claim, or some of it, by its holder's own will.
ENDING = ("delete", "release", "reject", "settle", "write", "extend", "delete_many", "change_many")
#: What a few calls of the engine take, in milliseconds.
SLACK = 500


class State(NamedTuple):
    """Who holds what of a queue from a point on: the deadline by receipt and message; and the queue's last commit."""

    point: int
    deadlines: dict[tuple[str, Key], int]
    latest: int


class LeaseJudge:
    """Follows who holds what, where somebody asks."""

    def __init__(self, run: Run, before: Facts) -> None:
        self._calls = run.calls
        self._looks = [call for call in run.calls if call.verb in LOOKING and call.ended is not None]
        self._states: dict[str, list[State]] = defaultdict(list)
        self._names = {queue: known.name for queue, known in before.queues.items()}
        for queue in before.queues if self._looks else ():
            self._states[queue].append(_state(before, queue, -1))

    def records(
        self,
        facts: Facts,
        differing: dict[tuple[str, Key], tuple[Recorded | None, Recorded | None]],
        change: Change,
    ) -> None:
        """Notes what a commit to `visibility` makes of it; `facts` are those after it."""
        for queue in {queue for queue, _ in differing} if self._looks else ():
            self._states[queue].append(_state(facts, queue, change.actor.at_point))

    def end(self) -> list[str]:
        """Judges what was said."""
        return [
            f"{call.client}'s {call.verb} {call.queue} ({call.began} to {call.ended}): {one}"
            for call in self._looks
            for one in self._wrong(call)
        ]

    def _wrong(self, call: Call) -> Iterable[str]:
        mine = {(call.about["receipt"], key) for key in call.about["keys"]}
        left, latest = [], []
        for states in self._states.values():
            if not any(mine & state.deadlines.keys() for state in states):
                continue
            before = [state for state in states if state.point <= call.began][-1:]
            during = [state for state in states if call.began < state.point <= call.ended]
            for state in (*before, *during):
                left.append(max((state.deadlines[one] for one in mine & state.deadlines.keys()), default=0))
                latest.append(state.latest)
        if not left:
            return
        now = max(*call.clocks, *latest)
        if call.error == "LeaseLost" and min(left) > now + SLACK:
            yield f"lost, it says, and some of it is held for {min(left) - now} ms more"
        over = min(call.clocks) - max(left)
        if call.error is None and over > SLACK and not self._ended_by_holder(call):
            yield f"not lost, it says, and nothing of it was held for the last {over} ms"

    def _ended_by_holder(self, look: Call) -> bool:
        receipt = look.about["receipt"]
        return any(
            call.verb in ENDING
            and call.began <= look.ended
            and (call.about.get("receipt") == receipt or receipt in call.about.get("receipts", ()))
            for call in self._calls
        )


def _state(facts: Facts, queue: str, point: int) -> State:
    deadlines = {
        (recorded.record.receipt_id, key): recorded.record.visible_at
        for key, recorded in facts.records[queue].items()
        if recorded.record.receipt_id is not None
        and recorded.record.visible_at is not None
        and recorded.record.deleted_at is None
        and recorded.record.moved_to is None
        # What a holder gave back is none of the claim's any more, though it is hidden for a while.
        and not is_postponed(recorded.record, recorded.record.visible_at - 1)
    }
    return State(point, deadlines, facts.latest.get(queue, 0))
