"""Wrong values: each refusal names the field, the value's bound and a way out, and changes nothing."""

import re

import pyarrow as pa
import pytest

from ledger.errors import (
    InvalidAttributeName,
    InvalidParameterValue,
    LedgerError,
    MessageDoesNotExist,
    MissingParameter,
    QueueDoesNotExist,
    ReceiptHandleIsInvalid,
)
from tests.conformance.looking import changing_nothing

BODY, TIMEOUT, MOST = "MessageBody", "VisibilityTimeout", "MaxNumberOfMessages"
#: What is called, what it raises, and what its text says.
WRONG = {
    "a body that is a number": (lambda q, h: q.send([7], all_or_nothing=True), InvalidParameterValue, f"{BODY}.*Must be a string.*JSON"),
    "a body that is bytes": (lambda q, h: q.send([b"x"], all_or_nothing=True), InvalidParameterValue, f"{BODY}.*Must be a string"),
    "an empty body": (lambda q, h: q.send(""), MissingParameter, BODY),
    "a body too large": (lambda q, h: q.send("x" * 2_049), InvalidParameterValue, f"{BODY}.*2049 bytes.*1 to 2048.*Raise"),
    "one bad body of many": (lambda q, h: q.send(["x", "y", ""], all_or_nothing=True), MissingParameter, BODY),
    "messages that are a number": (lambda q, h: q.send(7), InvalidParameterValue, "[Mm]essage"),
    "messages that are nothing": (lambda q, h: q.send(None), InvalidParameterValue, "[Mm]essage"),
    "an attempt id of a send that is a number": (lambda q, h: q.send("x", attempt_id=7), InvalidParameterValue, "(?i)attempt.*1 to 128"),
    "an empty attempt id of a send": (lambda q, h: q.send("x", attempt_id=""), InvalidParameterValue, "(?i)attempt.*1 to 128"),
    "none to receive": (lambda q, h: q.receive(0), InvalidParameterValue, f"{MOST}.*>= 1"),
    "fewer than none to receive": (lambda q, h: q.receive(-1), InvalidParameterValue, f"{MOST}.*>= 1"),
    "half a message to receive": (lambda q, h: q.receive(1.5), InvalidParameterValue, f"{MOST}.*whole number"),
    "text to receive": (lambda q, h: q.receive("all"), InvalidParameterValue, f"{MOST}.*whole number"),
    "true to receive": (lambda q, h: q.receive(True), InvalidParameterValue, f"{MOST}.*whole number"),
    "a timeout below 0": (lambda q, h: q.receive(1, -1), InvalidParameterValue, f"{TIMEOUT}.*between 0 and 43200"),
    "a timeout of 43201": (lambda q, h: q.receive(1, 43_201), InvalidParameterValue, f"{TIMEOUT}.*and 43200.*heartbeat"),
    "a timeout that is text": (lambda q, h: q.receive(1, "30"), InvalidParameterValue, f"{TIMEOUT}.*between 0"),
    "a wait below 0": (lambda q, h: q.receive(wait=-1), InvalidParameterValue, "WaitTimeSeconds.*>= 0"),
    "a wait that is text": (lambda q, h: q.receive(wait="1"), InvalidParameterValue, "WaitTimeSeconds.*>= 0"),
    "an attempt id too long": (lambda q, h: q.receive(attempt_id="x" * 129), InvalidParameterValue, "ReceiveRequestAttemptId.*1 to 128.*dag_id.*run_id.*task_id.*map_index.*sha256"),
    "an attempt id that is a number": (lambda q, h: q.receive(attempt_id=7), InvalidParameterValue, "ReceiveRequestAttemptId.*1 to 128"),
    "a change to 43201": (lambda q, h: q.change_visibility(h, 43_201), InvalidParameterValue, f"{TIMEOUT}.*and 43200"),
    "a change below 0": (lambda q, h: q.change_visibility(h, -1), InvalidParameterValue, f"{TIMEOUT}.*between 0"),
    "a change to text": (lambda q, h: q.change_visibility(h, "60"), InvalidParameterValue, TIMEOUT),
    "a change to nothing": (lambda q, h: q.change_visibility(h, None), InvalidParameterValue, TIMEOUT),
    "a change of a list to half seconds": (lambda q, h: q.change_visibility([h], 1.5), InvalidParameterValue, TIMEOUT),
    "a change of a list to nothing": (lambda q, h: q.change_visibility([h], None), InvalidParameterValue, TIMEOUT),
    "a change of a list to true": (lambda q, h: q.change_visibility([h], True), InvalidParameterValue, TIMEOUT),
    "fewer timeouts than handles": (lambda q, h: q.change_visibility([h, h], [1]), InvalidParameterValue, f"{TIMEOUT}.*each of the 2"),
    "a bad timeout of a settle": (lambda q, h: q.settle(extend=[h], visibility_timeout=43_201), InvalidParameterValue, f"{TIMEOUT}.*and 43200"),
    "a settle with a column but no DataFrame": (lambda q, h: q.settle(extend=[h], visibility_timeout="seconds"), InvalidParameterValue, TIMEOUT),
    "a forged handle to delete": (lambda q, h: q.delete("forged"), ReceiptHandleIsInvalid, "not one that receive handed out"),
    "a forged handle to change": (lambda q, h: q.change_visibility("forged", 60), ReceiptHandleIsInvalid, "not one that receive handed out"),
    "a handle cut off": (lambda q, h: q.delete(h[:-1]), ReceiptHandleIsInvalid, "not one that receive handed out"),
    "a handle that is nothing": (lambda q, h: q.delete(None), (InvalidParameterValue, ReceiptHandleIsInvalid), "(?i)receipt.?handle"),
    "a handle that is a number": (lambda q, h: q.delete(7), (InvalidParameterValue, ReceiptHandleIsInvalid), "(?i)receipt.?handle"),
    "a number of a handle to change": (lambda q, h: q.change_visibility(7, 60), (InvalidParameterValue, ReceiptHandleIsInvalid), "(?i)receipt.?handle"),
    "one handle given to settle": (lambda q, h: q.settle(delete=h), (InvalidParameterValue, ReceiptHandleIsInvalid), "(?i)receipt.?handle"),
    "a message id that is none": (lambda q, h: q.peek("nonsense"), InvalidParameterValue, "MessageId.*as send or receive"),
    "a message id that is a number": (lambda q, h: q.lock(7, 60), InvalidParameterValue, "MessageId.*as send or receive"),
    "a message that is not there": (lambda q, h: q.peek("00000000-0000-8000-8000-000000000000"), MessageDoesNotExist, "no message 0000.*in queue"),
    "a lock of a message that is not there": (lambda q, h: q.lock("00000000-0000-8000-8000-000000000000", 60), MessageDoesNotExist, "no message"),
    "a lock of 43201": (lambda q, h: q.lock("00000000-0000-8000-8000-000000000000", 43_201), InvalidParameterValue, f"{TIMEOUT}.*and 43200"),
    "an attribute that is none": (lambda q, h: q.set_attributes({"Color": "red"}), InvalidAttributeName, "Color.*Known attributes: VisibilityTimeout"),
    "an attribute out of range": (lambda q, h: q.set_attributes({TIMEOUT: 43_201}), InvalidParameterValue, f"{TIMEOUT}.*0 to 43200"),
    "a redrive of a number": (lambda q, h: q.redrive(where=5), InvalidParameterValue, "where.*SQL predicate or a list of message ids"),
    "a tag that is a number": (lambda q, h: q.set_tags({"team": 7}), InvalidParameterValue, "(?i)tag"),
}  # fmt: skip


