"""M2: an outcome per entry, and wrong entries fail alone: of lists that are sent, and of receipt handles."""

import logging
import pickle

import pyarrow as pa
import pytest

from ledger.errors import InvalidParameterValue, LedgerError, MissingParameter
from tests.conformance.looking import changing_nothing, seconds_until, statuses

#: Worked out as the SQS Developer Guide says.
DIGESTS = {
    "body": "841a2d689ad86bd1611447453c22c6fc",
    "attributes": "4e7ab237e5e73a80744256a7ec1169f4",
    "header": "d6619b3d47b81d3fc72c0db005a70eda",
}
TWO_ACTIONS = "Reason: It is named by two different actions of one call."


@pytest.fixture
def fifo(make_queue, ledger, world):
    world.maker.create_queue("batches.fifo", {"FifoQueue": True, "Lanes": 2})
    queue = ledger.queue("batches.fifo")
    queue.purge()
    return queue


def handles_of(claim):
    return [message.receipt_handle for message in claim]


def test_an_entry_by_the_name_of_a_column_is_told_its_own(queue):
    with pytest.raises(InvalidParameterValue, match="write MessageBody for body"):
        queue.send([{"body": "x"}], all_or_nothing=True)


def test_a_message_in_place_of_a_handle_is_told_where_its_handle_is(queue):
    queue.send("a")
    (message,) = queue.receive().messages()
    for verb in (queue.delete, lambda one: queue.change_visibility(one, 5), lambda one: queue.settle(release=one)):
        with pytest.raises(InvalidParameterValue, match=r"Message .*a list of them\. Give message\.receipt_handle\."):
            verb(message)


def test_m2_wrong_entries_are_refused_alone_each_with_its_error(queue, caplog):
    entries = [
        "good",
        "",
        {"MessageBody": "body", "MessageAttributes": {"k": 7}, "AWSTraceHeader": "Root=1"},
        7,
        {"MessageBody": "x", "DelaySeconds": 901},
        {"Body": "x"},
        {"MessageBody": "last"},
    ]
    with caplog.at_level(logging.WARNING, "ledger"):
        outcomes = queue.send(entries)
    assert (
        [one.successful for one in outcomes]
        == [bool(one) for one in outcomes]
        == [True, False, True, *[False] * 3, True]
    )
    said = f"4 of 7 entries for {queue.name} were refused and not sent, the first is entry 1: MissingParameter: Message"
    assert said in caplog.text, "who does not look at them is told"
    assert sorted(m.body for m in queue.receive(None)) == ["body", "good", "last"]
    for entry, outcome in zip(entries, outcomes):
        if not outcome:
            with pytest.raises(LedgerError) as alone:
                queue.send([entry], all_or_nothing=True)
            assert (outcome.error_code, outcome.error_message) == (alone.value.code, alone.value.message)
            assert (outcome.message_id, outcome.md5_of_body, outcome.sender_fault) == (None, None, True)
    assert [one.error_code for one in outcomes] == [
        None, "MissingParameter", None, *["InvalidParameterValue"] * 3, None,
    ]  # fmt: skip


@pytest.mark.spark_too
def test_m2_what_was_sent_is_answered_with_its_id_and_what_the_service_computes(queue):
    header = {"MessageBody": "body", "MessageAttributes": {"k": 7}, "AWSTraceHeader": "Root=1"}
    plain, full = queue.send(["body", header])
    message = queue.peek(full)
    assert full.message_id == message.message_id == full and full.sequence_number is None and not full.sender_fault
    assert full.md5_of_body == plain.md5_of_body == message.md5_of_body == DIGESTS["body"]
    assert full.md5_of_message_attributes == message.md5_of_message_attributes == DIGESTS["attributes"]
    assert full.md5_of_system_attributes == DIGESTS["header"]
    assert (plain.md5_of_message_attributes, plain.md5_of_system_attributes) == (None, None)
    assert (full.error, full.error_code, full.error_message) == (None, None, None)
    again = pickle.loads(pickle.dumps(full))
    assert (again, again.md5_of_body, again.successful) == (full, full.md5_of_body, True)


def test_m2_recorded_the_digests_of_a_batch(make_queue):
    """Recorded: send_message_batch_with_oversized_contents_with_updated_maximum_message_size."""
    attributes = {"k": {"DataType": "String", "StringValue": "x"}}
    entries = [{"MessageBody": "a" * 2_040, "MessageAttributes": attributes}, {"MessageBody": "a"}]
    one, two = make_queue(MaximumMessageSize=2_048).send(entries)
    assert (one.md5_of_body, one.md5_of_message_attributes) == (
        "f44facf5a7ee0af446ecf3e0f854441e",
        "a45daa70926828a2f0a1db3418e6feb4",
    )
    assert (two.md5_of_body, two.md5_of_message_attributes) == ("0cc175b9c0f1b6a831c399e269772661", None)


