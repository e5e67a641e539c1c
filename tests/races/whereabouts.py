"""Where a message can be: it is sent to a queue, and goes on by dead-letter policies and redrives, and no other way."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf

from tests.races.facts import Facts
from tests.races.history import Operation, name_of

#: A call without an answer was made by a process that was killed, at the latest after so many milliseconds.
LONGEST = 30_000


class Whereabouts:
    """The ways that messages could take in a history."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._by_name: dict[str, list[str]] = defaultdict(list)
        for queue in sorted(facts.queues):
            self._by_name[name_of(queue)].append(queue)
        self._unanswered: dict[str, list[Operation]] = defaultdict(list)
        for one in facts.by_verb["receive"]:
            if one.ended is None:
                self._unanswered[one.queue].append(one)
        self._redrives: dict[str, list[Operation]] = defaultdict(list)
        for one in facts.by_verb["redrive"]:
            if one.count != 0:
                self._redrives[one.queue].append(one)

    def violations(self, remaining: Sequence[str] | None) -> Iterable[str]:
        """All of this module."""
        yield from self._lost_or_invented(remaining)
        for message, received in self._facts.grants.items():
            yield from self._in_a_wrong_queue(message, received)
            yield from self._received_too_often(message, received)
        yield from self._after_its_end()

    def reach(self, queue: str, message: str, since: float, until: float) -> set[str]:
        """The queues in which a message may have been in a span of time, at whose beginning it was in `queue`."""
        found, todo = {queue}, [queue]
        while todo:
            for following in self._onward(todo.pop(), message, since, until) - found:
                found.add(following)
                todo.append(following)
        return found

    def _onward(self, queue: str, message: str, since: float, until: float) -> set[str]:
        found: set[str] = set()
        policy = self._facts.policy(queue)
        if policy is not None and self._received(queue, message, since, until) >= policy[1]:
            found.update(self._by_name[policy[0]] or [policy[0]])
        for one in self._redrives[queue]:
            overlaps = one.began <= until and (one.ended is None or one.ended >= since)
            if overlaps and (not one.ids or message in one.ids):
                found.update([one.to] if one.to else self._origins(queue))
        return found

    def _received(self, queue: str, message: str, since: float, until: float) -> int:
        """How often a message may have been received in a queue by some moment of a span of time."""
        mine = [grant for grant in self._facts.grants.get(message, ()) if grant.queue == queue and grant.began <= until]
        # Moved away and back it is counted anew: the last count before the span, and those within.
        recent = mine[-1:] + [grant for grant in mine if grant.began >= since]
        known = [count for grant in recent for one, count in zip(grant.ids, grant.counts) if one == message]
        unanswered = sum(since - LONGEST < one.began <= until for one in self._unanswered[queue])
        return max(known, default=len(mine)) + unanswered

    def _origins(self, queue: str) -> set[str]:
        """From where messages may have come to a queue."""
        by_policy = {one for one in self._facts.queues if (self._facts.policy(one) or ("",))[0] == name_of(queue)}
        return by_policy | {source for source, moves in self._redrives.items() if any(o.to == queue for o in moves)}

    def _in_a_wrong_queue(self, message: str, received: Sequence[Operation]) -> Iterable[str]:
        sent = min(self._facts.sends.get(message, ()), key=lambda send: send.began, default=None)
        known = ([sent] if sent is not None and sent.queue else []) + list(received)
        for first, second in itertools.pairwise(known):
            if second.queue not in self.reach(first.queue, message, first.began, second.ended):
                yield (
                    f"{message} was received by {second.worker} from {second.queue}, and no way led there from "
                    f"{first.queue}"
                )

    def _received_too_often(self, message: str, received: Sequence[Operation]) -> Iterable[str]:
        """D1: until it can have been moved away and back, a message is received so often and no more."""
        times = 0
        for first, second in itertools.pairwise([None, *received]):
            if first is not None and first.receipt == second.receipt:
                continue
            anew = first is None or first.queue != second.queue or self._there_and_back(first, second, message)
            times = 1 if anew else times + 1
            policy = self._facts.policy(second.queue)
            # There may have been no target for a while, or one that it must not move to.
            there = policy is not None and all(name_of(o.queue) != policy[0] for o in self._facts.by_verb["remove"])
            if there and times > policy[1]:
                yield f"{message} was received {times} times in {second.queue}, and is a dead letter after {policy[1]}"

    def _there_and_back(self, first: Operation, second: Operation, message: str) -> bool:
        """Whether a message may have left its queue, and come to it again, between two receives of it."""
        others = self.reach(first.queue, message, first.began, second.ended) - {first.queue}
        return any(first.queue in self._onward(other, message, first.began, second.ended) for other in others)

    def _after_its_end(self) -> Iterable[str]:
        removed = {one.queue: one for one in self._facts.by_verb["remove"] if one.ended is not None}
        for one in self._facts.by_verb["receive"]:
            if one.ids and one.queue in removed and one.began > removed[one.queue].ended:
                yield f"{one.worker} received from {one.queue}, which was deleted before"

    def _lost_or_invented(self, remaining: Sequence[str] | None) -> Iterable[str]:
        sends, grants = self._facts.by_verb["send"], self._facts.grants
        sent = {message for send in sends for message in send.ids}
        asked = {body for send in sends for body in send.bodies}
        unsure = any(send.ended is None for send in sends)
        for message in sorted(set(grants) - sent):
            bodies = {body for g in grants[message] for one, body in zip(g.ids, g.bodies) if one == message}
            if not (unsure if not bodies else bodies <= asked):
                yield f"{message} was received and never sent"
        if remaining is None:
            return
        sure = {message for send in sends if send.ended is not None for message in send.ids}
        # A delete without an answer may have happened; a write has when its row is there.
        gone = {message for delete in self._facts.by_verb["delete"] for message in delete.ids}
        gone |= {message for _, message, _, _ in self._facts.rows}
        for message in sorted((sure | set(grants)) - gone - set(remaining)):
            if not self._taken_away(message):
                yield f"{message} is lost: sent, never deleted, and not there in the end"
        restored = {one.receipt for one in self._facts.by_verb["restore"]}
        for message in sorted(set(self._facts.ends) & set(remaining)):
            if not {end.receipt for end in self._facts.ends[message]} & restored:
                yield f"{message} was deleted and is there in the end"

    def _taken_away(self, message: str) -> bool:
        """Whether it may have been in a queue that was purged or deleted with all it had."""
        sends = sorted(self._facts.sends.get(message, ()), key=lambda send: send.began)
        last = (self._facts.grants.get(message) or sends[:1])[-1]
        if any(one.queue in self.reach(last.queue, message, last.began, inf) for one in self._facts.by_verb["remove"]):
            return True
        for purge in self._facts.by_verb["purge"]:
            until = inf if purge.ended is None else purge.ended
            if until >= last.began and purge.queue in self.reach(last.queue, message, last.began, until):
                return True
        return False