@pytest.fixture
def held(make_queue):
    """A queue with one message in flight and one visible; its ids; a handle."""
    queue = make_queue(MaximumMessageSize=2_048)
    ids = queue.send(["a", "b"])
    (message,) = queue.receive().messages()
    return queue, ids, message.receipt_handle


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_value_is_refused_in_words_that_help_and_changes_nothing(held, wrong):
    queue, ids, handle = held
    call, kind, says = WRONG[wrong]
    attributes, tags = queue.attributes(), queue.tags()
    with changing_nothing(queue, ids), pytest.raises(kind) as raised:
        call(queue, handle)
    assert isinstance(raised.value, LedgerError)
    assert re.search(says, str(raised.value), re.DOTALL), str(raised.value)
    assert len(str(raised.value)) < 500
    assert (queue.attributes(), queue.tags()) == (attributes, tags)


@pytest.mark.parametrize("verb", ["delete", "change"])
def test_a_handle_of_another_queue_is_refused_by_name_and_changes_nothing(held, make_queue, verb):
    queue, ids, _ = held
    other = make_queue()
    other_ids = other.send("x")
    (foreign,) = other.receive().messages()
    with (
        changing_nothing(queue, ids),
        changing_nothing(other, other_ids),
        pytest.raises(ReceiptHandleIsInvalid, match=f"another queue .{other.name}-.*not of {queue.name}-"),
    ):
        if verb == "delete":
            queue.delete(foreign.receipt_handle)
        else:
            queue.change_visibility(foreign.receipt_handle, 60)


