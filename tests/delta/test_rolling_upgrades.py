"""What a newer release writes, this one keeps and goes on, or it says LedgerTooNew; it never guesses."""

import json

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from ledger.delta_log.protocol import Layout
from ledger.errors import InvalidAttributeName, LedgerTooNew
from ledger.store.delta.model.tables import TABLES, require_readable


def set_attribute(root, name, value):
    """Gives all queues an attribute, as a release would that knows it."""
    table = DeltaTable(f"{root}/queues")
    rows = table.to_pyarrow_table()
    attributes = [[*one, (name, value)] for one in rows["attributes"].to_pylist()]
    column = rows.schema.get_field_index("attributes")
    rows = rows.set_column(column, rows.schema.field(column), pa.array(attributes, rows.schema.field(column).type))
    write_deltalake(table, rows, mode="overwrite")


def test_an_attribute_that_is_not_known_is_kept_by_every_change(open_ledger, root, engine):
    ledger = open_ledger(engine)
    queue = ledger.create_queue("work", {"VisibilityTimeout": 5})
    set_attribute(root, "Shiny", "3")
    queue.set_attributes({"VisibilityTimeout": 60})
    queue.tag({"team": "a"})
    assert queue.attributes()["Shiny"] == "3"
    kept = dict(DeltaTable(f"{root}/queues").to_pyarrow_table()["attributes"].to_pylist()[0])
    assert kept["Shiny"] == "3" and kept["VisibilityTimeout"] == "60"
    queue.send("a")
    queue.receive(1).delete()
    with pytest.raises(InvalidAttributeName):
        queue.set_attributes({"Shiny": "4"})


@pytest.mark.parametrize(("name", "value"), [("Limits", "SQS2"), ("Receipts", "strict"), ("VisibilityTimeout", "1h")])
def test_a_value_that_is_not_known_is_not_guessed_at(open_ledger, root, name, value):
    ledger = open_ledger()
    queue, other = ledger.create_queue("work"), None
    set_attribute(root, name, value)
    other = ledger.create_queue("other")
    for verb in (
        lambda: queue.send("a"),
        queue.receive,
        queue.counts,
        lambda: queue.set_attributes({"DelaySeconds": 2}),
    ):
        with pytest.raises(LedgerTooNew, match=f"{name}='{value}'"):
            verb()
    other.send("a")
    assert other.receive(1)


def test_an_event_that_is_not_known_is_copied_to_receipts_and_shown(open_ledger, root):
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send(["a", "b"])
    queue.receive(1)
    event = {"event": "paused", "messages": 1, "receipt_id": "r", "reason": {"code": 7}, "colour": "red"}
    said = {"operation": "x", "verb": "pause", "queue": queue.id, "at": 1_000, "owner": "newer", "events": [event]}
    table = DeltaTable(f"{root}/visibility")
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps({**said, "more": 1})})
    table.create_write_transaction([], "append", table.schema(), ["queue", "lane"], commit_properties=properties)
    queue.receive(1).delete()
    before = ledger.sql("SELECT event, reason FROM receipts WHERE event = 'paused'").to_pylist()
    assert ledger.fill_receipts() > 0
    after = ledger.sql("SELECT event, reason FROM receipts WHERE event = 'paused'").to_pylist()
    assert before == after == [{"event": "paused", "reason": '{"code": 7}'}]


@pytest.mark.parametrize("table", ["messages", "visibility", "queues", "receipts", "tasks"])
def test_a_column_that_is_not_known_is_kept_with_its_values(open_ledger, root, table):
    """Verbs, joins of files and upkeep leave the values of rows alone that they do not take out."""
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send(["a", "b", "c"])
    queue.receive(1)
    ledger.fill_receipts()
    opened = DeltaTable(f"{root}/{table}")
    opened.alter.add_columns([Field("shiny", PrimitiveType("string"))])
    if opened.to_pyarrow_table().num_rows:
        DeltaTable(f"{root}/{table}").update({"shiny": "'kept'"})
    known = DeltaTable(f"{root}/{table}").to_pyarrow_table().num_rows
    queue.send(["d"])
    queue.tag({"team": "a"})
    claim = queue.receive(1)
    claim.delete()
    ledger.upkeep()
    values = DeltaTable(f"{root}/{table}").to_pyarrow_table()["shiny"].to_pylist()
    assert values.count("kept") == known
    assert queue.counts().visible + queue.counts().in_flight == 3
    assert open_ledger().queue("work").receive(3)


@pytest.mark.parametrize("needed", ["99", "3.1", "3 beta", "four"])
def test_a_format_that_is_not_known_is_too_new(needed):
    for table in TABLES.values():
        with pytest.raises(LedgerTooNew, match=f"knows format {needed}, but"):
            require_readable(table, Layout(f"ledger format {needed}", {}))
        require_readable(table, Layout(f"ledger format {table.format}", {}))


def test_a_move_task_with_a_status_that_is_not_known_is_left_alone(open_ledger, root, by_hand):
    ledger = open_ledger()
    dead = ledger.create_queue("dead")
    ledger.create_queue("work", {"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    handle = dead.start_message_move_task()
    DeltaTable(f"{root}/tasks").update({"status": "'PAUSED'"})
    assert [one.status for one in dead.list_message_move_tasks()] == ["PAUSED"]
    ledger.upkeep()
    assert handle and DeltaTable(f"{root}/tasks").to_pyarrow_table()["status"].to_pylist() == ["PAUSED"]
