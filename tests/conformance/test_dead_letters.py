"""D1: what was received too often goes to the dead-letter queue, and stays there whatever becomes of its source."""

import itertools

import pyarrow as pa
import pytest

from ledger import Ledger, Settings
from ledger.errors import InvalidParameterValue, MessageDoesNotExist, ReceiptHandleIsInvalid
from ledger.rules import message_id as ids
from ledger.rules.visibility import Verb
from ledger.store.protocol import RUNS, Action
from tests.clock import FrozenClock
from tests.conformance.looking import changing_nothing, statuses

_numbers = itertools.count()
FIFO = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}


def policy(target, count=1):
    return {"deadLetterTargetArn": target.arn, "maxReceiveCount": count}


@pytest.fixture
def dead(make_queue):
    return make_queue(Lanes=1)


@pytest.fixture
def queue(make_queue, dead):
    """A queue of three lanes whose messages are dead after two receives."""
    return make_queue(Lanes=3, RedrivePolicy=policy(dead, 2), VisibilityTimeout=30)


def fail(queue, times=1):
    """Receives all there is and gives it back, so often."""
    for _ in range(times):
        claim = queue.receive(None)
        if claim:
            claim.release()


def bodies(claim):
    return [message.body for message in claim]


@pytest.mark.spark_too
def test_d1_a_message_received_as_often_as_allowed_moves_with_all_that_it_is(queue, dead, clock):
    ids = queue.send(
        [{"MessageBody": "message-1", "MessageAttributes": {"MyAttribute": "foobar"}, "AWSTraceHeader": "Root=1"}]
    )
    sent = queue.peek(ids[0])
    clock.advance(5)
    fail(queue, 2)
    first = queue.peek(ids[0]).first_received_at
    assert dead.counts().stored == 0 and queue.counts().visible == 1, "it moves when it is asked for the third time"
    clock.advance(5)
    assert not queue.receive()
    assert (queue.counts().moved, queue.counts().stored, dead.counts().visible) == (1, 0, 1)
    (message,) = dead.receive().messages()
    assert (message.message_id, message.body) == (ids[0], "message-1")
    assert (message.sent_at, message.first_received_at, message.receive_count) == (sent.sent_at, first, 3)
    assert message.message_attributes == sent.message_attributes and message.aws_trace_header == "Root=1"
    assert message.md5_of_message_attributes == "adb59cd4678ea5a855436b949cd07ab6"
    assert message.dead_letter_source == queue.name
    assert message.attributes()["DeadLetterQueueSourceArn"] == queue.arn
    assert not dead.receive() and not queue.receive()


def test_d1_only_what_was_received_too_often_moves_and_the_rest_is_received(queue, dead):
    old = queue.send(["a", "b", "c"])
    fail(queue, 2)
    queue.send(["d", "e"])
    assert sorted(bodies(queue.receive(None))) == ["d", "e"]
    assert sorted(message.message_id for message in dead.receive(None)) == sorted(old)


def test_d1_a_message_deleted_in_its_last_receive_does_not_move(queue, dead, clock):
    queue.send(["a", "b"])
    fail(queue)
    claim = queue.receive(None)
    queue.delete(claim.messages()[0].receipt_handle)
    clock.advance(30)
    assert not queue.receive(None)
    assert dead.counts().visible == 1 and bodies(dead.receive(None)) == bodies(claim)[1:]


@pytest.mark.spark_too
def test_d1_a_receive_that_is_given_back_uncounted_brings_no_message_nearer_to_its_death(queue, dead, clock):
    ids = queue.send(["a", "b"])
    first = None
    for _ in range(5):
        clock.advance(1)
        claim = queue.receive(None)
        messages = claim.messages()
        assert [message.receive_count for message in messages] == [1, 1]
        first = first or messages[0].first_received_at
        assert claim.release("the host was down", counted=False).messages == 2
        assert claim.release(counted=False).messages == 0, "nothing is left to give back"
    assert dead.counts().stored == 0 and {queue.peek(one).receive_count for one in ids} == {0}
    assert queue.peek(ids[0]).first_received_at == first
    fail(queue, 2)
    assert not queue.receive() and dead.counts().visible == 2


