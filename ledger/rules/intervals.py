"""The intervals after a purge and a queue's deletion, for Limits=SQS alone (M3 of docs/reference/rules.md)."""

from __future__ import annotations

from ledger.errors import PurgeQueueInProgress, QueueDeletedRecently
from ledger.rules.limits import MILLISECONDS, Limits

_SWITCH = "Queues with Limits=UNBOUNDED need not wait, nor do others with the setting"


def require_purge(name: str, purged_at: int | None, limits: Limits, interval: int, now: int) -> None:
    """Raise PurgeQueueInProgress within `interval` seconds of the queue's last purge."""
    if limits.has_intervals and purged_at is not None and now - purged_at < interval * MILLISECONDS:
        raise PurgeQueueInProgress(
            f"Only one PurgeQueue operation on {name} is allowed every {interval} seconds.",
            f"Nothing was purged. {_SWITCH} purge_interval at 0.",
        )


def require_name(name: str, deleted_at: int | None, limits: Limits, interval: int, now: int) -> None:
    """Raise QueueDeletedRecently within `interval` seconds of the deletion of a queue that had this name.

    `limits` are those of the new queue.
    """
    if limits.has_intervals and deleted_at is not None and now - deleted_at < interval * MILLISECONDS:
        raise QueueDeletedRecently(
            f"You must wait {interval} seconds after deleting a queue before you can create another with the same "
            "name.",
            f"It is {name}. {_SWITCH} deletion_interval at 0.",
        )
