"""Dead letters: whose they are, and their way back (D1, D2)."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.access import Access
from ledger.handles import runs_of_ids
from ledger.rules import limits as bounds
from ledger.rules import redrive as redrive_rules
from ledger.rules.arns import queue_of
from ledger.tabular import listed


def source_queues(access: Access, after: str = "", max_results: int | None = None) -> list[str]:
    """See Queue.dead_letter_source_queues."""
    most = bounds.maximum_messages(max_results, bounds.UNBOUNDED, "MaxResults")
    policies = {record.name: redrive_rules.policy_of(record.attributes) for record in access.store.queues()}
    named = [name for name, known in policies.items() if known is not None and known.target == access.name]
    return [name for name in sorted(named) if name > after][:most]


def redrive(
    access: Access, where: str | Sequence[str] | None, destination: str | None, max_messages: int | None
) -> int:
    """See Queue.redrive."""
    record = access.record()
    maximum = bounds.maximum_messages(max_messages, bounds.UNBOUNDED, "max_messages")
    target = None if destination is None else access.store.queue(queue_of(destination) or destination)
    chosen = None
    if where is not None and not isinstance(where, str):
        chosen = runs_of_ids(listed("where", where, "Must be a SQL predicate or a list of message ids"))
    if destination is None and not source_queues(access):
        fix = f"No queue's RedrivePolicy names {access.name}. Say where to: destination=. Nothing was moved."
        raise redrive_rules.no_dead_letter_queue(access.name, fix)
    if isinstance(where, str):
        what = "A predicate, unlike a list of message ids,"
        with access.named_jobs("redrive"):
            chosen = access.spark(what).chosen(record, where, access.clock())
    return access.store.redrive(record, target, maximum, chosen, access.clock)
