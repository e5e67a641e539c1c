"""What a queue is set to: attributes, tags, the policy; and how many messages it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ledger.clock import Clock
from ledger.errors import QueueDoesNotExist, SparkIsNeeded
from ledger.results import Counts
from ledger.rules import attributes as attribute_rules
from ledger.rules import policy, redrive
from ledger.rules.arns import Account
from ledger.rules.state import Status
from ledger.store import QueueRecord, Store

if TYPE_CHECKING:
    from ledger.store.delta.dataframes.frames import Frames


class QueueSettings:
    """The part of a Queue that is about the queue and not about messages."""

    def __init__(
        self, store: Store, record: QueueRecord, clock: Clock, frames: Frames | None, account: Account
    ) -> None:
        self._store, self._made, self._clock, self._frames, self._account = store, record, clock, frames, account
        self.name = record.name

    @property
    def arn(self) -> str:
        """The queue's ARN, which policies name it by; its account and region are settings of the ledger."""
        return self._account.arn(self.name)

    def attributes(self) -> dict[str, str]:
        """All attributes as text, as SQS answers them, with QueueArn, CreatedTimestamp and LastModifiedTimestamp
        (seconds). Those that SQS does not have are named in `ledger.rules.attribute_kinds.OURS`."""
        record = self._record()
        return {
            **attribute_rules.answered(record.attributes),
            "QueueArn": self.arn,
            "CreatedTimestamp": str(record.created_at // 1_000),
            "LastModifiedTimestamp": str(record.modified_at // 1_000),
        }

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Changes the attributes that are named, for receives from now on, and no other. Raises InvalidAttributeName,
        InvalidAttributeValue; InvalidParameterValue for a RedrivePolicy or a RedriveAllowPolicy.

        Like every change of a queue it is one commit on this very queue: changes at the same time all count, and none
        reaches a queue that was made anew under the name (QueueDoesNotExist).
        """
        self._set(lambda known: attributes)

    def tags(self) -> dict[str, str]:
        """The queue's tags."""
        return dict(self._record().tags)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Replaces the queue's tags: at most 50, keys of 1 to 128 characters, values of at most 256."""
        self._tag(lambda known: tags)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Adds these tags, over those of the same keys, as SQS's TagQueue; all in all at most 50."""
        given = attribute_rules.tags(tags)
        self._tag(lambda known: {**known, **given})

    def untag(self, keys: Sequence[str]) -> None:
        """Removes the tags of these keys, as SQS's UntagQueue; keys that the queue does not have are no error."""
        gone = attribute_rules.tag_keys(keys)
        self._tag(lambda known: {key: value for key, value in known.items() if key not in gone})

    def add_permission(self, label: str, account_ids: Sequence[str], actions: Sequence[str]) -> None:
        """Adds a statement to the queue's Policy, as SQS's AddPermission. It is stored; nothing here enforces it:
        who may read and write a ledger is decided by its storage. Raises InvalidParameterValue for a label in use and
        for an action that is not granted to others, OverLimit for more than seven.
        """
        self._set_policy(lambda text: policy.with_permission(text, self.arn, label, account_ids, actions))

    def remove_permission(self, label: str) -> None:
        """Removes the statement of this label from the queue's Policy; raises InvalidParameterValue without one."""
        self._set_policy(lambda text: policy.without_permission(text, label))

    def counts(self) -> Counts:
        """How many messages are in each state, and the oldest one's age, without reading a message."""
        counted = self._store.counts(self._record(), self._clock)
        by_status = {status.name.lower(): counted.by_status.get(status, 0) for status in Status}
        oldest = counted.oldest_sent_at
        return Counts(**by_status, age_of_oldest=None if oldest is None else (self._clock() - oldest) / 1_000)

    def _set(self, given: Callable[[Mapping[str, str]], Mapping[str, object]]) -> None:
        """Sets what `given` answers of the attributes as they are in the decision."""

        def change(known: QueueRecord, queues: Sequence[QueueRecord]) -> tuple[Mapping[str, str], Mapping[str, str]]:
            named = given(known.attributes)
            complete = attribute_rules.complete(named, known.attributes, self._account)
            redrive.require_target(queues, known.name, complete, named)
            return complete, known.tags

        self._store.change_queue(self._made, change, self._clock)

    def _set_policy(self, changed: Callable[[str | None], str]) -> None:
        self._set(lambda known: {"Policy": changed(known.get("Policy"))})

    def _tag(self, changed: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        self._store.change_queue(
            self._made,
            lambda known, queues: (known.attributes, attribute_rules.tags(changed(known.tags))),
            self._clock,
        )

    def _record(self) -> QueueRecord:
        record = self._store.queue(self.name)
        if record.id != self._made.id:
            raise QueueDoesNotExist(self.name, made_anew=True)
        return record

    def _spark(self, what: str = "A DataFrame") -> Frames:
        if self._frames is None:
            raise SparkIsNeeded(f"{what} needs Spark: open the ledger with Ledger.open(root, spark=spark)")
        return self._frames
