"""The caller of a request, and whether a queue's policy allows the call."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.endpoint.refusals import Refusal
from ledger.rules.arns import Account
from ledger.rules.policy_decision import allows


@dataclass(frozen=True)
class Caller:
    """The holder of the key that signed a request: an account, and a user's ARN if the key has one.

    On an endpoint without signatures every caller is the owner's account.
    """

    account_id: str
    user_arn: str | None = None

    @property
    def arn(self) -> str:
        return self.user_arn or f"arn:aws:iam::{self.account_id}:root"


def require(caller: Caller, action: str, queue_arn: str, policy: str | None, owner: Account) -> None:
    """Raise a Refusal (AccessDenied) if the caller may not do the action to the queue (see `policy_decision`).

    `queue_arn` is empty for an action that names no existing queue.
    """
    if not allows(policy, owner.account_id, caller.account_id, caller.arn, action, queue_arn):
        what = f" on resource: {queue_arn}" if queue_arn else ""
        raise Refusal("AccessDenied", f"User: {caller.arn} is not authorized to perform: sqs:{action.lower()}{what}")
