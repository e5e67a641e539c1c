"""D1, D2: redrive policies, who may be whose dead-letter queue, and what a move records."""

import json
from types import SimpleNamespace

import pytest

from ledger.errors import InvalidParameterValue
from ledger.rules import attributes, redrive, visibility
from ledger.rules.arns import DEFAULT, Account, explain_foreign_arn
from ledger.rules.redrive import RedriveAllowPolicy, RedrivePolicy
from ledger.rules.visibility import Record

ARN = "arn:aws:sqs:ledger:000000000000:dead"
HELD = Record("r1", "job", 3, 1_000, 5_000, 35_000, writing_to="t", write_id="w")


def policy(target="dead", count=3):
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": count})}


def allowing(permission, *sources):
    given = {"redrivePermission": permission, **({"sourceQueueArns": list(sources)} if sources else {})}
    return {"RedriveAllowPolicy": json.dumps(given)}


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        (ARN, "dead"),
        ("arn:aws-cn:sqs:cn-north-1:123456789012:a.fifo", "a.fifo"),
        ("dead", "dead"),
        ("a.fifo", "a.fifo"),
        ("arn:aws:sns:eu:1:dead", None),
        ("arn:aws:sqs:eu:1:", None),
        (ARN + ":x", None),
        (ARN + "\n", None),
        ("", None),
        (None, None),
        (7, None),
        ("arn:aws:sqs:eu:1:a b", None),
    ],
)
def test_d1_a_queue_is_named_by_its_arn_or_its_name(arn, name):
    assert redrive.queue_of(arn) == name


def test_d1_a_queues_own_arn_names_it():
    assert redrive.queue_of(DEFAULT.arn("dead")) == "dead"
    assert Account("111122223333", "eu-west-1").arn("a.fifo") == "arn:aws:sqs:eu-west-1:111122223333:a.fifo"


@pytest.mark.parametrize(
    ("arn", "why"),
    [
        (DEFAULT.arn("dead"), None),
        ("dead", None),
        (ARN, None),
        ("arn:aws:sqs:eu-west-1:123456789012:dead", "Dead-letter target must be in same region as the source"),
        ("arn:aws:sqs:us-east-1:111122223333:dead", "Dead-letter target owner should be same as the source"),
        ("arn:aws:sqs:us-east-1:000000000000:dead", "Dead-letter target owner should be same as the source"),
    ],
)
def test_m4_a_queue_of_another_account_or_region_is_no_target_but_the_ledgers_former_arns_are(arn, why):
    given = policy(arn)
    if why is None:
        assert attributes.complete_attributes(given)["RedrivePolicy"] == given["RedrivePolicy"]
        return
    with pytest.raises(InvalidParameterValue) as raised:
        attributes.complete_attributes(given)
    text = given["RedrivePolicy"]
    assert raised.value.message == f"Value {text} for parameter RedrivePolicy is invalid. Reason: {why}."
    assert raised.value.fix == f"This ledger's queues have ARNs like {DEFAULT.arn('name')}."
    stored = {**attributes.complete_attributes({}), **given}
    assert attributes.complete_attributes({"DelaySeconds": 1}, stored)["RedrivePolicy"] == text, (
        "what is stored goes on"
    )
    given = allowing("byQueue", "dead", arn)
    with pytest.raises(InvalidParameterValue, match="can't create the redrive allow policy") as raised:
        attributes.complete_attributes(given)
    assert (raised.value.field, raised.value.value) == ("RedriveAllowPolicy", given["RedriveAllowPolicy"])
    assert DEFAULT.arn("name") in raised.value.fix


@pytest.mark.parametrize("given", [None, 7, "", "dead", "arn:aws:sns:eu-west-1:111122223333:dead", [ARN]])
def test_m4_what_is_no_queues_arn_names_no_queue_of_another_account(given):
    assert explain_foreign_arn(given, DEFAULT) is None


def test_m4_an_account_of_ones_own_is_the_measure():
    own = Account("111122223333", "eu-west-1")
    assert attributes.complete_attributes(policy(own.arn("dead")), account=own)
    with pytest.raises(InvalidParameterValue, match="same region"):
        attributes.complete_attributes(policy(DEFAULT.arn("dead")), account=own)


