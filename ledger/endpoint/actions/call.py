"""The argument of an action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ledger.endpoint import addresses, keys
from ledger.endpoint.keys import Caller
from ledger.errors import LedgerError, QueueDoesNotExist, ResourceNotFound
from ledger.ledger import Ledger
from ledger.queue import Queue
from ledger.rules.arns import Account, explain_foreign_arn, queue_of

MOST_LOGGED_NAME_CHARACTERS = 100


@dataclass(frozen=True)
class Call:
    """One request, whose parameters were checked against the model.

    `base` begins queue URLs. `new_queues` has default attributes of new queues. `trace` is X-Amzn-Trace-Id.
    """

    ledger: Ledger
    action: str
    parameters: Mapping[str, Any]
    base: str
    caller: Caller
    new_queues: Mapping[str, str] = field(default_factory=dict)
    trace: str | None = None
    _found: list[Queue] = field(default_factory=list, init=False, repr=False)

    @property
    def account(self) -> Account:
        return self.ledger.settings.account

    def get(self, name: str) -> Any:
        return self.parameters.get(name)

    @cached_property
    def queue_named(self) -> str:
        """The queue's name in QueueUrl; empty if no queue here can have this QueueUrl."""
        try:
            return self._name
        except LedgerError:
            return ""

    @property
    def queue_asked(self) -> str | None:
        """The queue's name for the access log. The queue may not exist."""
        name = self.known_name or self.queue_named or self.parameters.get("QueueName")
        return str(name)[:MOST_LOGGED_NAME_CHARACTERS] if name else None

    @cached_property
    def _name(self) -> str:
        url = self.parameters.get("QueueUrl")
        return addresses.name_of(url, self.account.account_id, self.caller.account_id)

    @property
    def known_queue(self) -> str | None:
        """The id of the queue that the action looked up last; None if the action looked up no queue."""
        return self._found[-1].id if self._found else None

    @property
    def known_name(self) -> str | None:
        return self._found[-1].name if self._found else None

    def queue(self) -> Queue:
        """Return the queue that QueueUrl names. Raises what `named` raises, and a Refusal (InvalidAddress)."""
        return self.named(self._name)

    def named(self, name: str, action: str | None = None) -> Queue:
        """Return the queue of a name, if the caller may do `action` (by default the request's) there.

        Raises QueueDoesNotExist, and a Refusal (AccessDenied).
        """
        queue = self.ledger.queue(name)
        self._found.append(queue)
        policy = queue.access.made.attributes.get("Policy")
        keys.require_permission(self.caller, action or self.action, queue.arn, policy, self.account)
        return queue

    def find_queue_of_parameter(self, parameter: str, action: str | None = None) -> Queue:
        return self.queue_of(self.parameters[parameter], parameter, action)

    def queue_of(self, arn: str, parameter: str, action: str | None = None) -> Queue:
        """Return the queue of an ARN. Raises ResourceNotFound, which names `parameter`, or a Refusal (AccessDenied)."""
        name = queue_of(arn)
        if name is None or ":" not in arn or explain_foreign_arn(arn, self.account) is not None:
            raise _no_resource(parameter)
        try:
            return self.named(name, action)
        except QueueDoesNotExist:
            raise _no_resource(parameter) from None

    def require_owner(self) -> None:
        """Raise a Refusal (AccessDenied) if another account calls. For actions that name no existing queue."""
        keys.require_permission(self.caller, self.action, "", None, self.account)

    def url(self, name: str) -> str:
        return addresses.url_of(self.base, self.account.account_id, name)


def _no_resource(parameter: str) -> ResourceNotFound:
    return ResourceNotFound(f"The resource that you specified for the {parameter} parameter doesn't exist.")