def test_d1_a_peek_and_a_lock_do_not_count(queue, dead, clock):
    ids = queue.send("a")
    for _ in range(5):
        queue.lock(queue.peek(ids[0]).message_id, 1)
        clock.advance(1)
    assert queue.receive() and dead.counts().stored == 0


def test_d1_a_message_in_flight_does_not_move_before_its_deadline(queue, dead, clock):
    queue.send("a")
    fail(queue)
    claim = queue.receive()
    assert not queue.receive() and dead.counts().stored == 0
    claim.extend(60)
    clock.advance(59)
    assert not queue.receive() and dead.counts().stored == 0
    clock.advance(1)
    assert not queue.receive() and dead.counts().visible == 1


def test_d1_a_policy_that_is_set_or_changed_later_counts_earlier_receives(make_queue, dead):
    queue = make_queue()
    queue.send("a")
    fail(queue, 3)
    queue.set_attributes({"RedrivePolicy": policy(dead, 5)})
    fail(queue)
    assert queue.counts().visible == 1
    queue.set_attributes({"RedrivePolicy": policy(dead, 4)})
    assert not queue.receive() and dead.counts().visible == 1


def test_d1_without_the_policy_nothing_moves(queue, dead):
    queue.send("a")
    fail(queue, 2)
    queue.set_attributes({"RedrivePolicy": ""})
    assert "RedrivePolicy" not in queue.attributes()
    fail(queue, 3)
    assert queue.receive().messages()[0].receive_count == 6 and dead.counts().stored == 0


def test_d1_in_the_source_a_moved_message_is_there_no_more_and_its_receipt_is_stale(queue, dead):
    ids = queue.send(["a"])
    fail(queue)
    claim = queue.receive()
    (message,) = claim.messages()
    claim.release()
    assert not queue.receive()
    with changing_nothing(dead, ids), changing_nothing(queue):
        for call in (lambda: queue.peek(ids[0]), lambda: queue.lock(ids[0], 60)):
            with pytest.raises(MessageDoesNotExist):
                call()
        with pytest.raises(ReceiptHandleIsInvalid):
            queue.change_visibility(message.receipt_handle, 60)
        queue.delete(message.receipt_handle)
        assert [outcome.outcome for outcome in queue.delete([message.receipt_handle])] == ["stale"]
        with pytest.raises(ReceiptHandleIsInvalid, match="another queue"):
            dead.delete(message.receipt_handle)
        assert queue.purge() == 0 and queue.restore(claim.receipt_id) == 0
        assert not queue.claim(claim.receipt_id)


def test_d1_dead_letters_are_messages_like_any_other(queue, dead, clock):
    ids = queue.send(["a", "b", "c", "d"])
    fail(queue, 3)
    assert statuses(dead, ids) == ["visible"] * 4
    dead.lock(ids[0], 60)
    claim = dead.receive(2, visibility_timeout=100)
    assert claim.count == 2
    handles = {message.message_id: message.receipt_handle for message in claim}
    one, other = handles
    dead.delete(handles[one])
    claim.extend(200)
    clock.advance(60)
    expected = dict.fromkeys(ids, "visible") | {one: "deleted", other: "in flight"}
    assert dict(zip(ids, statuses(dead, ids))) == expected
    assert dead.restore(claim.receipt_id) == 1 and dead.peek(one).status.value == "visible"
    assert dead.purge() == 4 and not dead.receive(None)


def test_d1_dead_letters_and_messages_sent_to_their_queue_live_side_by_side(queue, dead):
    queue.send(["dead"])
    fail(queue, 3)
    dead.send(["own"])
    found = {message.body: message for message in dead.receive(None)}
    assert {body: m.dead_letter_source for body, m in found.items()} == {"dead": queue.name, "own": None}
    assert (found["dead"].receive_count, found["own"].receive_count) == (3, 1)


def test_d1_a_dead_letter_queue_may_have_one_of_its_own(make_queue, clock):
    last = make_queue()
    middle = make_queue(RedrivePolicy=policy(last, 4))
    first = make_queue(RedrivePolicy=policy(middle, 2))
    ids = first.send(["a"])
    for queue, receives in ((first, 2), (middle, 2), (last, 3)):
        for _ in range(receives):
            (message,) = queue.receive().messages()
            assert message.message_id == ids[0]
            queue.change_visibility(message.receipt_handle, 0)
        assert queue is last or not queue.receive()
    assert message.receive_count == 7, "its counts go on"
    assert message.dead_letter_source == middle.name
    assert [queue.counts().moved for queue in (first, middle, last)] == [1, 1, 0]
    assert last.peek(ids[0]).body == "a"