def test_m2_all_or_nothing_refuses_the_lot_as_does_a_single_entry_and_a_table(queue):
    with changing_nothing(queue):
        with pytest.raises(MissingParameter, match=r"It is entry 1\. Nothing was sent"):
            queue.send(["a", "", "b"], all_or_nothing=True)
        for single in ("", {"MessageBody": ""}, {"MessageBody": "x", "DelaySeconds": -1}):
            with pytest.raises(LedgerError):
                queue.send(single)
        with pytest.raises(LedgerError, match="row 1"):
            queue.send(pa.table({"body": ["a", ""]}))
    assert all(queue.send(["a", "b"], all_or_nothing=True)) and queue.counts().visible == 2


def test_m2_what_is_said_of_all_entries_and_can_hold_for_none_is_the_calls_error(queue, fifo):
    for to, wrong in (
        (queue, {"delay_seconds": 901}), (queue, {"message_attributes": {"k": None}}), (fifo, {"delay_seconds": 5}),
        (queue, {"message_deduplication_id": "x"}), (fifo, {"message_group_id": "with space"}),
    ):  # fmt: skip
        with pytest.raises(InvalidParameterValue), changing_nothing(to):
            to.send(["a", {"MessageBody": "b"}], **wrong)


def test_m2_a_list_of_nothing_but_wrong_entries_sends_nothing_and_says_so(queue, fifo):
    with changing_nothing(queue), changing_nothing(fifo):
        assert [one.error_code for one in queue.send(["", ""], attempt_id="x")] == ["MissingParameter"] * 2
        assert not any(fifo.send(["", {"MessageBody": "a", "MessageGroupId": "a b"}], message_group_id="g"))


