"""Every field of a message is in everything that lists a message's fields: what is sent, stored, and shown."""

import shutil
from datetime import datetime

import pyarrow as pa
import pytest

from ledger import Claim, Ledger, Queue
from ledger.rules import message as message_rules
from ledger.rules.message import FIELDS, GIVEN, SHOWN, Entry, Kind, require_columns
from ledger.rules.message_attributes import Attribute
from ledger.store.delta.dataframes.bulk_rows import message_columns
from ledger.store.delta.model.tables import MESSAGES, TABLES
from tests.clock import FrozenClock

SENDER = "AIDASSYFHUBOBT7F4XT75"
#: What a test sends in each field, but the delay, which a FIFO queue's messages do not have.
SENT = {field.name: field.name for field in GIVEN if field.kind is Kind.TEXT} | {"message_attributes": {"key": "value"}}
EXPECTED = {**SENT, "message_attributes": {"key": Attribute("String", "value")}, "sender_id": SENDER}
TYPES = {Kind.ATTRIBUTES: pa.map_(pa.string(), pa.string())}
FIFO = {"FifoQueue": True, "VisibilityTimeout": 0}


def as_entry():
    return {field.sqs: SENT[field.name] for field in GIVEN if field.name in SENT}


def as_table():
    columns = {
        field.name: pa.array([SENT[field.name]], TYPES.get(field.kind, pa.string()))
        for field in GIVEN
        if field.name in SENT
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def root(empty_ledger, tmp_path_factory):
    """A ledger for the module."""
    return str(shutil.copytree(empty_ledger, tmp_path_factory.mktemp("fields") / "ledger"))


@pytest.fixture(scope="module")
def ledger(root, spark):
    """With Spark, and a sender of messages."""
    return Ledger.open(root, spark, "delta-rs", clock=FrozenClock(), sender_id=SENDER)


@pytest.fixture(scope="module")
def received(root, ledger):
    """The message as it is shown, by the way that it was sent and read."""
    memory = Ledger.in_memory(FrozenClock(), sender_id=SENDER)
    bare = Ledger.open(root, clock=FrozenClock(), sender_id=SENDER)
    found = {}
    for name, where, what in (
        ("memory", memory, as_entry()),
        ("memory, table", memory, as_table()),
        ("delta-rs", bare, as_entry()),
        ("delta-rs, table", bare, as_table()),
        ("dataframe", ledger, as_table()),
    ):
        queue = where.create_queue(f"fields-{len(found)}.fifo", FIFO)
        queue.send(what)
        (message,) = queue.receive()
        found[name] = {field.name: getattr(message, field.name) for field in SHOWN}, message
    (row,) = queue.receive().dataframe.toArrow().to_pylist()
    found["read as a dataframe"] = _of_row(row), None
    (row,) = ledger.view("messages").where(f"queue = '{queue.name}'").toArrow().to_pylist()
    found["view"] = _of_row(row), None
    return found


def _of_row(row):
    shown = {field.name: row[field.name] for field in SHOWN}
    attributes = {name: Attribute(**one) for name, one in shown["message_attributes"]}
    return {**shown, "message_attributes": attributes}


WAYS = ("memory", "memory, table", "delta-rs", "delta-rs, table", "dataframe", "read as a dataframe", "view")


@pytest.mark.parametrize("way", WAYS)
def test_every_field_comes_as_it_was_sent_whichever_way(received, way):
    shown, message = received[way]
    assert {name: shown[name] for name in EXPECTED} == EXPECTED
    assert isinstance(shown["sent_at"], datetime) and shown["sequence_number"] is not None
    assert set(shown) == {*EXPECTED, "sent_at", "sequence_number"}, "a field is shown that no test sends"
    if message is not None:
        named = {field.sqs for field in SHOWN} - {"MessageBody", "MessageAttributes"}
        assert named <= set(message.attributes())


def test_an_entry_has_what_senders_give_and_a_table_none_of_their_names():
    assert set(Entry._fields) == {field.name for field in GIVEN}
    for field in GIVEN:
        with pytest.raises(ValueError, match=rf"{field.sqs}.* in the column {field.name}\b"):
            require_columns([field.sqs])
        if field.stored_as:
            with pytest.raises(ValueError, match=field.name):
                require_columns([field.stored_as])


def test_a_dataframe_is_read_for_what_senders_give(ledger, spark):
    queue = ledger.create_queue("read.fifo", FIFO)
    frame = spark.createDataFrame(as_table())
    assert set(message_columns(frame, queue.access.record().attributes, None)) == {field.name for field in GIVEN}


def test_the_table_stores_them_and_names_those_that_have_statistics():
    stored = {field.column for field in FIELDS if field.is_stored}
    assert set(MESSAGES.names) == {"queue", "lane", "segment", "seq", *stored}
    named = TABLES["messages"].properties["delta.dataSkippingStatsColumns"].split(",")
    assert set(named) == {"seq", *(field.column for field in FIELDS if field.has_statistics)}
    assert {"seq", "sent_at", "available_at"} <= set(named), "what Engine.files answers"


def test_the_docstrings_name_them():
    for field in GIVEN:
        assert field.name in Queue.send.__doc__ and field.sqs in Queue.send.__doc__
    for field in SHOWN:
        assert field.name in Claim.dataframe.__doc__


def test_names_are_unambiguous():
    for names in ([field.name for field in FIELDS], [field.column for field in message_rules.STORED]):
        assert len(set(names)) == len(names)
