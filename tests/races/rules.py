"""The rules of a history that go beyond one message: order, quotas, deduplication."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from ledger.rules.limits import DEDUPLICATION_INTERVAL, MILLISECONDS
from tests.races.facts import Facts
from tests.races.history import Operation, name_of
from tests.races.holding import held_until
from tests.races.whereabouts import Whereabouts


def stored_twice(facts: Facts, remaining: Sequence[str]) -> Iterable[str]:
    """F1: what is sent again under its deduplication id is answered the id it had; so is a send that is tried again
    under its attempt id, whose bodies tell. And nothing is in two queues."""
    known: dict[tuple[str, str], tuple[str, int]] = {}
    for send in sorted(facts.by_verb["send"], key=lambda one: one.began):
        for key, message in zip(send.keys, send.ids if send.ended is not None else ()):
            first, at = known.setdefault((send.queue, key), (message, send.began))
            remembered = send.ended - at < DEDUPLICATION_INTERVAL * MILLISECONDS and not _purged(facts, send, at)
            if first != message and remembered:
                yield f"{key} was stored twice: as {first} and as {message}"
            elif first != message:
                known[send.queue, key] = message, send.began
    said: dict[str, str] = {}
    stored: dict[str, str] = {}
    for one in [*facts.by_verb["send"], *facts.by_verb["receive"]]:
        for message, body in zip(one.ids, one.bodies):
            if said.setdefault(message, body) != body:
                yield f"{message} was sent as {said[message]!r} and is now {body!r}"
            if not one.keys and stored.setdefault(body, message) != message and "key-" not in body:
                yield f"{body!r} was stored twice: as {stored[body]} and as {message}"
    for message, times in Counter(remaining).items():
        if times > 1:
            yield f"{message} is in {times} queues in the end"


def _purged(facts: Facts, send: Operation, since: int) -> bool:
    return any(p.queue == send.queue and (p.ended is None or p.ended >= since) for p in facts.by_verb["purge"])


def order_broken(facts: Facts, places: Whereabouts) -> Iterable[str]:
    """F2: nobody is given a message while an earlier one of its group is there and was not given with it.

    So no group is held by two receivers either, unless the later one got what comes first again. The order is that in
    which they came to the queue, by a send or a move; a message that moved away and back came anew.
    """
    #: By queue and group: each stay of a message there, by its place in the order, with its grants.
    stays: dict[tuple[str, str], dict[tuple[int, int, str, bool], list[Operation]]] = defaultdict(dict)
    for grant in sorted((one for one in facts.by_verb["receive"] if one.ids), key=lambda one: one.version):
        for message, (group, number, came, moved) in zip(grant.ids, grant.places):
            stays[grant.queue, group].setdefault((came, number, message, moved), []).append(grant)

    first: dict[str | None, int] = {}
    for grant in facts.by_verb["receive"]:
        if grant.ids:
            first[grant.receipt] = min(grant.version, first.get(grant.receipt, grant.version))
    # What an attempt holds it is given again, whatever of it was given back meanwhile.
    for grant in (one for one in facts.by_verb["receive"] if one.ids and one.version == first[one.receipt]):
        mine: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for message, (group, number, came, _) in zip(grant.ids, grant.places):
            mine[group].append((came, number, message))
        for group, given in mine.items():
            if any(_precedes(facts, second, first) for first, second in itertools.pairwise(given)):
                yield f"{grant.receipt} of {grant.worker} got group {group} out of order: {given}"
            for stay, grants in stays[grant.queue, group].items():
                passed = stay[2] not in grant.ids and any(_precedes(facts, stay[:3], one) for one in given)
                if passed and _is_there(facts, places, stay, grants, grant):
                    yield (
                        f"{grant.receipt} of {grant.worker} got group {group} of {grant.queue} past {stay[2]}, which "
                        "was still there"
                    )


def _precedes(facts: Facts, one: tuple[int, int, str], other: tuple[int, int, str]) -> bool:
    """Whether a message, as (when it came, its sequence number, its id), surely stands before another one: what one
    move brought came at one instant, and the numbers of different queues say nothing of each other."""
    if one[0] != other[0]:
        return one[0] < other[0]
    homes = {send.queue for message in (one[2], other[2]) for send in facts.sends.get(message, ())[:1]}
    known = all(facts.sends.get(message) for message in (one[2], other[2]))
    return known and len(homes) == 1 and one[1] < other[1]


def _is_there(
    facts: Facts, places: Whereabouts, stay: tuple[int, int, str, bool], grants: list[Operation], at: Operation
) -> bool:
    """Whether a message was surely in its place in a queue while another receive decided."""
    *_, message, moved = stay
    if facts.may_end.get(message, inf) <= at.ended:
        return False
    before = [grant for grant in grants if grant.version < at.version]
    sends = [one for one in facts.sends.get(message, ()) if one.ended is not None and one.ended < at.began]
    if not before and (moved or not sends):
        return False
    if any(
        one.began <= at.ended for verb in ("purge", "remove") for one in facts.by_verb[verb] if one.queue == at.queue
    ):
        return False
    if len(before) < len(grants):
        return True
    since = before[-1].began if before else sends[0].began
    return places.reach(at.queue, message, since, at.ended) == {at.queue}


def quota_exceeded(facts: Facts, quotas: Mapping[str, int]) -> Iterable[str]:
    """Q2, Q3: together with what was surely still held when it decided, no receive gives more than the quota."""
    granted = sorted((grant for grant in facts.by_verb["receive"] if grant.ids), key=lambda grant: grant.version)
    holding: dict[str, dict[str, Operation]] = defaultdict(dict)
    for grant in granted:
        quota, mine = quotas.get(name_of(grant.queue)), holding[grant.queue]
        if quota is None:
            continue
        held = set(grant.ids)
        for message, earlier in list(mine.items()):
            deadline = held_until(facts, message, earlier, grant)
            if deadline is not None and grant.received_at < deadline:
                held.add(message)
            elif deadline is not None:
                del mine[message]
        mine.update(dict.fromkeys(grant.ids, grant))
        if len(held) > quota:
            yield f"{grant.receipt} of {grant.worker} made {len(held)} messages in flight, and the quota is {quota}"
