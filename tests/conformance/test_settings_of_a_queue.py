"""Tags, permissions, listing in pages, and what create_queue says of a queue that exists."""

import itertools
import json
import threading

import pytest

from ledger.errors import (
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidParameterValue,
    MissingParameter,
    QueueDoesNotExist,
    QueueNameExists,
)

_numbers = itertools.count()
NUMBERS = {"DelaySeconds": "5", "VisibilityTimeout": "7", "MaximumMessageSize": "2048"}
FIFTY = {f"{n}": "x" for n in range(50)}


@pytest.fixture
def fifo(ledger):
    name = f"settings-{next(_numbers)}.fifo"
    return ledger.create_queue(name, {"FifoQueue": "true", "ContentBasedDeduplication": "true"})


def test_recorded_tags_are_kept_and_replaced(queue):
    """Recorded: tag_untag_queue."""
    queue.set_tags({"tag1": "value1", "tag2": "value2", "tag3": ""})
    assert queue.tags() == {"tag1": "value1", "tag2": "value2", "tag3": ""}
    queue.set_tags({"tag2": "value2"})
    assert queue.tags() == {"tag2": "value2"}
    queue.set_tags({})
    assert queue.tags() == {}


def test_tags_are_added_and_removed_by_their_keys(queue):
    """SQS's TagQueue and UntagQueue: what is not named stays."""
    queue.set_tags({"kept": "1", "changed": "1", "removed": "1"})
    queue.tag({"changed": "2", "new": "2"})
    queue.untag(["removed", "never there"])
    assert queue.tags() == {"kept": "1", "changed": "2", "new": "2"}
    queue.tag({})
    queue.untag([])
    assert queue.tags() == {"kept": "1", "changed": "2", "new": "2"}
    queue.tag({f"{n}": "x" for n in range(47)})
    before = queue.tags()
    with pytest.raises(InvalidParameterValue, match="Too many tags"):
        queue.tag({"one": "more"})
    for wrong in (["k"], {"k": 7}, {"": "x"}, None, "k"):
        with pytest.raises(InvalidParameterValue, match="Tags"):
            queue.tag(wrong)
    for wrong in ("kept", ["kept", 7], None, {"kept": "1"}):
        with pytest.raises(InvalidParameterValue, match="TagKeys"):
            queue.untag(wrong)
    with pytest.raises(InvalidParameterValue, match="Attributes"):
        queue.set_attributes([("DelaySeconds", 5)])
    assert queue.tags() == before


def test_changes_at_the_same_time_all_count(world, queue):
    """Ten threads, each on a ledger of its own, change what nobody else changes."""
    changes = [lambda q, n=n: q.tag({f"{n}": "x"}) for n in range(4)]
    changes += [lambda q, n=n: q.add_permission(f"{n}", ["1" * 12], ["SendMessage"]) for n in range(3)]
    changes += [lambda q, n=n, v=v: q.set_attributes({n: v}) for n, v in NUMBERS.items()]
    start, wrong = threading.Barrier(len(changes)), []

    def run(change):
        mine = world.open_another().queue(queue.name)
        start.wait()
        try:
            change(mine)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(change,)) for change in changes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = queue.attributes()
    assert wrong == [] and queue.tags() == {f"{n}": "x" for n in range(4)}
    assert {name: known[name] for name in NUMBERS} == NUMBERS
    assert sorted(s["Sid"] for s in json.loads(known["Policy"])["Statement"]) == ["0", "1", "2"]


def test_what_is_done_with_a_queue_does_not_reach_its_namesake(ledger, queue):
    queue.set_tags({"old": "x"})
    ledger.delete_queue(queue.name)
    anew = ledger.create_queue(queue.name, {"Lanes": 3}, {"new": "x"})
    before = anew.attributes()
    for late in (
        lambda: queue.set_attributes({"Lanes": 2, "DelaySeconds": 1}),
        lambda: queue.set_tags({}),
        lambda: queue.tag({"old": "x"}),
        lambda: queue.untag(["new"]),
        lambda: queue.add_permission("label", ["1" * 12], ["SendMessage"]),
        lambda: queue.remove_permission("label"),
        lambda: ledger.store.delete_queue(queue.access.made, ledger.clock),
    ):
        with pytest.raises(QueueDoesNotExist):
            late()
    assert (anew.attributes(), anew.tags()) == (before, {"new": "x"})


def test_what_changes_nothing_is_no_change(queue, clock):
    queue.set_tags({"a": "b"})
    before = queue.access.record()
    clock.advance(5)
    queue.set_attributes({"DelaySeconds": "0"})
    queue.tag({"a": "b"})
    assert queue.access.record() == before
    queue.set_attributes({"DelaySeconds": 1})
    assert queue.access.record().modified_at == clock()