@pytest.mark.parametrize("count", [1, 3, "3", 1_000, "1000"])
def test_d1_a_policy_names_the_target_and_how_often_a_message_may_be_received(count):
    assert (
        redrive.policy_of(policy(ARN, count))
        == redrive.policy_of(policy("dead", count))
        == RedrivePolicy("dead", int(count))
    )
    assert redrive.policy_of({}) is None


def test_d1_a_policy_is_answered_compact_with_its_count_as_a_number():
    """Recorded: issue 5119 of hashicorp/terraform, where a policy of several lines came back so."""
    given = '{\n  "maxReceiveCount": "3",\n  "deadLetterTargetArn": "dead"\n}'
    answer = '{"deadLetterTargetArn":"dead","maxReceiveCount":3}'
    known = attributes.complete_attributes({"RedrivePolicy": given})
    assert attributes.answer_attributes(known)["RedrivePolicy"] == answer
    assert attributes.answer_attributes({"RedrivePolicy": answer})["RedrivePolicy"] == answer
    for unreadable in (
        "",
        "no JSON",
        '{"maxReceiveCount": 3}',
        '{"deadLetterTargetArn": "dead", "maxReceiveCount": []}',
    ):
        assert attributes.answer_attributes({"RedrivePolicy": unreadable})["RedrivePolicy"] == unreadable


@pytest.mark.parametrize("count", [0, 1_001, -1, 1.5, "many", "", None, True, [3], "\uff13"])
def test_d1_recorded_a_count_out_of_its_range_is_refused(count):
    with pytest.raises(InvalidParameterValue) as raised:
        redrive.policy_of(policy("dead", count))
    assert (raised.value.field, raised.value.value) == ("RedrivePolicy", policy("dead", count)["RedrivePolicy"])
    said = f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive"
    assert raised.value.bound == said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("RedrivePolicy", '{"deadLetterTargetArn": "dead", "maxReceiveCount": 3, "maxReceiveCount": 4}'),
        ("RedriveAllowPolicy", '{"redrivePermission": "denyAll", "redrivePermission": "allowAll"}'),
    ],
)
def test_a_policy_with_a_name_twice_is_refused(name, text):
    with pytest.raises(InvalidParameterValue, match=f"{name}.*a name twice") as raised:
        attributes.complete_attributes({name: text})
    assert (raised.value.field, raised.value.value) == (name, text)
    assert raised.value.fix == "Give each name one value."
    assert (
        attributes.complete_attributes({"DelaySeconds": 1}, {**attributes.complete_attributes({}), name: text})[name]
        == text
    ), "one that is stored is read"


@pytest.mark.parametrize(("text", "why"), [
    ("{}", "Redrive policy does not contain mandatory attribute: maxReceiveCount"),
    ('{"maxReceiveCount": 3}', "Redrive policy does not contain mandatory attribute: deadLetterTargetArn"),
    ('{"deadLetterTargetArn": "arn:aws:sns:a:1:b", "maxReceiveCount": 3}', "Invalid value for deadLetterTargetArn"),
    ('{"deadLetterTargetArn": 7, "maxReceiveCount": 3}', "Invalid value for deadLetterTargetArn"),
    ('{"deadLetterTargetArn": null, "maxReceiveCount": 3}', "Invalid value for deadLetterTargetArn"),
    (
        '{"deadLetterTargetArn": "dead", "maxReceiveCount": 3, "more": 1}',
        "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount]",
    ),
    ("[]", "Redrive policy is not a valid JSON map"),
    ("dead", "Redrive policy is not a valid JSON map"),
])  # fmt: skip
def test_m4_an_error_in_a_policy_is_invalid_parameter_value_in_the_services_words(text, why):
    with pytest.raises(InvalidParameterValue) as raised:
        attributes.complete_attributes({"RedrivePolicy": text})
    assert raised.value.code == "InvalidParameterValue"
    assert raised.value.message == f"Value {text} for parameter RedrivePolicy is invalid. Reason: {why}."
    assert raised.value.fix == ("Give a queue's ARN, or its name." if why.endswith("for deadLetterTargetArn") else "")


