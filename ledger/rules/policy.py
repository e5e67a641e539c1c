"""The statements of a queue's Policy, and its decision about a caller (M4 of docs/reference/rules.md).

The rules are IAM's, except for conditions. An explicit Deny wins, also against the owner's account. The owner's account
needs no Allow. Other accounts need an Allow, and may never do OWNER_ACTIONS. A Deny with a Condition denies, and an
Allow with a Condition does not allow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ledger.errors import InvalidParameterValue, MissingParameter, OverLimit

#: The API reference of AddPermission: "An Amazon SQS policy can have a maximum of seven actions per statement."
MOST_ACTIONS = 7
_LABEL, _ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,80}"), re.compile(r"[0-9]{12}")
#: The actions that may be granted to other accounts. A grant of an action includes its batch action.
ACTIONS = (
    "*",
    "ChangeMessageVisibility",
    "DeleteMessage",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
    "ReceiveMessage",
    "SendMessage",
)
#: The API reference: "Cross-account permissions don't apply to the following actions".
OWNER_ACTIONS = (
    "AddPermission",
    "CancelMessageMoveTask",
    "CreateQueue",
    "DeleteQueue",
    "ListMessageMoveTasks",
    "ListQueues",
    "ListQueueTags",
    "RemovePermission",
    "SetQueueAttributes",
    "StartMessageMoveTask",
    "TagQueue",
    "UntagQueue",
)


UNDERSTOOD = (
    "Each Statement must be an object with Effect (Allow or Deny), Principal or NotPrincipal, Action or NotAction, "
    "and perhaps Resource or NotResource: texts, lists of texts, and principals by their kinds"
)


def is_understood(policy: Mapping[str, Any]) -> bool:
    """Return whether every statement of a policy has the form of UNDERSTOOD.

    A Deny with a misspelled member would silently deny nothing.
    """
    statements = policy.get("Statement", [])
    return all(map(_is_statement, statements if isinstance(statements, list) else [statements]))


def _is_statement(one: object) -> bool:
    return (
        isinstance(one, Mapping)
        and one.get("Effect") in ("Allow", "Deny")
        and _is_named(one, "Principal", 1, by_kind=True)
        and _is_named(one, "Action", 1)
        and _is_named(one, "Resource", 0)
    )


def _is_named(statement: Mapping[str, Any], member: str, least_members: int, *, by_kind: bool = False) -> bool:
    members = [statement[name] for name in (member, f"Not{member}") if name in statement]
    texts = [list(one.values()) if by_kind and isinstance(one, Mapping) else [one] for one in members]
    return least_members <= len(members) <= 1 and all(_are_texts(one) for several in texts for one in several)


def _are_texts(given: object) -> bool:
    return all(isinstance(one, str) for one in (given if isinstance(given, list) else [given]))


def with_permission(
    policy: str | None, arn: str, label: str, account_ids: Sequence[str], actions: Sequence[str]
) -> str:
    """Return the policy with one more statement, which allows the `actions` to the accounts.

    Raises:
        InvalidParameterValue: The label is taken (recorded: "Already exists"), or a value is wrong. M4: an action is
            unknown, or is for the owner alone.
        MissingParameter: A list is empty.
        OverLimit: M4: there are more than MOST_ACTIONS actions.
    """
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        bound = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        raise InvalidParameterValue("Label", label, bound)
    for field, values in (("AWSAccountIds", account_ids), ("Actions", actions)):
        if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) and value for value in values):
            raise InvalidParameterValue(field, values, "Must be a list of strings")
        if not values:
            raise MissingParameter(field)
    for account in account_ids:
        if not _ACCOUNT.fullmatch(account):
            raise InvalidParameterValue("AWSAccountIds", account, "An account's id has 12 digits")
    if len(actions) > MOST_ACTIONS:
        raise OverLimit(f"{len(actions)} Actions were found, maximum allowed is {MOST_ACTIONS}.")
    for action in actions:
        if action not in ACTIONS:
            owner_only = "Only the queue owner is allowed to invoke this action"
            unknown_action = "Please refer to the appropriate WSDL for a list of valid actions"
            raise InvalidParameterValue(
                "ActionName",
                f"SQS:{action}",
                owner_only if action in OWNER_ACTIONS else unknown_action,
                f"Give {', '.join(ACTIONS)}.",
            )
    document = _read(policy, arn)
    if any(statement.get("Sid") == label for statement in document["Statement"]):
        raise InvalidParameterValue("Label", label, "Already exists")
    document["Statement"].append(
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": _unwrap_single([f"arn:aws:iam::{account}:root" for account in account_ids])},
            "Action": _unwrap_single([f"SQS:{action}" for action in actions]),
            "Resource": arn,
        }
    )
    return json.dumps(document)


def without_permission(policy: str | None, label: str) -> str:
    """Return the policy without the statement of a label; the empty text if none is left.

    Raises InvalidParameterValue if there is no such statement.
    """
    document = _read(policy, "")
    others = [statement for statement in document["Statement"] if statement.get("Sid") != label]
    if len(others) == len(document["Statement"]):
        raise InvalidParameterValue("Label", label, "can't find label")
    return json.dumps({**document, "Statement": others}) if others else ""


def _read(policy: str | None, arn: str) -> dict[str, Any]:
    document = json.loads(policy) if policy else {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy"}
    statements = document.get("Statement", [])
    return {**document, "Statement": statements if isinstance(statements, list) else [statements]}


def _unwrap_single(values: list[str]) -> Any:
    return values[0] if len(values) == 1 else values


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
        _matches_member(statement, "Principal", lambda one: _is_principal(one, account_id, caller_arn))
        and _matches_member(statement, "Action", lambda one: any(_matches(one.lower(), name) for name in actions))
        and (
            not {"Resource", "NotResource"}.intersection(statement)
            or _matches_member(statement, "Resource", lambda one: _matches(one, queue_arn))
        )
    )


def _matches_member(statement: Mapping[str, Any], member: str, matches: Any) -> bool:
    """Return whether a statement's member matches, or its `Not` member does not."""
    if member in statement:
        return any(map(matches, _list_texts(statement[member])))
    return f"Not{member}" in statement and not any(map(matches, _list_texts(statement[f"Not{member}"])))


def _list_texts(given: Any) -> list[str]:
    if isinstance(given, Mapping):
        given = [one for name, several in given.items() if name == "AWS" for one in _list_texts(several)]
    return [one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)]


def _is_principal(one: str, account_id: str, caller_arn: str) -> bool:
    root = _ROOT.fullmatch(one)
    return one in ("*", account_id, caller_arn) or (root is not None and root[1] == account_id)


def _matches(pattern: str, text: str) -> bool:
    parts = (".*" if one == "*" else "." if one == "?" else re.escape(one) for one in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None
