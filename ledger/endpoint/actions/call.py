"""The argument of an action: the request's caller, action, parameters and ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.endpoint import addresses, callers
from ledger.endpoint.callers import Caller
from ledger.errors import ResourceNotFound
from ledger.ledger import Ledger
from ledger.queue import Queue
from ledger.rules.arns import Account, not_ours, queue_of


@dataclass(frozen=True)
class Call:
    """One request: its action, and parameters that were checked against the model (`service_model`).

    `base` is the beginning of queue URLs. `new_queues` has attributes that new queues get if the request does not give
    them. `trace` is the request's X-Amzn-Trace-Id.
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
        """The account that owns the queues."""
        return self.ledger.settings.account

    def get(self, name: str) -> Any:
        """Return a parameter; None if it was not given."""
        return self.parameters.get(name)

    @property
    def queue_named(self) -> str:
        """The last part of QueueUrl, which is the queue's name in every form of QueueUrl; empty without a QueueUrl.

        The name is not checked, and its percent escapes are not decoded.
        """
        return str(self.parameters.get("QueueUrl", "")).rstrip("/").rpartition("/")[2]

    @property
    def known_queue(self) -> str | None:
        """The id of the queue that the action looked up last; None if it has looked up none."""
        return self._found[-1].id if self._found else None

    @property
    def known_name(self) -> str | None:
        """The name of the queue that the action looked up last; None if it has looked up none."""
        return self._found[-1].name if self._found else None

    def queue(self) -> Queue:
        """Return the queue that QueueUrl names, see `named`.

        Raises InvalidAddress, QueueDoesNotExist, AccessDenied.
        """
        url = self.parameters["QueueUrl"]
        return self.named(addresses.name_of(url, self.account.account_id, self.caller.account_id))

    def named(self, name: str, action: str | None = None) -> Queue:
        """Return the queue with a name. Raise AccessDenied if the caller may not do the request's action to it.

        If `action` is given, the check is for this action instead. Raises QueueDoesNotExist.
        """
        queue = self.ledger.queue(name)
        self._found.append(queue)
        policy = queue.access.made.attributes.get("Policy")
        callers.require(self.caller, action or self.action, queue.arn, policy, self.account)
        return queue

    def of_arn(self, parameter: str, action: str | None = None) -> Queue:
        """Return the queue whose ARN is a parameter's value, see `named`. Raises ResourceNotFound, AccessDenied."""
        return self.queue_of(self.parameters[parameter], parameter, action)

    def queue_of(self, arn: str, parameter: str, action: str | None = None) -> Queue:
        """Return the queue of an ARN, see `named`.

        Raises ResourceNotFound, which names `parameter`, and AccessDenied.
        """
        name = queue_of(arn)
        if name is None or ":" not in arn or not_ours(arn, self.account) is not None:
            raise _no_resource(parameter)
        try:
            return self.named(name, action)
        except LookupError:
            raise _no_resource(parameter) from None

    def require_owner(self) -> None:
        """Raise AccessDenied for a caller of another account, in an action that names no existing queue."""
        callers.require(self.caller, self.action, "", None, self.account)

    def url(self, name: str) -> str:
        """Return the URL of a queue."""
        return addresses.url_of(self.base, self.account.account_id, name)


def _no_resource(parameter: str) -> ResourceNotFound:
    return ResourceNotFound(f"The resource that you specified for the {parameter} parameter doesn't exist.")
