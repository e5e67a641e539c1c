"""Q7: nothing has expired before its retention says so, and what has expired once is never given, moved or restored.

By a reckoning of its own: what the queues' periods were, and when they were changed, and not what is noted about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ledger.rules.visibility import Record
from tests.simulation.answers import ALLOWED
from tests.simulation.facts import Facts, Key, Queue, Recorded
from tests.simulation.log import Change


class Kept(NamedTuple):
    """How a queue keeps messages from a point on: so many milliseconds, and what came by `gone` is gone."""

    point: int
    period: int
    gone: int

    def expired(self, at: int) -> int:
        """What came by this instant has expired at another one."""
        return max(at - self.period, self.gone)


class RetentionJudge:
    """Follows how long queues keep messages. `ahead`: by how many milliseconds some clock was ever before the time."""

    def __init__(self, before: Facts, ahead: int) -> None:
        self._ahead = ahead
        self._kept = {
            identifier: [Kept(-1, _period(queue), queue.expired_before)] for identifier, queue in before.queues.items()
        }

    def queues(self, new: dict[str, Queue], change: Change, *, is_confirmed: bool) -> list[str]:
        """Judge a commit to `queues`. `is_confirmed`: a wrong clock is believed, since another owner's is as wrong."""
        problems, at = [], change.metadata.get("at", 0)
        for identifier, queue in new.items():
            known = self._kept.setdefault(identifier, [Kept(change.actor.at_point, _period(queue), -1)])
            last, noted = known[-1], queue.expired_before
            # Upkeep looks at its clock at the beginning, and takes no other one for behind by more than is allowed.
            is_late = change.metadata.get("verb") == "expire" and not is_confirmed
            surely = change.timestamp + self._ahead - ALLOWED if is_late else at
            if noted > last.expired(surely):
                problems.append(f"{identifier} lets expire what came {noted - last.expired(surely)} ms too late for it")
            changed = _period(queue) != last.period
            gone = max(last.gone, min(noted, last.expired(surely)), last.expired(at) if changed else -1)
            if (_period(queue), gone) != last[1:]:
                known.append(Kept(change.actor.at_point, _period(queue), gone))
        return problems

    def records(
        self,
        facts: Facts,
        differing: dict[tuple[str, Key], tuple[Recorded | None, Recorded | None]],
        change: Change,
    ) -> list[str]:
        """Judges a commit to `visibility`."""
        problems, verb, at = [], change.metadata.get("verb"), change.metadata.get("at", 0)
        call = change.actor.call
        began = change.actor.at_point if call is None else call.began
        for (queue, key), (before, after) in differing.items():
            if after is None or key not in facts.messages or queue not in self._kept:
                continue
            old, new = before.record if before else Record(), after.record
            came = facts.messages[key].sent_at if old.enqueued_at is None else old.enqueued_at
            where = f"{key[0][:8]}/{key[1]} of {queue}"
            known = list(self._during(queue, began, change.actor.at_point))
            over = min(kept.expired(at) for kept in known) - came
            if over >= 0:
                problems += [
                    f"{where} is {what} by {verb}, and had expired {over} ms before" for what in _had(old, new)
                ]
            dropped = verb == "upkeep" and old.deleted_at is None and new.deleted_at is not None
            if dropped and came > known[-1].gone:
                problems.append(f"{where} is dropped, and came {came - known[-1].gone} ms too late to have expired")
        return problems

    def _during(self, queue: str, began: int, ended: int) -> Iterator[Kept]:
        """How a queue kept messages while a call went on: it may have looked at any moment."""
        known = [kept for kept in self._kept[queue] if kept.point <= ended]
        earlier = [kept for kept in known if kept.point <= began]
        yield from earlier[-1:] or known[:1]
        yield from (kept for kept in known if kept.point > began)


def _had(old: Record, new: Record) -> Iterable[str]:
    """What somebody had of a message by a change of what is recorded about it."""
    if new.receipt_id is not None and new.receipt_id != old.receipt_id:
        yield "given"
    if new.moved_to is not None and old.moved_to is None:
        yield "moved"
    if old.deleted_at is not None and new.deleted_at is None:
        yield "restored"


def _period(queue: Queue) -> int:
    return int(queue.attributes["MessageRetentionPeriod"]) * 1_000