@pytest.mark.parametrize(
    ("given", "allows_a"),
    [({}, True), (allowing("allowAll"), True), (allowing("denyAll"), False),
     (allowing("byQueue", "b", "arn:aws:sqs:x:1:a"), True), (allowing("byQueue", "b"), False)],
)  # fmt: skip
def test_d1_the_target_says_which_queues_may_use_it(given, allows_a):
    assert redrive.allow_policy_of(given).allows("a") is allows_a


def test_d1_recorded_ten_queues_may_be_named():
    ten = [f"q{n}" for n in range(10)]
    assert redrive.allow_policy_of(allowing("byQueue", *ten)).sources == tuple(ten)


def test_d1_an_allow_policy_is_read_whole():
    assert redrive.allow_policy_of(allowing("byQueue", "a", ARN)) == RedriveAllowPolicy("byQueue", ("a", "dead"))


@pytest.mark.parametrize("text", [
    "{}", '{"redrivePermission": "some"}', '{"redrivePermission": "byQueue"}', '{"redrivePermission": ["byQueue"]}',
    '{"redrivePermission": "byQueue", "sourceQueueArns": []}',
    '{"redrivePermission": "byQueue", "sourceQueueArns": "a"}',
    '{"redrivePermission": "byQueue", "sourceQueueArns": [7]}',
    '{"redrivePermission": "denyAll", "sourceQueueArns": ["a"]}',
    json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [f"q{n}" for n in range(11)]}),
])  # fmt: skip
def test_d1_an_allow_policy_that_is_none_is_refused(text):
    with pytest.raises(InvalidParameterValue, match=r"RedriveAllowPolicy.*1 to 10 sourceQueueArns") as raised:
        redrive.allow_policy_of({"RedriveAllowPolicy": text})
    assert (raised.value.field, raised.value.value) == ("RedriveAllowPolicy", text)


@pytest.mark.parametrize(("permission", "sources", "why"), [
    ("byQueue", [],
     ". When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values"),
    ("denyAll", ["a"], ". To specify one or more source queue ARNs, you must set redrivePermission to byQueue"),
    ("allowAll", [7], ". To specify one or more source queue ARNs, you must set redrivePermission to byQueue"),
    ("some", ["a"], ""), ("some", [], ""), ("byQueue", ["a", 7], ""), ("denyAll", "a",
     ". To specify one or more source queue ARNs, you must set redrivePermission to byQueue"),
])  # fmt: skip
def test_d1_the_error_of_an_allow_policy_says_what_goes_with_what(permission, sources, why):
    text = json.dumps({"redrivePermission": permission, "sourceQueueArns": sources})
    with pytest.raises(InvalidParameterValue) as raised:
        redrive.allow_policy_of({"RedriveAllowPolicy": text})
    assert raised.value.bound == f"Amazon SQS can't create the redrive allow policy{why}"


def queue(name, **given):
    return SimpleNamespace(id=name, name=name, attributes=attributes.complete_attributes(given))


FIFO = {"FifoQueue": "true"}


@pytest.mark.parametrize(
    ("target", "own", "says"),
    [
        (queue("other"), {}, "Dead letter target does not exist"),
        (queue("dead", **FIFO), {}, "must be same type of queue as the source"),
        (queue("dead"), FIFO, "must be same type of queue as the source"),
        (queue("dead", Lanes=2, **FIFO), FIFO, "equal Lanes; the target has 2"),
        (queue("dead", **allowing("denyAll")), {}, "does not allow source"),
        (queue("dead", **allowing("byQueue", "other")), {}, "does not allow source"),
    ],
)
def test_d1_a_queue_that_cannot_be_the_target_is_refused_when_the_policy_is_set(target, own, says):
    given = policy("dead" if target.name == "other" else target.name)
    complete = attributes.complete_attributes({**own, **given})
    with pytest.raises(InvalidParameterValue, match=says) as raised:
        redrive.require_target([target], "source", complete, given)
    assert raised.value.field == "RedrivePolicy"
    redrive.require_target([target], "source", complete, {"VisibilityTimeout": 1})


