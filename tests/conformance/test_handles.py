"""Lists of receipt handles: one commit, an outcome per handle, and nothing changed by those that are not valid."""

import pytest

from ledger.errors import InvalidParameterValue
from tests.conformance.looking import changing_nothing, seconds_until, statuses


def handles_of(claim):
    return [message.receipt_handle for message in claim]


def test_every_handle_of_a_list_has_its_own_outcome_in_order(make_queue, clock):
    queue, other = make_queue(Lanes=2), make_queue()
    other.send("foreign")
    (foreign,) = handles_of(other.receive())
    ids = queue.send(["a", "b", "c", "d"])
    stale, _, deleted, _ = handles_of(queue.receive(None))
    queue.delete(deleted)
    clock.advance(30)
    taken = queue.receive(2)
    held = handles_of(taken)
    stale_ids = {m.message_id for m in taken}
    bodies = {i: queue.peek(i).body for i in ids}
    assert {bodies[i] for i in stale_ids} == {"a", "b"}
    wishes = [held[0], "forged", foreign, stale, deleted, held[0][:-1], held[0]]
    outcomes = queue.change_visibility(wishes, 60)
    assert [o.receipt_handle for o in outcomes] == wishes
    assert [o.outcome for o in outcomes] == [
        "changed",
        "invalid",
        "invalid",
        "stale",
        "already deleted",
        "invalid",
        "changed",
    ]
    assert [o.error_code for o in outcomes] == [
        None,
        *["ReceiptHandleIsInvalid"] * 3,
        "InvalidParameterValue",
        "ReceiptHandleIsInvalid",
        None,
    ]
    assert [o.successful for o in outcomes] == [True, *[False] * 5, True]
    assert other.counts().in_flight == 0 and other.counts().visible == 1  # its own deadline passed; nothing else


def test_a_delete_of_stale_and_deleted_handles_succeeds_and_changes_nothing(queue, clock):
    ids = queue.send(["a", "b"])
    stale, deleted = handles_of(queue.receive(None))
    queue.delete(deleted)
    clock.advance(30)
    queue.receive()
    with changing_nothing(queue, ids):
        outcomes = queue.delete([stale, deleted, "forged"])
    assert [(o.outcome, o.error_code) for o in outcomes] == [
        ("stale", None),
        ("already deleted", None),
        ("invalid", "ReceiptHandleIsInvalid"),
    ]


def test_a_late_handle_of_a_list_is_not_in_flight(queue, clock):
    queue.send(["a", "b"])
    late = handles_of(queue.receive(None))
    clock.advance(30)
    assert {(o.outcome, o.error_code) for o in queue.change_visibility(late, 5)} == {
        ("not in flight", "MessageNotInflight")
    }
    assert {(o.outcome, o.error_code) for o in queue.delete(late)} == {("deleted", None)}


def test_a_handle_beyond_the_ceiling_is_an_outcome_beside_the_rest(queue, clock):
    queue.send(["a"])
    (old,) = handles_of(queue.receive(visibility_timeout=100))
    clock.advance(10)
    queue.send(["b"])
    (young,) = handles_of(queue.receive(visibility_timeout=100))
    outcomes = queue.change_visibility([old, young], 43_200)
    assert [(o.outcome, o.error_code) for o in outcomes] == [
        ("beyond the ceiling", "InvalidParameterValue"),
        ("changed", None),
    ]


def test_each_handle_may_have_its_own_timeout(queue, clock):
    ids = queue.send(["a", "b", "c"])
    outcomes = queue.change_visibility(handles_of(queue.receive(None)), [10, 0, 500])
    assert [o.outcome for o in outcomes] == ["changed"] * 3
    assert statuses(queue, ids) == ["in flight", "visible", "in flight"]
    assert [seconds_until(queue.peek(i), clock) for i in ids] == [10, 0, 500]


def test_settle_answers_in_the_order_delete_release_extend(queue, clock):
    ids = queue.send(["a", "b", "c", "d"])
    a, _, c, d = handles_of(queue.receive(None))
    outcomes = queue.settle(extend=[a], delete=[d, "forged"], release=[c], visibility_timeout=77)
    assert [(o.receipt_handle, o.outcome) for o in outcomes] == [
        (d, "deleted"),
        ("forged", "invalid"),
        (c, "changed"),
        (a, "changed"),
    ]
    assert statuses(queue, ids) == ["in flight", "in flight", "visible", "deleted"]
    assert seconds_until(queue.peek(ids[0]), clock) == 77


def test_settle_without_a_timeout_extends_by_the_queues_own(queue, clock):
    ids = queue.send(["a"])
    handles = handles_of(queue.receive(visibility_timeout=5))
    queue.settle(extend=handles)
    assert seconds_until(queue.peek(ids[0]), clock) == 30


def test_empty_lists_have_no_outcomes(queue):
    queue.send("x")
    with changing_nothing(queue):
        assert queue.delete([]) == queue.change_visibility([], 60) == queue.settle() == queue.settle(delete=[]) == []


def test_handles_of_many_claims_and_lanes_go_in_one_call(make_queue):
    queue = make_queue(Lanes=4)
    for n in range(12):
        queue.send(f"{n}")
    handles = [handle for _ in range(12) for handle in handles_of(queue.receive())]
    assert len(set(handles)) == 12
    assert {o.outcome for o in queue.delete(handles)} == {"deleted"}
    assert queue.counts().deleted == 12


def test_settle_refuses_a_timeout_for_nothing(queue):
    with pytest.raises(InvalidParameterValue, match="Give extend="):
        queue.settle(delete=[], visibility_timeout=5)


def test_each_handle_may_have_a_reason_of_its_own(queue, clock):
    queue.send([f"{n}" for n in range(5)])
    claim = queue.receive(None)
    handles = [message.receipt_handle for message in claim.messages()]
    for wrong in (["a"], ["a"] * 4, []):
        with pytest.raises(InvalidParameterValue, match="one for each of the 3 handles"):
            claim.settle(delete=handles[3:], release=handles[:2], extend=handles[2:3], reason=wrong)
    assert queue.counts().in_flight == 5
    reasons = ["no number", None, "too slow"]
    assert all(claim.settle(delete=handles[3:], release=handles[:2], extend=handles[2:3], reason=reasons))
    counts = queue.counts()
    assert (counts.deleted, counts.visible, counts.in_flight) == (2, 2, 1)
    assert queue.receive(None).count == 2, "what is released for several reasons is visible at once"