def test_d1_several_queues_may_share_a_dead_letter_queue(make_queue, dead):
    sources = [make_queue(Lanes=lanes, RedrivePolicy=policy(dead)) for lanes in (1, 2, 5)]
    for number, source in enumerate(sources):
        source.send([f"{number}-{n}" for n in range(20)])
        fail(source, 2)
    assert dead.dead_letter_source_queues() == sorted(source.name for source in sources)
    claim = dead.receive(None)
    assert sorted(bodies(claim)) == sorted(f"{number}-{n}" for number in range(3) for n in range(20))
    assert {(m.body[0], m.dead_letter_source) for m in claim} == {(str(n), s.name) for n, s in enumerate(sources)}
    assert claim.delete().messages == 60


def test_d1_as_long_as_the_target_does_not_exist_messages_stay_and_are_received(ledger, queue, dead):
    queue.send("a")
    fail(queue, 2)
    ledger.delete_queue(dead.name)
    assert queue.receive().messages()[0].receive_count == 3
    assert queue.counts().moved == 0


def test_d1_deleting_the_source_does_not_lose_its_dead_letters(ledger, queue, dead):
    ids = queue.send(["a", "b"])
    fail(queue, 3)
    ledger.delete_queue(queue.name)
    assert sorted(dead.peek(message_id).body for message_id in ids) == ["a", "b"]
    claim = dead.receive(None)
    assert sorted(bodies(claim)) == ["a", "b"] and {m.dead_letter_source for m in claim} == {queue.name}
    assert claim.delete().messages == 2


def test_d1_a_target_that_cannot_be_is_refused_and_nothing_changes(ledger, make_queue, queue, dead):
    before = queue.attributes()
    with pytest.raises(InvalidParameterValue, match="maxReceiveCount: 0, valid values are from 1 to 1000"):
        queue.set_attributes({"RedrivePolicy": policy(dead, 0)})
    with pytest.raises(InvalidParameterValue, match="Dead letter target does not exist"):
        queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": "nowhere", "maxReceiveCount": 1}})
    with pytest.raises(InvalidParameterValue, match="Dead letter target does not exist"):
        own = {"deadLetterTargetArn": "nothing-yet", "maxReceiveCount": 1}
        ledger.create_queue("nothing-yet", {"RedrivePolicy": own})
    fifo = ledger.create_queue(f"wrong-{next(_numbers)}.fifo", FIFO)
    with pytest.raises(InvalidParameterValue, match="same type of queue"):
        queue.set_attributes({"RedrivePolicy": policy(fifo)})
    closed = make_queue(RedriveAllowPolicy={"redrivePermission": "denyAll"})
    with pytest.raises(InvalidParameterValue, match=f"does not allow {queue.name}"):
        queue.set_attributes({"RedrivePolicy": policy(closed)})
    name = f"refused-{next(_numbers)}"
    with pytest.raises(InvalidParameterValue):
        ledger.create_queue(name, {"RedrivePolicy": policy(closed)})
    assert name not in [known.name for known in ledger.list_queues()]
    assert queue.attributes() == before
    named = make_queue(RedriveAllowPolicy={"redrivePermission": "byQueue", "sourceQueueArns": [queue.arn]})
    queue.set_attributes({"RedrivePolicy": policy(named)})
    assert named.dead_letter_source_queues() == [queue.name] and dead.dead_letter_source_queues() == []


def test_d1_an_attempt_that_finds_only_dead_letters_is_empty_and_no_attempt(queue, dead):
    queue.send("a")
    fail(queue, 2)
    assert not queue.receive(attempt_id="job")
    queue.send("b")
    assert bodies(queue.receive(attempt_id="job")) == ["b"]


