"""SenderId: who sent a message is stored with it, and stands beside the attributes that its sender gave it."""

import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue


@pytest.fixture(params=["memory", "delta-rs"])
def sent_by(request, tmp_path):
    if request.param == "memory":
        return lambda who: Ledger.in_memory(sender_id=who)
    return lambda who: Ledger.open(str(tmp_path / "ledger"), engine="delta-rs", sender_id=who)


def test_a_message_says_who_sent_it_and_its_attributes_are_its_own(sent_by):
    queue = sent_by("AIDAEXAMPLE").create_queue("q")
    ids = queue.send([{"MessageBody": "a", "MessageAttributes": {"kind": "express"}}, "b"])
    for message in (*queue.receive(None), *map(queue.peek, ids)):
        assert (message.sender_id, message.attributes()["SenderId"]) == ("AIDAEXAMPLE", "AIDAEXAMPLE")
        assert list(message.message_attributes) == (["kind"] if message.body == "a" else [])
    assert queue.peek(ids[1]).md5_of_message_attributes is None


def test_without_one_it_is_the_account_of_the_queues_arn(sent_by):
    queue = sent_by(None).create_queue("q.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    queue.send("a", message_group_id="g")
    (message,) = queue.receive()
    assert message.sender_id is None and message.attributes()["SenderId"] == queue.arn.split(":")[4]


def test_each_message_has_its_own_and_keeps_it_whoever_receives_it(tmp_path):
    one, other = (Ledger.open(str(tmp_path / "ledger"), sender_id=who) for who in ("one", "other"))
    queue = one.create_queue("q.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    queue.send("a", message_group_id="g")
    other.queue("q.fifo").send("b", message_group_id="g")
    assert [(m.body, m.sender_id) for m in queue.receive(None)] == [("a", "one"), ("b", "other")]


@pytest.mark.parametrize("wrong", ["", "a b", "x" * 129, 7])
def test_what_is_no_sender_is_refused(wrong):
    with pytest.raises(InvalidParameterValue, match="SenderId"):
        Ledger.in_memory(sender_id=wrong)


def test_a_senders_name_cannot_be_an_attribute(sent_by):
    with pytest.raises(InvalidParameterValue):
        sent_by("x").create_queue("q").send("a", message_attributes={"AWS.SenderId": "me"})
