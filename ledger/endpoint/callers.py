"""Who asks, and whether a queue's policy lets them."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.endpoint.refusals import Refusal
from ledger.rules.arns import Account
from ledger.rules.policy_decision import allows


@dataclass(frozen=True)
class Caller:
    """Whose key a request was signed with: an account, and, where the keys say so, a user's ARN."""

    account_id: str
    user_arn: str | None = None

    @property
    def arn(self) -> str:
        """As policies name the caller."""
        return self.user_arn or f"arn:aws:iam::{self.account_id}:root"


def require(caller: Caller, action: str, queue_arn: str, policy: str | None, owner: Account) -> None:
    """Raises AccessDenied when the queue's policy does not let the caller do this to it."""
    if not allows(policy, owner.account_id, caller.account_id, caller.arn, action, queue_arn):
        what = f" on resource: {queue_arn}" if queue_arn else ""
        raise Refusal("AccessDenied", f"User: {caller.arn} is not authorized to perform: sqs:{action.lower()}{what}")
