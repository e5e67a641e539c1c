"""What a queue is set to: attributes, tags, the policy; and how many messages it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ledger.access import Access
from ledger.results import Counts
from ledger.rules import attributes as attribute_rules
from ledger.rules import redrive
from ledger.rules.state import Status
from ledger.store import QueueRecord


def attributes(access: Access) -> dict[str, str]:
    """See Queue.attributes."""
    record = access.record()
    return {
        **attribute_rules.answered(record.attributes),
        "QueueArn": access.arn,
        "CreatedTimestamp": str(record.created_at // 1_000),
        "LastModifiedTimestamp": str(record.modified_at // 1_000),
    }


def change_attributes(access: Access, given: Callable[[Mapping[str, str]], Mapping[str, object]]) -> None:
    """Sets what `given` returns of the attributes as they are in the decision."""

    def change(known: QueueRecord, queues: Sequence[QueueRecord]) -> tuple[Mapping[str, str], Mapping[str, str]]:
        named = given(known.attributes)
        complete = attribute_rules.complete(named, known.attributes, access.settings.account)
        redrive.require_target(queues, known.name, complete, named)
        return complete, known.tags

    access.store.change_queue(access.made, change, access.clock)


def change_policy(access: Access, changed: Callable[[str | None], str]) -> None:
    """Sets the Policy to what `changed` returns of the one that is set in the decision."""
    change_attributes(access, lambda known: {"Policy": changed(known.get("Policy"))})


def change_tags(access: Access, changed: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
    """Replaces the tags by what `changed` returns of those that there are in the decision."""
    access.store.change_queue(
        access.made,
        lambda known, queues: (known.attributes, attribute_rules.tags(changed(known.tags), known.tags)),
        access.clock,
    )


def counts(access: Access) -> Counts:
    """See Queue.counts."""
    counted = access.store.counts(access.record(), access.clock)
    by_status = {status.name.lower(): counted.by_status.get(status, 0) for status in Status}
    oldest = counted.oldest_sent_at
    return Counts(**by_status, age_of_oldest=None if oldest is None else (access.clock() - oldest) / 1_000)
