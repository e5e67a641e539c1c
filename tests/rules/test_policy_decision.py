"""Who a queue's policy lets do what: a Deny wins, the owner needs no Allow, others do."""

import json

import pytest

from ledger.rules.policy import allows

OWNER, OTHER, QUEUE = "123456789012", "210987654321", "arn:aws:sqs:us-east-1:123456789012:q"
USER = f"arn:aws:iam::{OTHER}:user/one"


def policy(*statements):
    return json.dumps({"Statement": list(statements)})


def statement(effect="Allow", **members):
    return {"Effect": effect, "Principal": {"AWS": OTHER}, "Action": "SQS:SendMessage", "Resource": QUEUE, **members}


def may(text, account=OTHER, arn=USER, action="SendMessage"):
    return allows(text, OWNER, account, arn, action, QUEUE)


def test_the_owner_needs_no_policy_and_others_do():
    assert may(None, OWNER) and not may(None) and not may(policy())
    assert may(policy(statement()))
    assert may(json.dumps({"Statement": statement()})), "one statement needs no list"
    assert not may("{}") and may("{}", OWNER)


@pytest.mark.parametrize(
    "members",
    [
        {"Principal": "*"},
        {"Principal": {"AWS": "*"}},
        {"Principal": {"AWS": [OWNER, OTHER]}},
        {"Principal": {"AWS": f"arn:aws:iam::{OTHER}:root"}},
        {"Principal": {"AWS": USER}},
        {"Action": "sqs:*"},
        {"Action": ["sqs:Receive*", "SQS:Send*"]},
        {"Resource": "*"},
        {"Resource": "arn:aws:sqs:*:123456789012:?"},
    ],
)
def test_a_statement_names_callers_actions_and_queues_in_several_ways(members):
    assert may(policy(statement(**members)))


@pytest.mark.parametrize(
    "members",
    [
        {"Principal": {"AWS": OWNER}},
        {"Principal": {"Service": OTHER}},
        {"Principal": {"AWS": USER + "s"}},
        {"Action": "sqs:ReceiveMessage"},
        {"Action": "sns:*"},
        {"Resource": QUEUE + "q"},
        {"Condition": {"Bool": {"aws:SecureTransport": "true"}}},
    ],
)
def test_what_a_statement_does_not_name_it_does_not_allow(members):
    assert not may(policy(statement(**members)))


def test_a_deny_wins_also_against_the_owner_and_with_a_condition():
    deny = statement("Deny", Principal="*", Condition={"Bool": {"aws:SecureTransport": "false"}})
    assert not may(policy(statement(), deny)) and not may(policy(deny), OWNER)
    assert may(policy(statement("Deny", Principal="*", Action="sqs:PurgeQueue")), OWNER)


def test_not_resource_is_about_all_other_queues():
    other = {name: one for name, one in statement().items() if name != "Resource"}
    assert not may(policy({**other, "NotResource": QUEUE})) and may(policy({**other, "NotResource": QUEUE + "q"}))


def test_not_action_and_not_principal_are_about_all_others():
    but_one = {"Effect": "Deny", "NotPrincipal": {"AWS": OWNER}, "Action": "sqs:*", "Resource": "*"}
    assert not may(policy(statement(), but_one)) and may(policy(but_one), OWNER)
    but_receives = {"Effect": "Allow", "Principal": "*", "NotAction": "sqs:ReceiveMessage", "Resource": "*"}
    assert may(policy(but_receives)) and not may(policy(but_receives), action="ReceiveMessage")


def test_a_batch_is_granted_with_the_action_that_it_is_many_of():
    assert may(policy(statement()), action="SendMessageBatch") and not may(policy(statement()), action="DeleteMessage")
    batches = policy(statement(Action="sqs:SendMessageBatch"))
    assert may(batches, action="SendMessageBatch") and not may(batches), "and it may be named itself"


@pytest.mark.parametrize("action", ["DeleteQueue", "SetQueueAttributes", "AddPermission", "CreateQueue", "ListQueues"])
def test_what_is_the_owners_alone_no_policy_grants(action):
    every = policy(statement(Principal="*", Action="sqs:*", Resource="*"))
    assert not may(every, action=action) and may(every, OWNER, action=action)
