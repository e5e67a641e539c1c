"""The rules of a history that go beyond one message: order, quotas, deduplication, dead letters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tests.races.history import Operation, held_until


def stored_twice(sends: Iterable[Operation], remaining: Sequence[str]) -> Iterable[str]:
    """F1: what is sent again under its deduplication id is answered the id it had. And nothing is in two queues."""
    known: dict[str, str] = {}
    for send in sends:
        for key, message in zip(send.keys, send.ids if send.ended is not None else ()):
            if known.setdefault(key, message) != message:
                yield f"{key} was stored twice: as {known[key]} and as {message}"
    for message, times in Counter(remaining).items():
        if times > 1:
            yield f"{message} is in {times} queues in the end"


def order_broken(
    sends: Iterable[Operation], receives: Sequence[Operation], deletes: Iterable[Operation], dead_after: int | None
) -> Iterable[str]:
    """F2: nobody is given a message while an earlier one of its group is there and was not given with it.

    So no group is held by two receivers either, unless the later one got what comes first again. Of what was received
    `dead_after` times nobody wrote down when it was moved away and back, which makes it the newest of its group; and
    none of the dead letters came in order.
    """
    sent: dict[str, int] = {}
    for send in sends:
        for message in send.ids if send.ended is not None else ():
            sent[message] = min(send.ended, sent.get(message, send.ended))
    gone: dict[str, int] = {}
    for delete in deletes:
        for message in delete.ids:
            gone[message] = min(delete.began, gone.get(message, delete.began))
    groups: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    versions: dict[str, list[int]] = defaultdict(list)
    for grant in receives:
        for message, (group, number) in zip(grant.ids, grant.places):
            groups[grant.queue, group][message] = number
            versions[message].append(grant.version)

    def never_moved(message: str, grant: Operation) -> bool:
        times = sum(version < grant.version for version in versions[message])
        return dead_after is None or (times < dead_after and not grant.queue.startswith("dead-"))

    for grant in receives:
        numbers: dict[str, dict[str, int]] = defaultdict(dict)
        for message, (group, number) in zip(grant.ids, grant.places):
            numbers[group][message] = number
        for group, mine in numbers.items():
            as_sent = [number for message, number in mine.items() if never_moved(message, grant)]
            if as_sent != sorted(as_sent):
                yield f"{grant.receipt} of {grant.worker} got group {group} out of order: {as_sent}"
            for message, number in groups[grant.queue, group].items():
                there = sent.get(message, grant.began) < grant.began
                there = there and gone.get(message, grant.ended + 1) > grant.ended and message not in grant.ids
                if number < max(mine.values()) and there and never_moved(message, grant):
                    yield f"{grant.receipt} of {grant.worker} got group {group} past {message}, which was still there"


def quota_exceeded(
    quota: int, receives: Sequence[Operation], by_receipt: dict[str | None, list[Operation]]
) -> Iterable[str]:
    """Q2, Q3: together with what was surely still held when it decided, no receive gives more than the quota."""
    granted = sorted((grant for grant in receives if grant.ids), key=lambda grant: grant.version)
    for at, grant in enumerate(granted):
        held = set(grant.ids)
        for earlier in granted[:at]:
            if earlier.queue != grant.queue:
                continue
            for message in earlier.ids:
                deadline = held_until(message, earlier, by_receipt, grant)
                if deadline is not None and grant.received_at < deadline:
                    held.add(message)
        if len(held) > quota:
            yield f"{grant.receipt} of {grant.worker} made {len(held)} messages in flight, and the quota is {quota}"


def received_too_often(receives: Iterable[Operation], redrives: Sequence[Operation], dead_after: int) -> Iterable[str]:
    """D1: between two redrives, each of which makes it new, a message is received `dead_after` times and no more."""
    times: dict[str, int] = defaultdict(int)
    for grant in receives:
        for message in grant.ids if not grant.queue.startswith("dead-") else ():
            times[message] += 1
    for message, count in times.items():
        if count > dead_after * (1 + len(redrives)):
            yield f"{message} was received {count} times, and is a dead letter after {dead_after}"