def test_an_sqs_queue_has_the_bounds_of_the_service(make_queue):
    queue = make_queue(Limits="SQS")
    queue.send([f"{n}" for n in range(12)])
    with changing_nothing(queue):
        with pytest.raises(InvalidParameterValue, match=f"{MOST}.*between 1 and 10, if provided"):
            queue.receive(11)
        with pytest.raises(InvalidParameterValue, match=r"WaitTimeSeconds.*<= 20"):
            queue.receive(wait=21)
    assert queue.receive(None).count == 10


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 81, 7, None])
def test_a_queue_name_that_is_none_is_refused_and_no_queue_made(ledger, name):
    before = [queue.name for queue in ledger.list_queues()]
    with pytest.raises(InvalidParameterValue, match=r"QueueName.*1 to 80"):
        ledger.create_queue(name)
    with pytest.raises((InvalidParameterValue, QueueDoesNotExist)):
        ledger.queue(name)
    assert [queue.name for queue in ledger.list_queues()] == before


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda ledger: ledger.create_queue("q", [1]), r"Attributes.*DelaySeconds"),
        (lambda ledger: ledger.create_queue("q", []), r"Attributes.*DelaySeconds"),
        (lambda ledger: ledger.create_queue("q", tags=[1]), r"Tags.*key"),
        (lambda ledger: ledger.list_queues(None), r"prefix.*Leave it out"),
        (lambda ledger: ledger.list_queues(after=5), r"after.*Leave it out"),
        (lambda ledger: ledger.list_queues(max_results="x"), r"MaxResults"),
    ],
)
def test_a_ledger_refuses_what_it_does_not_understand_in_its_own_words(ledger, call, says):
    before = [queue.name for queue in ledger.list_queues()]
    with pytest.raises(InvalidParameterValue, match=says):
        call(ledger)
    assert [queue.name for queue in ledger.list_queues()] == before


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"every": "x"}, r"every.*number"),
        ({"every": True}, r"every.*number"),
        ({"every": float("nan")}, r"every.*number"),
        ({"visibility_timeout": "x"}, TIMEOUT),
        ({"visibility_timeout": None, "every": 10**9}, r"every.*< the visibility timeout"),
    ],
)
def test_a_heartbeat_that_cannot_beat_is_refused_before_it_begins(queue, given, says):
    queue.send("a")
    with pytest.raises(InvalidParameterValue, match=says):
        queue.receive().heartbeat(**given)


@pytest.mark.parametrize("name", ["BODY", "Body", "Delay_Seconds", "MESSAGE_GROUP_ID"])
def test_a_column_that_means_something_but_for_its_capitals_is_refused(make_queue, name):
    queue = make_queue()
    for column, body in ((name, None), (name, "text")):
        with pytest.raises(InvalidParameterValue, match=rf"{name}.*{name.lower()}.*capitals.*Rename"):
            queue.send(pa.table({column: ["a"], "text": ["b"]}), body=body)
    assert queue.counts().stored == 0
    assert queue.send(pa.table({"BODY": ["a"]}), body="BODY").count == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.send("a", attempt_id="\ud800"),
        lambda queue: queue.receive(1, attempt_id="\ud800"),
        lambda queue: queue.send("a", message_attributes={"k": "\udc00"}),
        lambda queue: queue.send({"MessageBody": "a", "AWSTraceHeader": "\udc00"}),
        lambda queue: queue.set_tags({"k": "\udc00"}),
        lambda queue: queue.set_attributes({"Policy": '{"a": "\udc00"}'}),
    ],
    ids=["send's attempt", "receive's attempt", "attribute", "trace header", "tag", "policy"],
)
def test_half_a_character_is_refused_wherever_it_stands(queue, call):
    with pytest.raises(InvalidParameterValue, match=r"half a character|#xD800|#xDC00"):
        call(queue)
    assert queue.counts().stored == 0


@pytest.mark.parametrize("receipt_id", [5, b"r", ["r"]])
def test_what_is_no_text_is_no_receipt(make_queue, receipt_id):
    queue = make_queue()
    for verb in (queue.claim, queue.restore):
        with pytest.raises(InvalidParameterValue, match=r"receipt_id.*claim's receipt_id"):
            verb(receipt_id)
    assert queue.restore(None) == 0 and not queue.claim("")