@pytest.mark.parametrize(
    ("target", "own"),
    [(queue("dead"), {}), (queue("dead", Lanes=2), {}), (queue("dead", **FIFO), FIFO),
     (queue("dead", **allowing("byQueue", "source")), {})],
)  # fmt: skip
def test_d1_a_queue_that_can_be_the_target_is_taken(target, own):
    given = policy(DEFAULT.arn("dead"))
    redrive.require_target([target], "source", attributes.complete_attributes({**own, **given}), given)


@pytest.mark.parametrize(("count", "dead"), [(0, False), (2, False), (3, True), (4, True)])
def test_d1_a_message_is_dead_once_it_was_received_as_often_as_the_policy_says(count, dead):
    assert redrive.is_dead(Record(receive_count=count), RedrivePolicy("dead", 3)) is dead
    assert not redrive.is_dead(Record(receive_count=count), None)


def test_d1_a_dead_letter_keeps_its_counts_and_no_receipt():
    found = redrive.make_dead_letter(HELD, "source-00000000", 90_000, fifo=False)
    assert found == Record(receive_count=3, first_received_at=1_000, origin_queue="source-00000000")
    moved_before = HELD._replace(enqueued_at=7_000)
    assert redrive.make_dead_letter(moved_before, "source-00000000", 90_000, fifo=False).enqueued_at == 7_000


def test_d1_the_move_restarts_the_retention_on_fifo_queues_only():
    assert redrive.make_dead_letter(HELD, "s", 90_000, fifo=True).enqueued_at == 90_000
    assert redrive.make_dead_letter(HELD, "s", 90_000, fifo=False).enqueued_at is None


def test_d1_the_queue_that_is_left_remembers_where_to():
    assert redrive.mark_moved(HELD, "dead-00000000") == HELD._replace(moved_to="dead-00000000")


def test_d2_a_redriven_message_is_new_where_it_comes_to():
    assert redrive.make_redriven(90_000, "dead-00000000") == Record(enqueued_at=90_000, origin_queue="dead-00000000")


@pytest.mark.parametrize(
    ("source", "destination", "says"),
    [
        (queue("a"), queue("b", Lanes=2), None),
        (queue("a", **FIFO), queue("b", **FIFO), None),
        (queue("a", **FIFO), queue("b"), "same type"),
        (queue("a"), queue("b", **FIFO), "same type"),
        (queue("a", Lanes=3, **FIFO), queue("b", **FIFO), "equal Lanes; the source has 3"),
    ],
)
def test_d1_d2_messages_move_between_two_queues_of_a_type_and_groups_stay_in_their_lane(source, destination, says):
    found = redrive.explain_unfit_destination(source, destination)
    assert found is None if says is None else says in found
    if says is None:
        redrive.require_destination(source, destination)


def test_d2_the_destination_of_a_redrive_is_another_queue():
    """M4: for dead letters it may be the same one."""
    assert redrive.explain_unfit_destination(queue("a"), queue("a")) is None
    with pytest.raises(InvalidParameterValue, match="Must be another queue than the source"):
        redrive.require_destination(queue("a"), queue("a"))


def test_m4_a_dead_letter_in_its_own_queue_begins_anew():
    """And its old receipt is stale there: another one is not on record, and nothing changes through it."""
    own = redrive.make_dead_letter(HELD, "q-0", 90_000, fifo=False, target="q-0")
    assert own == Record(origin_queue="q-0", visible_at=90_000)
    assert redrive.make_dead_letter(HELD, "q-0", 90_000, fifo=True, target="q-0") == own._replace(enqueued_at=90_000)
    assert visibility.find_standing(own, HELD.receipt_id, 90_001) is visibility.Standing.SUPERSEDED


def test_d2_recorded_what_goes_back_comes_from_a_dead_letter_queue():
    error = redrive.make_no_dead_letter_queue_error("jobs")
    assert (error.field, error.value) == ("SourceArn", "jobs")
    assert error.message == "Source queue must be configured as a Dead Letter Queue." == f"{error.bound}."
    assert error.fix == "Name it in another queue's RedrivePolicy."
    assert redrive.make_no_dead_letter_queue_error("jobs", "Another.").fix == "Another."
