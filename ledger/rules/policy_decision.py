"""The decision of a queue's policy about a caller. Only the endpoint enforces policies.

The rules are IAM's, except for conditions. An explicit Deny wins, also against the owner's account. The owner's account
needs no Allow. Other accounts need an Allow, and may never do OWNER_ACTIONS. A Deny with a Condition denies, and an
Allow with a Condition does not allow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ledger.rules.policy import OWNER_ACTIONS

_ROOT = re.compile(r"arn:[a-z-]+:iam::([0-9]{12}):root")


def allows(policy: str | None, owner: str, account_id: str, caller_arn: str, action: str, queue_arn: str) -> bool:
    """Return whether a caller may do an action to a queue. `owner` and `account_id` are the ids of accounts."""
    is_owner = account_id == owner
    if not is_owner and action in OWNER_ACTIONS:
        return False
    effects = {
        statement.get("Effect")
        for statement in _statements(policy)
        if _is_about(statement, account_id, caller_arn, action, queue_arn)
        if statement.get("Effect") == "Deny" or not statement.get("Condition")
    }
    return "Deny" not in effects and (is_owner or "Allow" in effects)


def _statements(policy: str | None) -> list[Mapping[str, Any]]:
    statements = json.loads(policy).get("Statement", []) if policy else []
    return [one for one in (statements if isinstance(statements, list) else [statements]) if isinstance(one, Mapping)]


def _is_about(statement: Mapping[str, Any], account_id: str, caller_arn: str, action: str, queue_arn: str) -> bool:
    granted = action.removesuffix("Batch")
    actions = (f"sqs:{action}".lower(), f"sqs:{granted}".lower())
    return (
        _named(statement, "Principal", lambda one: _is_principal(one, account_id, caller_arn))
        and _named(statement, "Action", lambda one: any(_matches(one.lower(), name) for name in actions))
        and (
            not {"Resource", "NotResource"}.intersection(statement)
            or _named(statement, "Resource", lambda one: _matches(one, queue_arn))
        )
    )


def _named(statement: Mapping[str, Any], member: str, matches: Any) -> bool:
    """Return whether a statement's member matches, or its `Not` member does not."""
    if member in statement:
        return any(map(matches, _listed(statement[member])))
    return f"Not{member}" in statement and not any(map(matches, _listed(statement[f"Not{member}"])))


def _listed(given: Any) -> list[str]:
    if isinstance(given, Mapping):
        given = [one for name, several in given.items() if name == "AWS" for one in _listed(several)]
    return [one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)]


def _is_principal(one: str, account_id: str, caller_arn: str) -> bool:
    root = _ROOT.fullmatch(one)
    return one in ("*", account_id, caller_arn) or (root is not None and root[1] == account_id)


def _matches(pattern: str, text: str) -> bool:
    parts = (".*" if one == "*" else "." if one == "?" else re.escape(one) for one in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None
