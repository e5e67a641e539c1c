"""The check that what several workers did together was allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.races import holding, rules, written
from tests.races.facts import Facts
from tests.races.history import Operation
from tests.races.whereabouts import Whereabouts


def violations(
    operations: Iterable[Operation],
    remaining: Iterable[str] | None = None,
    quotas: Mapping[str, int] | None = None,
    policies: Mapping[str, tuple[str, int]] | None = None,
    rows: Iterable[tuple[str, str, str, str]] = (),
) -> list[str]:
    """What was not allowed, in words; an empty list for a good history.

    `remaining`: still stored in the end, in any queue. `quotas`: how many messages may be in flight at once, by the
    names of queues. `policies` and `rows`: see Facts.
    """
    facts = Facts(operations, policies, rows)
    places = Whereabouts(facts)
    remaining = None if remaining is None else list(remaining)
    return [
        *(f"{one.worker} met {one.to}" for one in facts.by_verb["error"]),
        *holding.violations(facts),
        *places.violations(remaining),
        *rules.stored_twice(facts, remaining or []),
        *rules.order_broken(facts, places),
        *rules.quota_exceeded(facts, quotas or {}),
        *written.violations(facts, remaining or []),
    ]
