"""ARNs: the names of queues in policies, in redrive policies and in move tasks."""

from __future__ import annotations

import re
from typing import NamedTuple

_ARN = re.compile(r"arn:[a-z0-9-]+:sqs:([a-z0-9-]*):([0-9]*):([A-Za-z0-9_.-]+)")
ACCOUNT_ID, REGION = r"[0-9]{12}", r"[a-z0-9-]{1,32}"


class Account(NamedTuple):
    account_id: str = "123456789012"
    region: str = "us-east-1"

    def arn(self, name: str) -> str:
        return f"arn:aws:sqs:{self.region}:{self.account_id}:{name}"


DEFAULT = Account()
#: The account of ledgers before account and region were settings. Policies from that time still name it.
FORMER = Account("000000000000", "ledger")


def queue_of(arn: object) -> str | None:
    """Return the queue's name in an ARN of any account, or a text without a colon unchanged; None for other values.

    Stored policies outlive a change of the ledger's account.
    """
    if not isinstance(arn, str) or not arn:
        return None
    match = _ARN.fullmatch(arn)
    return match[3] if match else (None if ":" in arn else arn)


def explain_foreign_arn(arn: object, account: Account) -> str | None:
    """Return, in SQS's words, why an ARN cannot name a queue of this ledger."""
    match = _ARN.fullmatch(arn) if isinstance(arn, str) else None
    if match is None or (match[1], match[2]) in (
        (account.region, account.account_id),
        (FORMER.region, FORMER.account_id),
    ):
        return None
    if match[1] != account.region:
        return "Dead-letter target must be in same region as the source"
    return "Dead-letter target owner should be same as the source"