def test_tags_are_at_most_fifty_of_limited_length(queue, ledger):
    for right in (FIFTY, {"k" * 128: "v" * 256, "é😀": "ü"}):
        queue.set_tags(right)
        assert queue.tags() == right
    before = queue.tags()
    for wrong in ({**FIFTY, "more": "x"}, {"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}, {"k": 7}):
        with pytest.raises(InvalidParameterValue, match="Tags"):
            queue.set_tags(wrong)
        with pytest.raises(InvalidParameterValue, match="Tags"):
            ledger.create_queue("refused-for-its-tags", {}, wrong)
    assert queue.tags() == before
    assert "refused-for-its-tags" not in [known.name for known in ledger.list_queues()]


def test_recorded_permissions_have_a_life(queue):
    """Recorded: sqs_permission_lifecycle."""
    queue.add_permission("crossaccountpermission", ["668614515564", "111111111111"], ["ReceiveMessage"])
    policy = json.loads(queue.attributes()["Policy"])
    (statement,) = policy["Statement"]
    assert (
        policy["Version"] == "2008-10-17"
        and statement["Resource"] == queue.arn
        and statement["Sid"] == "crossaccountpermission"
    )
    assert statement["Action"] == "SQS:ReceiveMessage" and statement["Effect"] == "Allow"
    queue.remove_permission("crossaccountpermission")
    assert "Policy" not in queue.attributes()
    queue.add_permission("crossaccountpermission", ["111111111111"], ["ReceiveMessage"])
    with pytest.raises(InvalidParameterValue, match=r"crossaccountpermission.*Label.*Already exists"):
        queue.add_permission("crossaccountpermission", ["111111111111"], ["ReceiveMessage"])
    queue.add_permission("crossaccountpermission2", ["111111111111"], ["ReceiveMessage"])
    queue.remove_permission("crossaccountpermission")
    (left,) = json.loads(queue.attributes()["Policy"])["Statement"]
    assert left["Sid"] == "crossaccountpermission2"
    queue.remove_permission("crossaccountpermission2")
    with pytest.raises(InvalidParameterValue, match=r"crossaccountpermission2.*Label.*can't find label"):
        queue.remove_permission("crossaccountpermission2")
    with pytest.raises(MissingParameter, match="Actions"):
        queue.add_permission("label", ["1" * 12], [])
    assert "Policy" not in queue.attributes()


def test_a_policy_is_set_read_and_removed_as_an_attribute(queue):
    queue.set_attributes({"Policy": '{"Statement": []}'})
    assert queue.attributes()["Policy"] == '{"Statement": []}'
    queue.set_attributes({"Policy": ""})
    assert "Policy" not in queue.attributes()
    with pytest.raises(InvalidAttributeValue, match=r"Policy.*JSON object"):
        queue.set_attributes({"Policy": "[]"})


def test_queues_are_listed_in_pages(ledger):
    names = [f"paged-{letter}" for letter in "cabed"]
    for name in names:
        ledger.create_queue(name)
    seen, after = [], ""
    while page := ledger.list_queues("paged-", after=after, max_results=2):
        assert len(page) <= 2
        seen += [queue.name for queue in page]
        after = seen[-1]
    assert seen == sorted(names)
    assert [queue.name for queue in ledger.list_queues("paged-", after="paged-bb")] == ["paged-c", "paged-d", "paged-e"]
    assert [queue.name for queue in ledger.list_queues("paged-", max_results=1_000)] == sorted(names)
    for wrong in (0, -1, 1.5, "2"):
        with pytest.raises(InvalidParameterValue, match="MaxResults"):
            ledger.list_queues(max_results=wrong)


def test_recorded_a_fifo_queue_that_exists_with_another_attribute_is_an_error(ledger, fifo):
    """Recorded: create_fifo_queue_with_different_attributes_raises_error."""
    said = "A queue already exists with the same name and a different value for attribute ContentBasedDeduplication"
    for different in ({"FifoQueue": "true", "ContentBasedDeduplication": "false"},):
        with pytest.raises(QueueNameExists, match=said):
            ledger.create_queue(fifo.name, different)
    same = {"FifoQueue": "true", "ContentBasedDeduplication": True}
    fifo.send("x", message_group_id="g")
    for attributes in (same, {"FifoQueue": True}, {"FifoQueue": "true", "DelaySeconds": "0"}):
        assert ledger.create_queue(fifo.name, attributes).counts().visible == 1
    assert fifo.attributes()["ContentBasedDeduplication"] == "true"


def test_a_queue_that_exists_with_a_policy_is_the_same_with_the_same_policy_only(ledger, make_queue):
    dead = make_queue()
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 3}
    queue = make_queue(RedrivePolicy=policy)
    assert ledger.create_queue(queue.name, {"RedrivePolicy": policy}).attributes() == queue.attributes()
    assert ledger.create_queue(queue.name).attributes() == queue.attributes()
    for other in ({**policy, "maxReceiveCount": 4}, ""):
        with pytest.raises(QueueNameExists, match="attribute RedrivePolicy"):
            ledger.create_queue(queue.name, {"RedrivePolicy": other})


def test_recorded_the_type_of_a_queue_is_fixed_and_is_in_its_name(ledger, queue, fifo):
    """Recorded: set_unsupported_attribute_fifo, create_standard_queue_with_fifo_attribute_raises_error."""
    with pytest.raises(InvalidAttributeName, match=r"Unknown Attribute FifoQueue\."):
        queue.set_attributes({"FifoQueue": "true"})
    with pytest.raises(InvalidAttributeValue, match=r"FifoQueue.*Modifying queue type is not supported"):
        fifo.set_attributes({"FifoQueue": "false"})
    fifo.set_attributes({"FifoQueue": "true"})
    names = [known.name for known in ledger.list_queues()]
    for name, attributes in (
        ("no-suffix", {"FifoQueue": "true"}),
        ("suffix.fifo", {}),
        ("no-suffix", {"FifoQueue": "false"}),
    ):
        with pytest.raises((InvalidParameterValue, InvalidAttributeName)):
            ledger.create_queue(name, attributes)
    assert [known.name for known in ledger.list_queues()] == names


def test_recorded_a_queues_attributes_go_there_and_back(queue):
    """Recorded: set_queue_attributes_default_values."""
    before = queue.attributes()
    changed = {
        "DelaySeconds": "5",
        "MessageRetentionPeriod": "120",
        "VisibilityTimeout": "7",
        "MaximumMessageSize": "2048",
    }
    queue.set_attributes(changed)
    assert {name: queue.attributes()[name] for name in changed} == changed
    queue.set_attributes({name: before[name] for name in changed})
    assert queue.attributes() == before
    assert before["QueueArn"] == queue.arn and queue.arn.endswith(f":{queue.name}")
