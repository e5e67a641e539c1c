"""Whole claims: any number of messages under one receipt, extended, released and deleted at once."""

import pytest

from ledger import claim as claims
from ledger.client.settling import apply
from ledger.errors import ContentionOutlastedRetries, InvalidParameterValue, LeaseLost
from ledger.rules.visibility import Outcome, Verb
from ledger.store.protocol import RUNS, Action, Postponed, count_by_outcome
from tests.conformance.looking import changing_nothing, seconds_until, statuses


def test_an_empty_claim_is_false_and_every_verb_on_it_does_nothing(queue):
    claim = queue.receive()
    assert not claim and len(claim) == 0 and claim.messages() == [] and list(claim) == []
    assert claim.receipt_id is None and claim.deadline is None and claim.version is None
    with changing_nothing(queue):
        for verb in (claim.extend, claim.release, claim.delete):
            assert (verb().messages, verb().lost) == (0, 0)


@pytest.mark.parametrize(("asked", "got"), [(1, 1), (7, 7), (20, 20), (21, 20), (None, 20)])
def test_a_receive_gives_as_many_as_asked_or_as_there_are(queue, asked, got):
    queue.send([f"{n}" for n in range(12)])
    queue.send([f"{n}" for n in range(12, 20)])
    claim = queue.receive(asked)
    assert claim.count == len(claim) == len({m.message_id for m in claim}) == got
    assert queue.counts().in_flight == got


def test_a_claim_says_what_it_is(queue, clock):
    queue.send(["a", "b"])
    claim = queue.receive(None, visibility_timeout=60)
    assert claim and claim.count == 2 and len(claim.receipt_id) == 32
    assert seconds_until(claim, clock) == claim.visibility_timeout == 60
    assert f"Claim(2 messages of {queue.name!r}" in repr(claim)
    for message in claim:
        assert message.status.value == "in flight" and claim.receipt_id in message.receipt_handle
        assert message.visible_at == claim.deadline


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "FIFO"])
def test_a_claim_is_read_some_messages_at_a_time_and_each_once(ledger, fifo, monkeypatch):
    """Those of a FIFO queue all at once, as they have an order."""
    monkeypatch.setattr(claims, "FEW", 3)
    monkeypatch.setattr(claims, "PART", 40)
    attributes = {"FifoQueue": True, "ContentBasedDeduplication": True} if fifo else {"Lanes": 3}
    queue = ledger.create_queue("work.fifo" if fifo else "work", attributes)
    for size in (1, 4, 2, 9):
        bodies = [f"{n} of {size} " + "x" * n for n in range(size)]
        queue.send([{"MessageBody": body, "MessageGroupId": "a"} for body in bodies] if fifo else bodies)
    queue.receive(3).delete()
    claim, reads = queue.receive(None), []
    read = ledger.store.read
    monkeypatch.setattr(ledger.store, "read", lambda record, grant: reads.append(grant.count) or read(record, grant))
    some = list(claim)
    assert sum(reads) == len(some) == 13 and (reads == [13] if fifo else max(reads) < 6)
    whole = claim.messages()
    assert some == whole if fifo else sorted(m.body for m in some) == sorted(m.body for m in whole)
    assert next(iter(claim)) in whole


def test_the_version_of_a_claim_only_grows(queue):
    queue.send(["a", "b", "c"])
    versions = [queue.receive().version for _ in range(3)]
    assert versions == sorted(set(versions))


def test_an_extend_moves_the_deadline_of_the_whole_claim(queue, clock):
    ids = queue.send(["a", "b", "c"])
    claim = queue.receive(None)
    clock.advance(20)
    assert (claim.extend(100).messages, seconds_until(claim, clock)) == (3, 100)
    assert {seconds_until(queue.peek(i), clock) for i in ids} == {100}
    assert claim.extend().messages == 3 and seconds_until(claim, clock) == 30


def test_the_messages_of_an_extended_claim_have_its_new_deadline(queue, clock):
    queue.send(["a", "b"])
    claim = queue.receive(None)
    claim.extend(100)
    clock.advance(50)
    assert {(m.status.value, m.visible_at) for m in claim} == {("in flight", claim.deadline)}


