"""A queue's attributes and tags, its counts, its dead-letter source queues, and its redrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ledger.client.access import Access
from ledger.client.handles import runs_of_ids
from ledger.client.tables import require_list
from ledger.results import Counts
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules import redrive as redrive_rules
from ledger.rules.arns import queue_of
from ledger.rules.visibility import Status
from ledger.runtime.threads import uses_arrow
from ledger.store.protocol import QueueRecord


def attributes(access: Access) -> dict[str, str]:
    """See Queue.attributes."""
    record = access.record()
    return {
        **attribute_rules.answer_attributes(record.attributes),
        "QueueArn": access.arn,
        "CreatedTimestamp": str(record.created_at // 1_000),
        "LastModifiedTimestamp": str(record.modified_at // 1_000),
    }


def change_attributes(access: Access, given: Callable[[Mapping[str, str]], Mapping[str, object]]) -> None:
    """Set the attributes that `given` returns for the queue's attributes.

    Other attributes stay, except LateChange and SqsManagedSseEnabled if the new attributes imply another value.
    Calls `given` again if another change is committed first.
    """

    def change(known: QueueRecord, queues: Sequence[QueueRecord]) -> tuple[Mapping[str, str], Mapping[str, str]]:
        named = given(known.attributes)
        complete = attribute_rules.complete_attributes(named, known.attributes, access.settings.account)
        redrive_rules.require_target(queues, known.name, complete, named)
        return complete, known.tags

    access.store.change_queue(access.made, change, access.clock)


def change_policy(access: Access, changed: Callable[[str | None], str]) -> None:
    """Set the attribute Policy to what `changed` returns for the present one."""
    change_attributes(access, lambda known: {"Policy": changed(known.get("Policy"))})


def change_tags(access: Access, changed: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
    """Replace the tags by those that `changed` returns for the present tags."""
    access.store.change_queue(
        access.made,
        lambda known, queues: (known.attributes, attribute_rules.check_tags(changed(known.tags), known.tags)),
        access.clock,
    )


@uses_arrow
def counts(access: Access) -> Counts:
    """See Queue.counts."""
    counted = access.store.counts(access.record(), access.clock)
    by_status = {status.name.lower(): counted.by_status.get(status, 0) for status in Status}
    oldest = counted.oldest_sent_at
    return Counts(**by_status, age_of_oldest=None if oldest is None else (access.clock() - oldest) / 1_000)


def source_queues(access: Access, after: str = "", max_results: int | None = None) -> list[str]:
    """See Queue.dead_letter_source_queues."""
    most = bounds.maximum_messages(max_results, bounds.UNBOUNDED, "MaxResults")
    policies = {record.name: redrive_rules.policy_of(record.attributes) for record in access.store.queues()}
    named = [name for name, policy in policies.items() if policy is not None and policy.target == access.name]
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
        chosen = runs_of_ids(require_list("where", where, "Must be a SQL predicate or a list of message ids"))
    if destination is None and not source_queues(access):
        fix = f"No queue's RedrivePolicy names {access.name}. Say where to: destination=. Nothing was moved."
        raise redrive_rules.make_no_dead_letter_queue_error(access.name, fix)
    if isinstance(where, str):
        subject = "A predicate, unlike a list of message ids,"
        with access.named_jobs("redrive"):
            chosen = access.spark(subject).select_messages(record, where, access.clock())
    return access.store.redrive(record, target, maximum, chosen, access.clock)