def test_m2_recorded_fifo_entries_without_group_or_deduplication_id_fail_the_call(fifo):
    whole = {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    for missing, kind in (("MessageGroupId", MissingParameter), ("MessageDeduplicationId", InvalidParameterValue)):
        with changing_nothing(fifo), pytest.raises(kind, match="It is entry 1"):
            fifo.send([whole, {name: value for name, value in whole.items() if name != missing}])


def test_m2_fifo_entries_have_their_numbers_and_duplicates_those_of_the_first(fifo):
    entry = lambda body, key, group="g": {"MessageBody": body, "MessageDeduplicationId": key, "MessageGroupId": group}  # noqa: E731
    entries = [entry("a", "1"), entry("b", "not an id"), entry("A", "1"), entry("c", "2", "h")]
    first, refused, same, other = fifo.send(entries)
    assert not refused and "MessageDeduplicationId can only include" in refused.error_message
    assert (same, same.sequence_number) == (
        first,
        first.sequence_number,
    ) and other.sequence_number > first.sequence_number
    assert same.md5_of_body != first.md5_of_body, "of what was sent now"
    numbers = {message.message_id: message.sequence_number for message in fifo.receive(None)}
    assert numbers == {one.message_id: one.sequence_number for one in (first, other)}
    again = fifo.send(entries)
    assert [(one, one.sequence_number) for one in again] == [
        (o, o.sequence_number) for o in (first, refused, same, other)
    ]


def test_m2_the_same_list_under_one_attempt_has_the_same_outcomes(queue):
    first = queue.send(["a", "", "b", 7], attempt_id="batch")
    again = queue.send(["a", "", "b", 7], attempt_id="batch")
    assert again == first and [one.error_code for one in again] == [one.error_code for one in first]
    assert queue.counts().visible == 2
    with pytest.raises(InvalidParameterValue, match="Another send was committed under it"):
        queue.send(["a", "mended", "b"], attempt_id="batch")


def errors_of(outcomes):
    rows = outcomes.to_pylist() if isinstance(outcomes, pa.Table) else [vars(one) for one in outcomes]
    return [(row["outcome"], row["error_code"], row["error_message"]) for row in rows]


@pytest.mark.parametrize("kind", ["list", "table"])
def test_m2_one_bad_timeout_or_handle_fails_its_entry_only_in_the_words_of_a_single_one(queue, clock, kind):
    ids = queue.send(["a", "b", "c", "d"])
    handles = handles_of(queue.receive(None, 100))
    queue.delete(handles[3])
    asked, seconds = [*handles, "forged", None], [10, 43_201, None, 5, 5, 5]
    if kind == "table":
        outcomes = queue.change_visibility(pa.table({"receipt_handle": asked, "s": pa.array(seconds)}), "s")
    else:
        outcomes = queue.change_visibility(asked, seconds)
    found = errors_of(outcomes)
    assert [code for _, code, _ in found] == [
        None, *["InvalidParameterValue"] * 3, *["ReceiptHandleIsInvalid"] * 2,
    ]  # fmt: skip
    for handle, timeout, (_, code, message) in list(zip(asked, seconds, found))[1:5]:
        with pytest.raises(LedgerError) as alone:
            queue.change_visibility(handle, timeout)
        assert (alone.value.code, alone.value.message) == (code, message)
    assert found[0] == ("changed", None, None)
    assert [seconds_until(queue.peek(i), clock) for i in ids[:3]] == [10, 100, 100]


@pytest.mark.parametrize("kind", ["list", "table"])
def test_m2_two_wishes_that_contradict_each_other_fail_both_and_the_rest_is_done(make_queue, clock, kind):
    queue = make_queue(Lanes=1)
    ids = queue.send([f"{n}" for n in range(6)])
    a, b, c, d, e, f = handles_of(queue.receive(None, 100))
    given = (lambda *hs: pa.table({"receipt_handle": list(hs)})) if kind == "table" else lambda *hs: list(hs)
    outcomes = errors_of(
        queue.settle(delete=given(a, b, c, a), release=given(c, d), extend=given(e, b), visibility_timeout=50)
    )
    said = lambda handle: f"Value {handle} for parameter ReceiptHandle is invalid. {TWO_ACTIONS}"  # noqa: E731
    wrong = lambda handle: ("contradicted", "InvalidParameterValue", said(handle))  # noqa: E731
    deleted, changed = ("deleted", None, None), ("changed", None, None)
    assert outcomes == [deleted, wrong(b), wrong(c), deleted, wrong(c), changed, changed, wrong(b)]
    assert statuses(queue, ids) == ["deleted", "in flight", "in flight", "visible", "in flight", "in flight"]
    assert [seconds_until(queue.peek(ids[n]), clock) for n in (1, 2, 4, 5)] == [100, 100, 50, 100]
    twice = errors_of(queue.change_visibility([e, f, e, f], [10, 20, 10, 21]))
    assert [outcome for outcome, *_ in twice] == ["changed", "contradicted", "changed", "contradicted"]


def test_m2_wishes_of_which_one_changes_nothing_do_not_contradict_each_other(queue, clock):
    (identifier,) = queue.send("a")
    (stale,) = handles_of(queue.receive(visibility_timeout=5))
    clock.advance(6)
    (held,) = handles_of(queue.receive(visibility_timeout=5))
    assert [o.outcome for o in queue.settle(delete=[held], release=[stale])] == ["deleted", "stale"]
    assert [o.outcome for o in queue.settle(delete=[held], release=[held])] == ["already deleted"] * 2
    assert queue.peek(identifier).status.value == "deleted"


def test_m2_settle_takes_a_timeout_for_each_handle_of_a_list(queue, clock):
    ids = queue.send(["a", "b", "c", "d"])
    a, b, c, d = handles_of(queue.receive(None, 100))
    outcomes = queue.settle(delete=[a], extend=[b, c, d], visibility_timeout=[10, 0, -1])
    assert [(o.receipt_handle, o.outcome) for o in outcomes] == [
        (a, "deleted"), (b, "changed"), (c, "changed"), (d, "beyond the ceiling"),
    ]  # fmt: skip
    assert statuses(queue, ids) == ["deleted", "in flight", "visible", "in flight"]
    assert [seconds_until(queue.peek(i), clock) for i in (ids[1], ids[3])] == [10, 100]
    for wrong in ({"extend": [b], "visibility_timeout": [1, 2]}, {"delete": [b], "visibility_timeout": [1]}):
        with pytest.raises(InvalidParameterValue, match="VisibilityTimeout"):
            queue.settle(**wrong)


def test_m2_values_of_any_kind_fail_their_entry_only(queue):
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    odd = [pd.NA, np.array([1, 2]), 10**5_000, b"x", 1.5, {"MessageBody": "x", "DelaySeconds": 10**5_000}]
    outcomes = queue.send(["good", *odd])
    assert [bool(one) for one in outcomes] == [True, *[False] * len(odd)] and queue.counts().visible == 1
    (message,) = queue.receive().messages()
    changed = queue.change_visibility([message.receipt_handle, "junk"], [20, 10**5_000])
    assert [bool(one) for one in changed] == [True, False], "a failure is false"
