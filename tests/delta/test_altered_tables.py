"""Tables to which somebody else has given columns and properties go on working."""

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from ledger.store.delta.model.tables import TABLES


def columns(table):
    table.alter.add_columns([Field("note", PrimitiveType("string"))])


def intervals(table, told):
    table.alter.set_table_properties({"delta.checkpointInterval": told}, raise_if_not_exists=False)


@pytest.mark.parametrize(
    ("engine", "alter"),
    [
        pytest.param("delta-rs", columns, id="delta-rs, a column"),
        pytest.param("spark", columns, id="spark, a column"),
        pytest.param("delta-rs", lambda table: intervals(table, "0"), id="delta-rs, a checkpoint each 0 commits"),
        pytest.param("delta-rs", lambda table: intervals(table, "never"), id="delta-rs, a checkpoint never"),
    ],
)
def test_every_verb_goes_on(open_ledger, root, alter, engine):
    ledger = open_ledger(engine)
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    fifo = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    queue.send(["a", "b", "c"])
    held = queue.receive(1, 600)
    for name in TABLES:
        alter(DeltaTable(f"{root}/{name}"))
    queue.send(["d"], attempt_id="again")
    assert fifo.send("x", message_group_id="g") == fifo.send("x", message_group_id="g")
    assert fifo.receive(10).delete().messages == 1
    more = queue.receive(2, 600)
    assert held.extend(60).messages == 1 and more.release().messages == 2
    everything = open_ledger(engine).queue("jobs").receive(None)
    assert sorted(message.body for message in [*held, *everything]) == ["a", "b", "c", "d"]
    assert everything.delete().messages == 3 and ledger.upkeep(vacuum=False)
    assert ledger.queue("jobs").counts().in_flight == 1
    assert ledger.sql("SELECT body FROM messages WHERE status = 'in flight'").to_pylist() == [
        {"body": held.messages()[0].body}
    ]