def test_a_release_gives_everything_back_at_once(queue):
    ids = queue.send(["a", "b"])
    claim = queue.receive(None)
    assert (claim.release().messages, claim.release().messages) == (2, 0)
    assert statuses(queue, ids) == ["visible"] * 2
    assert [m.receive_count for m in queue.receive(None)] == [2, 2]


def test_a_delete_deletes_the_claim_and_may_be_repeated(queue):
    ids = queue.send(["a", "b"])
    claim = queue.receive(None)
    assert claim.delete().messages == 2
    with changing_nothing(queue, ids):
        assert (claim.delete().messages, claim.delete().lost) == (0, 0)
    assert statuses(queue, ids) == ["deleted"] * 2


def test_deleting_the_rest_of_a_claim_leaves_alone_what_was_released(queue):
    ids = queue.send(["a", "b", "c"])
    claim = queue.receive(None)
    released = claim.messages()[1]
    claim.settle(release=[released.receipt_handle])
    assert (claim.delete().messages, claim.delete().lost) == (2, 0)
    assert statuses(queue, ids) == ["deleted", "visible", "deleted"]


def test_extending_the_rest_of_a_claim_leaves_alone_what_was_settled(queue):
    ids = queue.send(["a", "b", "c"])
    claim = queue.receive(None)
    handles = [m.receipt_handle for m in claim]
    claim.settle(delete=handles[:1], release=handles[1:2])
    assert (claim.extend(60).messages, claim.extend(60).lost) == (1, 0)
    assert statuses(queue, ids) == ["deleted", "visible", "in flight"]


@pytest.mark.parametrize("end", ["delete", "release"])
def test_a_claim_that_was_deleted_or_released_says_that_it_is_over(queue, end):
    queue.send(["a", "b", "c"])
    claim = queue.receive(None)
    assert f"Claim(3 messages of '{queue.name}', receipt {claim.receipt_id}, until {claim.deadline})" == repr(claim)
    queue.delete([claim.messages()[0].receipt_handle])
    assert claim and claim.held == 2 and "2 of 3 messages" in repr(claim) and "until 2" in repr(claim)
    getattr(claim, end)()
    assert not claim and (claim.held, claim.count, claim.deadline) == (0, 3, None)
    assert repr(claim) == f"Claim(3 messages of '{queue.name}', receipt {claim.receipt_id}, over)"


def test_a_claim_that_a_verb_found_to_be_lost_is_over_and_one_that_only_ran_out_shows_when(queue, clock):
    queue.send(["a", "b"])
    claim = queue.receive(None)
    clock.advance(30)
    assert claim and claim.deadline.timestamp() * 1_000 == clock(), "nobody was asked"
    queue.receive(None)
    with pytest.raises(LeaseLost):
        claim.delete()
    assert not claim and claim.deadline is None


def test_a_claim_that_partly_went_to_others_says_how_much_was_lost(queue, clock):
    ids = queue.send(["a", "b", "c"])
    claim = queue.receive(None)
    handles = [m.receipt_handle for m in claim]
    queue.change_visibility(handles[0], 600)
    clock.advance(30)
    assert queue.receive(1)
    extended = claim.extend(60)
    assert (extended.messages, extended.lost) == (1, 2)
    deleted = claim.delete()
    # Of the two that ran out, the one that nobody received is deleted (V10).
    assert (deleted.messages, deleted.lost) == (2, 1)
    assert sorted(statuses(queue, ids)) == ["deleted", "deleted", "in flight"]


def test_a_lost_claim_is_an_error_that_changes_nothing(queue, clock):
    ids = queue.send(["a", "b"])
    claim = queue.receive(None)
    clock.advance(30)
    with changing_nothing(queue, ids):
        for verb in (claim.extend, claim.release):
            with pytest.raises(LeaseLost, match=r"2 ran out or were received by others"):
                verb()
    queue.receive(None)
    with changing_nothing(queue, ids):
        for verb in (claim.extend, claim.release, claim.delete):
            with pytest.raises(LeaseLost):
                verb()


