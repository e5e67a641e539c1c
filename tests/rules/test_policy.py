"""AddPermission and RemovePermission: the statements of a Policy, as recorded."""

import json

import pytest

from ledger.errors import InvalidAttributeValue, InvalidParameterValue, MissingParameter, OverLimit
from ledger.rules import policy
from ledger.rules.attributes import complete_attributes

ARN = "arn:aws:sqs:ledger:000000000000:jobs"
ONE = policy.with_permission(None, ARN, "label", ["111111111111"], ["ReceiveMessage"])


def test_recorded_the_first_permission_makes_a_policy():
    assert json.loads(ONE) == {
        "Version": "2008-10-17",
        "Id": f"{ARN}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "label",
                "Effect": "Allow",
                "Principal": {"AWS": "arn:aws:iam::111111111111:root"},
                "Action": "SQS:ReceiveMessage",
                "Resource": ARN,
            }
        ],
    }


def test_recorded_several_accounts_and_actions_are_lists():
    text = policy.with_permission(
        None, ARN, "label", ["668614515564", "111111111111"], ["SendMessage", "DeleteMessage"]
    )
    (statement,) = json.loads(text)["Statement"]
    assert statement["Principal"] == {"AWS": ["arn:aws:iam::668614515564:root", "arn:aws:iam::111111111111:root"]}
    assert statement["Action"] == ["SQS:SendMessage", "SQS:DeleteMessage"]


def test_recorded_a_label_that_is_taken_already_exists():
    with pytest.raises(InvalidParameterValue) as raised:
        policy.with_permission(ONE, ARN, "label", ["2" * 12], ["SendMessage"])
    assert (raised.value.field, raised.value.value, raised.value.bound) == ("Label", "label", "Already exists")


def test_recorded_permissions_are_removed_by_label_and_the_last_one_with_the_policy():
    two = policy.with_permission(ONE, ARN, "label2", ["2" * 12], ["SendMessage"])
    assert [statement["Sid"] for statement in json.loads(two)["Statement"]] == ["label", "label2"]
    left = json.loads(policy.without_permission(two, "label"))
    assert [statement["Sid"] for statement in left["Statement"]] == ["label2"]
    assert {name: left[name] for name in ("Version", "Id")} == {
        "Version": "2008-10-17",
        "Id": f"{ARN}/SQSDefaultPolicy",
    }
    assert policy.without_permission(json.dumps(left), "label2") == ""


@pytest.mark.parametrize("known", [None, "", ONE])
def test_recorded_a_label_that_is_not_there_cannot_be_found(known):
    with pytest.raises(InvalidParameterValue) as raised:
        policy.without_permission(known, "label2")
    assert (raised.value.field, raised.value.bound) == ("Label", "can't find label")


def test_a_policy_that_was_set_by_hand_is_kept():
    own = {"Version": "2012-10-17", "Statement": {"Sid": "mine", "Effect": "Deny"}}
    grown = json.loads(policy.with_permission(json.dumps(own), ARN, "label", ["1" * 12], ["SendMessage"]))
    assert grown["Version"] == "2012-10-17"
    assert [statement["Sid"] for statement in grown["Statement"]] == ["mine", "label"]
    assert grown["Statement"][0] == own["Statement"]


@pytest.mark.parametrize(
    ("accounts", "actions", "missing"), [([], ["SendMessage"], "AWSAccountIds"), (["1"], [], "Actions")]
)
def test_a_permission_without_accounts_or_actions_is_refused(accounts, actions, missing):
    with pytest.raises(MissingParameter, match=f"The request must contain the parameter {missing}."):
        policy.with_permission(None, ARN, "label", accounts, actions)


@pytest.mark.parametrize(
    ("accounts", "actions"),
    [("1", ["SendMessage"]), (["1"], "SendMessage"), ([1], ["x"]), ([""], ["x"]), (None, ["x"]), (["1"], 7)],
)
def test_accounts_and_actions_are_lists_of_strings(accounts, actions):
    with pytest.raises(InvalidParameterValue, match=r"(AWSAccountIds|Actions).*list of strings"):
        policy.with_permission(None, ARN, "label", accounts, actions)


