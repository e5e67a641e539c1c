"""Queues: made, found, listed, changed, purged and deleted."""

import pytest

from ledger.errors import InvalidAttributeValue, InvalidParameterValue, QueueDoesNotExist, QueueNameExists
from tests.conformance.looking import changing_nothing


def test_creating_a_queue_again_answers_the_same_one(ledger):
    one = ledger.create_queue("again", {"VisibilityTimeout": 60})
    one.send("x")
    for attributes in ({}, None, {"VisibilityTimeout": 60}, {"VisibilityTimeout": "60"}):
        assert ledger.create_queue("again", attributes).counts().visible == 1
    assert one.attributes()["VisibilityTimeout"] == "60"


def test_a_queue_of_the_name_with_another_attribute_is_an_error_that_changes_nothing(ledger):
    queue = ledger.create_queue("again", {"VisibilityTimeout": 60})
    with pytest.raises(QueueNameExists, match=r"VisibilityTimeout.*60.*61"):
        ledger.create_queue("again", {"VisibilityTimeout": 61})
    assert queue.attributes()["VisibilityTimeout"] == "60"


def test_queues_are_listed_by_name_and_prefix(ledger):
    for name in ("list-b", "list-a", "other"):
        ledger.create_queue(name)
    assert [queue.name for queue in ledger.list_queues("list-")] == ["list-a", "list-b"]
    assert {"list-a", "list-b", "other"} <= {queue.name for queue in ledger.list_queues()}
    assert ledger.list_queues("none") == []


def test_a_queue_that_is_not_there_is_an_error_that_names_those_that_are(ledger):
    ledger.create_queue("there")
    for named in (ledger.queue, ledger.delete_queue):
        for wrong in (["jobs"], None, 7, b"jobs"):
            with pytest.raises(InvalidParameterValue, match=r"QueueName.*Must be a text"):
                named(wrong)
    with pytest.raises(QueueDoesNotExist, match=r"'nowhere'.*queues: .*create_queue"):
        ledger.queue("nowhere")
    with pytest.raises(QueueDoesNotExist):
        ledger.delete_queue("nowhere")


def test_attributes_are_set_and_read_and_keep_the_rest(queue, clock, world):
    before = queue.attributes()
    clock.advance(5)
    queue.set_attributes({"VisibilityTimeout": 60})
    after = queue.attributes()
    assert {name for name in before if before[name] != after[name]} == {"VisibilityTimeout", "LastModifiedTimestamp"}
    assert int(after["LastModifiedTimestamp"]) - int(before["CreatedTimestamp"]) == 5
    assert world.open_another().queue(queue.name).attributes() == after


@pytest.mark.parametrize("given", [{"VisibilityTimeout": 43_201}, {"Lanes": 3}, {"Limits": "SQS"}])
def test_a_refused_change_of_attributes_changes_nothing(queue, given):
    before = queue.attributes()
    with pytest.raises(InvalidAttributeValue, match=next(iter(given))):
        queue.set_attributes({"LateChange": "accept", **given})
    assert queue.attributes() == before


def test_v8_v9_receipts_says_for_late_changes_too_what_it_is(make_queue):
    queue = make_queue(LateChange="accept")
    both = lambda: tuple(queue.attributes()[name] for name in ("Receipts", "LateChange"))  # noqa: E731
    assert both() == ("fenced", "accept")
    queue.set_attributes({"Receipts": "recorded"})
    assert both() == ("recorded", "accept")
    with pytest.raises(InvalidAttributeValue, match="Set Receipts=fenced"):
        queue.set_attributes({"LateChange": "reject"})
    queue.set_attributes({"Receipts": "fenced"})
    assert both() == ("fenced", "reject")
    queue.set_attributes({"Receipts": "fenced", "LateChange": "accept"})
    assert both() == ("fenced", "accept")


def test_tags_are_set_replaced_and_read(ledger, world):
    queue = ledger.create_queue("tagged", tags={"team": "blue"})
    assert queue.tags() == {"team": "blue"}
    queue.set_tags({"cost": "7"})
    assert world.open_another().queue("tagged").tags() == {"cost": "7"}
    assert queue.attributes()["VisibilityTimeout"] == "30"


def test_a_queue_made_again_with_other_tags_is_refused_and_keeps_its_own(ledger):
    """Source: pull request 70 of amazon-sqs-java-temporary-queues-client, and 13 of dramatiq_sqs."""
    ledger.create_queue("tagged", tags={"team": "blue"})
    ledger.create_queue("bare")
    assert ledger.create_queue("tagged").tags() == ledger.create_queue("tagged", tags={"team": "blue"}).tags()
    for name, tags in (("tagged", {"team": "red"}), ("tagged", {"team": "blue", "cost": "7"}), ("bare", {"a": "b"})):
        with pytest.raises(QueueNameExists, match=r"different value for attribute tags.*set_tags") as raised:
            ledger.create_queue(name, tags=tags)
        assert raised.value.attribute == "tags"
    assert ledger.queue("tagged").tags() == {"team": "blue"} and ledger.queue("bare").tags() == {}


def test_a_deleted_queue_is_gone_with_its_messages(ledger, queue):
    ids = queue.send(["x"])
    claim = queue.receive()
    (message,) = claim.messages()
    ledger.delete_queue(queue.name)
    for call in (
        lambda: queue.send("y"),
        queue.receive,
        queue.counts,
        queue.purge,
        queue.attributes,
        claim.extend,
        claim.delete,
        lambda: queue.peek(ids[0]),
        lambda: queue.delete(message.receipt_handle),
        lambda: ledger.queue(queue.name),
    ):
        with pytest.raises(QueueDoesNotExist):
            call()


def test_a_queue_made_anew_is_another_one(ledger, queue):
    queue.send(["x", "y"])
    (message,) = queue.receive().messages()
    ledger.delete_queue(queue.name)
    anew = ledger.create_queue(queue.name)
    assert anew.counts().stored == 0 and not anew.receive()
    assert [o.outcome for o in anew.delete([message.receipt_handle])] == ["invalid"]
    with pytest.raises(QueueDoesNotExist):
        queue.send("z")


def test_a_purge_deletes_everything_there_is_whatever_its_state(queue, clock):
    ids = queue.send(["a", "b", "c", "d"])
    queue.receive(1, visibility_timeout=600)
    queue.receive(1).delete()
    seen = {queue.peek(i).message_id: queue.peek(i).status.value for i in ids}
    queue.lock(next(i for i, status in seen.items() if status == "visible"), 60)
    assert queue.purge() == 3
    assert queue.counts().deleted == 4 and queue.counts().age_of_oldest is None
    assert queue.send(["e"]) and queue.receive(None).messages()[0].body == "e"


def test_a_purge_of_an_empty_queue_changes_nothing(queue):
    with changing_nothing(queue):
        assert queue.purge() == 0


def test_queues_do_not_see_each_others_messages(make_queue):
    one, other = make_queue(), make_queue()
    one.send(["x"] * 5)
    assert other.counts().stored == 0 and not other.receive(None)
    assert other.purge() == 0 and one.counts().visible == 5
