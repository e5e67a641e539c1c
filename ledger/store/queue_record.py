"""A queue as the stores know it, and how it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ledger.rules.attributes import not_understood, retention_period
from ledger.rules.state import Retention


@dataclass(frozen=True)
class QueueRecord:
    """A queue as the store knows it. `id` names this very queue: made again under the same name, it has another."""

    id: str
    name: str
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    created_at: int
    modified_at: int
    revision: int = 1
    #: Q7: see Retention. What had expired when the period was changed, or an upkeep dropped it.
    expired_before: int = -1
    #: By the clock that noted that, when it did; -1: not known.
    expiry_noted_at: int = -1

    @cached_property
    def not_understood(self) -> str | None:
        """See rules.attributes.not_understood."""
        return not_understood(self.attributes)

    @property
    def retention(self) -> Retention:
        """How long its messages are kept."""
        return Retention(retention_period(self.attributes), self.expired_before)

    @property
    def noted_at(self) -> int:
        """The latest instant that a clock has said when it noted what had expired; -1: nothing is noted. An earlier
        release did not record it: there it was no later than the last change."""
        if self.expired_before < 0:
            return -1
        return max(self.expired_before, self.modified_at if self.expiry_noted_at < 0 else self.expiry_noted_at)

    @property
    def latest(self) -> int:
        """The latest instant that is known of it."""
        return max(self.created_at, self.modified_at, self.noted_at)

    def put_back(self, now: int, skew: int) -> QueueRecord:
        """The queue as it is after a clock more than `skew` ahead of `now` has made or changed it; itself where none
        has."""
        if self.latest <= now + skew:
            return self
        made = replace(
            self,
            created_at=min(self.created_at, now),
            modified_at=min(self.modified_at, now),
            revision=self.revision + 1,
        )
        if self.noted_at <= now + skew:
            return made
        return replace(made, expired_before=self.retention.put_back(now).expired_before, expiry_noted_at=now)

    def changed(self, attributes: Mapping[str, str], tags: Mapping[str, str], now: int) -> QueueRecord:
        """The queue with these attributes and tags from `now` on; itself, when it has them."""
        if (attributes, tags) == (self.attributes, self.tags):
            return self
        made = replace(
            self,
            attributes=attributes,
            tags=tags,
            modified_at=max(now, self.modified_at),
            revision=self.revision + 1,
        )
        before = self.retention.changed(retention_period(attributes), now).expired_before
        return made._noting(before, now, self.noted_at)

    def expired(self, at: int) -> QueueRecord:
        """The queue with what had expired at the instant `at` noted for good; itself, when all that is noted."""
        before = self.retention.expired(at)
        if before == self.expired_before:
            return self
        return replace(self, revision=self.revision + 1)._noting(before, at, self.noted_at)

    def _noting(self, expired_before: int, now: int, noted_at: int) -> QueueRecord:
        if expired_before == self.expired_before:
            return self
        return replace(self, expired_before=expired_before, expiry_noted_at=max(now, noted_at))


#: What a change makes of the queue as it is now, given all queues of the ledger: its attributes and its tags.
Change = Callable[[QueueRecord, Sequence[QueueRecord]], tuple[Mapping[str, str], Mapping[str, str]]]