@pytest.mark.parametrize("label", ["", "x" * 81, "a b", "a.b", "é", "a\n", None])
def test_a_label_has_1_to_80_letters_digits_hyphens_and_underscores(label):
    with pytest.raises(InvalidParameterValue, match=r"Label.*1 to 80") as raised:
        policy.with_permission(None, ARN, label, ["2" * 12], ["SendMessage"])
    assert (raised.value.field, raised.value.value) == ("Label", label)
    assert policy.with_permission(None, ARN, "a-B_0" * 16, ["2" * 12], ["SendMessage"])


@pytest.mark.parametrize("account", ["1", "2" * 13, "arn:aws:iam::222222222222:root", "\u0662" * 12])
def test_an_accounts_id_has_12_digits(account):
    with pytest.raises(InvalidParameterValue, match=r"AWSAccountIds.*12 digits") as raised:
        policy.with_permission(None, ARN, "label", ["2" * 12, account], ["SendMessage"])
    assert (raised.value.field, raised.value.value) == ("AWSAccountIds", account)


@pytest.mark.parametrize("action", policy.OWNER_ACTIONS)
def test_m4_what_is_the_owners_alone_is_not_granted(action):
    with pytest.raises(InvalidParameterValue) as raised:
        policy.with_permission(None, ARN, "label", ["2" * 12], ["SendMessage", action])
    assert raised.value.message == (
        f"Value SQS:{action} for parameter ActionName is invalid. Reason: Only the queue owner is allowed to invoke "
        "this action."
    )


@pytest.mark.parametrize("action", ["SendMessageBatch", "sendmessage", "Everything"])
def test_m4_what_is_no_action_is_not_granted_either(action):
    with pytest.raises(InvalidParameterValue) as raised:
        policy.with_permission(None, ARN, "label", ["2" * 12], [action])
    assert raised.value.bound == "Please refer to the appropriate WSDL for a list of valid actions"
    assert raised.value.fix == f"Give {', '.join(policy.ACTIONS)}."


def test_m4_seven_actions_are_the_most():
    seven = list(policy.ACTIONS[1:8])
    text = policy.with_permission(None, ARN, "label", ["2" * 12], seven)
    assert json.loads(text)["Statement"][0]["Action"] == [f"SQS:{action}" for action in seven]
    with pytest.raises(OverLimit) as raised:
        policy.with_permission(None, ARN, "label", ["2" * 12], [*seven, "SendMessage"])
    assert raised.value.message == "8 Actions were found, maximum allowed is 7."


GRANT = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*"}


@pytest.mark.parametrize(
    "statement",
    [
        5,
        [5],
        {},
        {**GRANT, "Effect": "deny"},
        {**GRANT, "Principal": 5},
        {**GRANT, "Principal": {"AWS": [5]}},
        {**GRANT, "NotPrincipal": "*"},
        {**GRANT, "Action": {"sqs": "*"}},
        {"Effect": "Deny", "Principal": "*", "Actions": "sqs:*"},
        {**GRANT, "Resource": None},
    ],
)
def test_a_policy_with_a_statement_that_would_neither_allow_nor_deny_is_refused(statement):
    text = json.dumps({"Statement": statement})
    with pytest.raises(InvalidAttributeValue, match="Effect") as raised:
        complete_attributes({"Policy": text})
    assert (raised.value.field, raised.value.value) == ("Policy", text)
    assert raised.value.fix == "A statement without this form would neither allow nor deny anything."


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"Statement": []},
        {"Statement": GRANT},
        {"Statement": {**GRANT, "Effect": "Deny"}},
        {"Statement": [GRANT, {**GRANT, "Principal": {"AWS": ["1", "2"], "Service": "x"}}]},
    ],
)
def test_a_policy_whose_statements_are_whole_is_taken(given):
    text = json.dumps(given)
    assert complete_attributes({"Policy": text})["Policy"] == text


def test_a_policy_that_no_utf_8_can_say_is_refused_by_its_name():
    with pytest.raises(InvalidParameterValue, match="half a character") as raised:
        complete_attributes({"Policy": '{"Id": "\ud800"}'})
    assert raised.value.field == "Policy"


@pytest.mark.parametrize("name", ["Policy", "RedrivePolicy", "RedriveAllowPolicy"])
def test_a_document_that_is_nested_without_end_is_refused_as_none(name):
    with pytest.raises(InvalidParameterValue, match=name):
        complete_attributes({name: "[" * 100_000})