def test_a_claim_whose_messages_others_deleted_is_lost(queue, clock):
    ids = queue.send(["a", "b"])
    claim = queue.receive(None)
    clock.advance(30)
    queue.receive(None).delete()
    with changing_nothing(queue, ids):
        for verb in (claim.extend, claim.release, claim.delete):
            with pytest.raises(LeaseLost):
                verb()


def test_a_claim_beyond_its_ceiling_changes_nothing(queue, clock):
    ids = queue.send(["a", "b"])
    claim = queue.receive(None)
    clock.advance(1)
    deadline = claim.deadline
    with changing_nothing(queue, ids), pytest.raises(InvalidParameterValue, match=r"VisibilityTimeout.*43200 seconds"):
        claim.extend(43_200)
    assert claim.deadline == deadline


def test_another_process_carries_on_with_a_claim_by_its_receipt(queue, world, clock):
    ids = queue.send(["a", "b", "c"])
    claim = queue.receive(None, visibility_timeout=100)
    queue.delete(claim.messages()[0].receipt_handle)
    found = world.open_another().queue(queue.name).claim(claim.receipt_id)
    assert (found.receipt_id, found.count, found.deadline) == (claim.receipt_id, 2, claim.deadline)
    assert [m.receipt_handle for m in found] == [m.receipt_handle for m in claim][1:]
    assert found.delete().messages == 2
    assert statuses(queue, ids) == ["deleted"] * 3
    assert not queue.claim(claim.receipt_id)


@pytest.mark.parametrize("receipt_id", ["0" * 32, "", None])
def test_a_receipt_that_nobody_has_is_an_empty_claim(queue, receipt_id):
    queue.send("x")
    queue.receive()
    assert not queue.claim(receipt_id)


def test_a_claim_that_another_process_carries_on_ends_with_the_last_of_its_messages(queue, clock):
    queue.send("received before")
    queue.receive(None).release()
    queue.send("new")
    claim = queue.receive(None)
    (new,) = [message for message in claim if message.body == "new"]
    queue.change_visibility([new.receipt_handle], 100)
    assert seconds_until(queue.claim(claim.receipt_id), clock) == 100


def test_a_claim_of_hundreds_splits_and_joins_again(queue):
    queue.send([f"{n}" for n in range(300)])
    claim = queue.receive(None)
    handles = [m.receipt_handle for m in claim]
    assert {o.outcome for o in queue.delete(handles[::3])} == {"deleted"}
    assert {o.outcome for o in queue.change_visibility(handles[1::3], 0)} == {"changed"}
    counts = queue.counts()
    assert (counts.deleted, counts.visible, counts.in_flight) == (100, 100, 100)
    other = queue.receive(None)
    assert [m.body for m in other] == [f"{n}" for n in range(1, 300, 3)]
    assert claim.extend(600).messages == 100
    assert (other.delete().messages, claim.delete().messages) == (100, 100)
    assert queue.counts().deleted == 300


def test_a_claim_that_another_holder_of_its_receipt_ended_is_lost(queue, world):
    """A second task with the same attempt id has the same receipt. What it ends is not settled by the first one."""
    ids = queue.send(["a", "b", "c"])
    claim = queue.receive(None, attempt_id="shared")
    other = world.open_another().queue(queue.name).receive(None, attempt_id="shared")
    claim.check()
    assert other.receipt_id == claim.receipt_id and other.release().messages == 3
    with changing_nothing(queue, ids):
        for verb in (claim.check, claim.extend, claim.release, claim.delete):
            with pytest.raises(LeaseLost, match=r"3 ran out.*another holder of the receipt.*attempt id"):
                verb()
    other.check()


def test_a_claim_says_how_much_of_it_another_holder_of_its_receipt_ended(queue, world):
    queue.send([f"{n}" for n in range(10)])
    claim = queue.receive(None)
    handles = [message.receipt_handle for message in claim]
    other = world.open_another().queue(queue.name)
    claim.settle(release=handles[:2])
    other.delete(handles[2:5])
    claim.check()
    assert (claim.extend(60).messages, claim.extend(60).lost) == (5, 3)
    assert other.claim(claim.receipt_id).count == 5, "what was given back is no part of it"
    deleted = claim.delete()
    assert (deleted.messages, deleted.lost) == (5, 3)
    with pytest.raises(LeaseLost, match="of its 10 messages 3"):
        claim.delete()