def test_a_dead_letter_queue_made_anew_with_other_lanes_takes_nothing_of_a_fifo_queue(world):
    """A group is in one lane, or two receivers could each hold some of it: what would be moved stays receivable."""
    ledger, name = world.ledger, f"anew-{next(_numbers)}"
    dead = world.maker.create_queue(f"{name}-dead.fifo", {**FIFO, "Lanes": 2})
    world.maker.create_queue(f"{name}.fifo", {**FIFO, "Lanes": 2, "RedrivePolicy": policy(dead, 1)})
    queue = ledger.queue(f"{name}.fifo")
    queue.send(["a", "b"], message_group_id="g")
    fail(queue)
    world.maker.delete_queue(dead.name)
    world.maker.create_queue(dead.name, {**FIFO, "Lanes": 3})
    assert bodies(queue.receive(None)) == ["a", "b"]
    assert ledger.queue(dead.name).counts().stored == 0


@pytest.fixture
def own(make_queue):
    """A queue that is its own dead-letter queue."""
    queue = make_queue(Lanes=3, VisibilityTimeout=30)
    queue.set_attributes({"RedrivePolicy": policy(queue, 2)})
    return queue


def test_m4_a_queue_may_be_its_own_dead_letter_target(own, clock):
    """What was received too often begins anew there, in the commit that finds it; nothing is lost, nothing doubled."""
    ids = own.send(["a", "b"])
    fail(own, 2)
    own.send("new")
    stale = own.peek(ids[0])
    assert bodies(own.receive(None)) == ["new"]
    assert own.counts().visible == 2 and own.counts().moved == 0
    assert own.dead_letter_source_queues() == [own.name]
    again = own.receive(None)
    assert sorted(bodies(again)) == ["a", "b"]
    assert {(m.receive_count, m.dead_letter_source) for m in again} == {(1, own.name)}
    assert stale.receive_count == 2 and again.delete().messages == 2
    assert statuses(own, ids) == ["deleted", "deleted"]


def test_m4_a_receipt_of_before_is_stale_in_its_own_queue(own):
    (message_id,) = own.send(["a"])
    fail(own)
    (message,) = own.receive().messages()
    own.change_visibility(message.receipt_handle, 0)
    assert not own.receive()
    with changing_nothing(own, [message_id]):
        own.delete(message.receipt_handle)
        with pytest.raises(ReceiptHandleIsInvalid):
            own.change_visibility(message.receipt_handle, 60)
    assert bodies(own.receive()) == ["a"]


def test_m4_in_its_own_queue_a_dead_letter_expires_as_it_would_have(own, clock):
    own.set_attributes({"MessageRetentionPeriod": 100})
    own.send("a")
    for _ in range(9):
        fail(own)
        clock.advance(11)
    assert own.counts().visible == 1
    clock.advance(1)
    assert not own.receive() and own.counts().expired == 1


def test_m4_a_redrive_leaves_a_queues_own_dead_letters_where_they_are(own):
    own.send("a")
    fail(own, 2)
    assert not own.receive()
    assert own.redrive() == 0 and own.counts().visible == 1


def test_m4_a_fifo_queue_may_be_its_own_too_and_the_dead_letter_comes_last(ledger, clock):
    fifo = ledger.create_queue(f"own-{next(_numbers)}.fifo", {**FIFO, "Lanes": 2})
    fifo.set_attributes({"RedrivePolicy": policy(fifo)})
    for body in ("a1", "a2"):
        fifo.send(body, message_group_id="a")
    clock.advance(1)
    fifo.receive(1).release()
    clock.advance(1)
    second = fifo.receive(None)
    assert bodies(second) == ["a2"]
    assert not fifo.receive(None), "the group is in flight"
    second.delete()
    assert bodies(fifo.receive(None)) == ["a1"]


def test_dead_letter_sources_are_listed_page_by_page(ledger, make_queue, dead):
    sources = sorted(make_queue(RedrivePolicy=policy(dead, 1)).name for _ in range(3))
    assert dead.dead_letter_source_queues() == sources
    first = dead.dead_letter_source_queues(max_results=2)
    assert first == sources[:2] and dead.dead_letter_source_queues(after=first[-1], max_results=2) == sources[2:]
    with pytest.raises(InvalidParameterValue, match="MaxResults"):
        dead.dead_letter_source_queues(max_results=0)


def test_m4_the_account_and_region_of_arns_are_settings():
    ledger = Ledger.in_memory(FrozenClock(), Settings(account_id="111122223333", region="eu-west-1"))
    dead, queue = ledger.create_queue("dead"), ledger.create_queue("jobs")
    assert dead.arn == dead.attributes()["QueueArn"] == "arn:aws:sqs:eu-west-1:111122223333:dead"
    queue.set_attributes({"RedrivePolicy": policy(dead, 1)})
    for other in ("arn:aws:sqs:us-east-1:111122223333:dead", "arn:aws:sqs:eu-west-1:123456789012:dead"):
        with pytest.raises(InvalidParameterValue, match="Dead-letter target"):
            queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": other, "maxReceiveCount": 1}})
    queue.send("a")
    assert queue.receive(visibility_timeout=0) and not queue.receive()
    (message,) = dead.receive()
    assert message.attributes()["DeadLetterQueueSourceArn"] == queue.arn


# Rejected by their holder: dead letters at once.


def reject(queue, claim, bodies=None, reason=None):
    """Rejects messages of a claim: all, or those of these bodies."""
    runs = claim.grant.runs.select(RUNS.names)
    if bodies is not None:
        named = [ids.place(message.message_id) for message in claim.messages() if message.body in bodies]
        lane = {row["segment"]: row["lane"] for row in runs.to_pylist()}
        rows = [(lane[segment], segment, seq, seq) for segment, seq in named]
        runs = pa.table([list(column) for column in zip(*rows)], schema=RUNS)
    action = Action(Verb.CHANGE, claim.receipt_id, runs, 0, True, reason=reason)
    with claim.endings.ending(runs):
        return queue.access.store.reject(queue.access.record(), [action], queue.access.clock)


@pytest.mark.spark_too
def test_a_rejected_message_moves_at_once_and_no_other_does(queue, dead, clock):
    queue.send(["good", "bad", "worse"])
    claim = queue.receive(3)
    assert reject(queue, claim, ["bad", "worse"]) == 2
    assert (queue.counts().moved, queue.counts().in_flight, dead.counts().visible) == (2, 1, 2)
    assert claim.delete().messages == 1, "what was rejected is no longer part of the claim, and not lost"
    found = dead.receive(3).messages()
    assert sorted(message.body for message in found) == ["bad", "worse"]
    assert {message.dead_letter_source for message in found} == {queue.name}
    assert {message.receive_count for message in found} == {2}


def test_a_claim_that_was_rejected_as_a_whole_is_not_lost(queue, dead):
    queue.send(["bad", "worse"])
    claim = queue.receive(2)
    assert reject(queue, claim) == 2
    assert claim.release().messages == 0 and claim.extend().lost == 0
    assert reject(queue, claim) == 0, "and a second time nothing happens"
    assert dead.counts().visible == 2


def test_only_what_the_receipt_holds_is_rejected(queue, dead, clock):
    queue.send("bad")
    stale = queue.receive()
    clock.advance(31)
    assert reject(queue, stale) == 0, "its lease has run out"
    fresh = queue.receive()
    assert reject(queue, stale) == 0 and fresh.held == 1
    fresh.delete()
    assert reject(queue, fresh) == 0 and dead.counts().stored == 0


def test_without_a_dead_letter_queue_nothing_is_rejected(make_queue):
    queue = make_queue()
    queue.send("bad")
    claim = queue.receive()
    assert reject(queue, claim) is None and queue.counts().in_flight == 1


def test_a_queue_that_is_its_own_dead_letter_queue_rejects_nothing(make_queue):
    queue = make_queue()
    queue.set_attributes({"RedrivePolicy": policy(queue)})
    queue.send("bad")
    claim = queue.receive()
    assert reject(queue, claim) is None and queue.counts().in_flight == 1


def test_a_rejected_message_of_a_fifo_queue_lets_its_group_go_on(make_fifo):
    dead = make_fifo(Lanes=2)
    queue = make_fifo(Lanes=2, RedrivePolicy=policy(dead, 5))
    queue.send([{"MessageBody": str(n), "MessageGroupId": "g"} for n in range(3)])
    claim = queue.receive()
    assert reject(queue, claim) == 1
    assert bodies(queue.receive(5)) == ["1", "2"] and bodies(dead.receive(5)) == ["0"]


def test_a_rejected_message_goes_back_by_a_redrive(queue, dead):
    (sent,) = queue.send(["bad"])
    reject(queue, queue.receive())
    assert dead.redrive() == 1
    (message,) = queue.receive().messages()
    assert (message.message_id, message.receive_count) == (sent, 1)