def test_a_check_finds_a_claim_that_ran_out_or_went_to_others_and_one_that_is_settled(queue, clock):
    ids = queue.send(["a", "b"])
    claim = queue.receive(None)
    queue.delete(claim.messages()[0].receipt_handle)
    with changing_nothing(queue, ids):
        claim.check()
    clock.advance(30)
    with pytest.raises(LeaseLost, match="1 ran out"):
        claim.check()
    newer = queue.receive(None)
    with pytest.raises(LeaseLost):
        claim.check()
    newer.delete()
    newer.check()
    queue.receive().check()


def test_a_delete_whose_answer_was_lost_may_be_repeated_and_is_no_loss(queue, monkeypatch):
    queue.send(["a", "b"])
    claim, working = queue.receive(None), queue.access.store.apply

    def losing(*arguments):
        working(*arguments)
        raise ConnectionError("the answer is lost")

    monkeypatch.setattr(queue.access.store, "apply", losing)
    with pytest.raises(ConnectionError):
        claim.delete()
    monkeypatch.setattr(queue.access.store, "apply", working)
    assert claim and claim.deadline, "who knows"
    claim.check()
    assert (claim.delete().messages, claim.delete().lost) == (0, 0) and not claim


def test_a_release_that_lost_to_other_writers_ended_nothing(queue, world, monkeypatch):
    queue.send(["a"])
    claim, working = queue.receive(), queue.access.store.apply

    def losing(*arguments):
        raise ContentionOutlastedRetries("delete", 60, 1.0)

    monkeypatch.setattr(queue.access.store, "apply", losing)
    with pytest.raises(ContentionOutlastedRetries):
        claim.release()
    monkeypatch.setattr(queue.access.store, "apply", working)
    world.open_another().queue(queue.name).claim(claim.receipt_id).release()
    with pytest.raises(LeaseLost):
        claim.release()


def test_leases_say_who_holds_how_many_messages_and_until_when(queue, clock):
    queue.send([f"{n}" for n in range(9)])
    first, second = queue.receive(4, 60, attempt_id="task/0"), queue.receive(3, 60)
    ended = queue.receive(1, 60)
    ended.release()
    one, *_ = first.messages()
    queue.change_visibility(one.receipt_handle, 100)
    store, record = queue.access.store, queue.access.record()
    held = [(first.receipt_id, "task/0", 60, 3), (first.receipt_id, "task/0", 100, 1), (second.receipt_id, None, 60, 3)]
    found = [lease._replace(visible_at=(lease.visible_at - clock()) // 1_000) for lease in store.leases(record, clock)]
    assert found == sorted(held, key=lambda lease: (lease[0], lease[2]))
    clock.advance(60)
    assert [lease.messages for lease in store.leases(record, clock)] == [1]


@pytest.mark.spark_too
@pytest.mark.parametrize("postponed", Postponed)
def test_what_a_claim_postpones_is_hidden_and_neither_its_heartbeat_nor_its_attempt_has_it(queue, clock, postponed):
    queue.send([f"{n}" for n in range(4)])
    claim = queue.receive(None, 60, attempt_id="task")
    access, some = queue.access, claim.grant.part(0, 2)
    action = Action(Verb.CHANGE, claim.receipt_id, some.runs.select(RUNS.names), 20, True, postponed=postponed)
    (answer,) = apply(access, access.record(), [action])
    assert count_by_outcome(answer) == {Outcome.CHANGED: 2}
    store, record = access.store, access.record()
    assert [lease.messages for lease in store.leases(record, clock)] == [2]
    (hidden,) = store.postponed(record, clock)
    assert (hidden.receipt_id, hidden.attempt_id, hidden.messages) == (claim.receipt_id, "task", 2)
    assert hidden.visible_at == clock() + 20_000 and queue.counts().in_flight == 4
    claim.extend(600)
    assert queue.claim(claim.receipt_id).count == 2 == queue.receive(None, 60, attempt_id="task").count
    clock.advance(19.999)
    assert not queue.receive(None)
    clock.advance(0.001)
    assert queue.receive(None).count == 2 and not store.postponed(record, clock)
