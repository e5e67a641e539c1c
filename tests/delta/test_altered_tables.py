"""Tables to which somebody else has given columns and properties go on working."""

import contextlib

import pytest
from deltalake import DeltaTable, Field, TableFeatures
from deltalake.schema import PrimitiveType

from ledger.delta_log.alterations import undo_statements
from ledger.errors import LedgerDamaged, StorageFailed, TableAltered
from ledger.store.delta.model.tables import TABLES
from tests.cli.running import run


def columns(table):
    table.alter.add_columns([Field("note", PrimitiveType("string"))])


def intervals(table, told):
    table.alter.set_table_properties({"delta.checkpointInterval": told}, raise_if_not_exists=False)


@pytest.mark.soak_variants("spark, a column")
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


def feature(name):
    """Switches on a feature, as somebody's ALTER TABLE does."""
    return lambda table: table.alter.add_feature(getattr(TableFeatures, name), allow_protocol_versions_increase=True)


def append_only(table):
    table.alter.set_table_properties({"delta.appendOnly": "true"})


def forgets(table):
    table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 seconds"})


#: What delta-rs refuses to read or to write, and what takes it back.
REFUSED = {
    "deletionVectors": (feature("DeletionVectors"), "DROP FEATURE deletionVectors TRUNCATE HISTORY"),
    "v2Checkpoint": (feature("V2Checkpoint"), "DROP FEATURE v2Checkpoint TRUNCATE HISTORY"),
    "rowTracking": (feature("RowTracking"), "DROP FEATURE rowTracking"),
    "delta.appendOnly": (append_only, "SET TBLPROPERTIES ('delta.appendOnly'='false')"),
    "delta.setTransactionRetentionDuration": (
        forgets, "UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_feature_that_delta_rs_refuses_is_named_with_what_takes_it_back(open_ledger, root, name):
    queue = open_ledger().create_queue("jobs")
    queue.send(["a", "b", "c"])
    claim = queue.receive(1, 600)
    alter, fix = REFUSED[name]
    alter(DeltaTable(f"{root}/visibility"))
    for verb in (claim.delete, queue.receive, lambda: open_ledger().queue("jobs").receive()):
        with pytest.raises(TableAltered, match=f"^Somebody gave the table visibility .*{name}") as raised:
            verb()
        assert f"ALTER TABLE delta.`{root}/visibility` {fix}" in str(raised.value) and not raised.value.unknown
        assert isinstance(raised.value, StorageFailed) and "call again" not in str(raised.value)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", REFUSED)
def test_the_health_of_a_ledger_says_of_each_table_what_verbs_say(open_ledger, root, name, table):
    ledger = open_ledger()
    ledger.create_queue("jobs").send(["a"])
    assert not any(one.refused or one.altered for one in ledger.health().tables.values())
    alter, fix = REFUSED[name]
    alter(DeltaTable(f"{root}/{table}"))
    what = f"omebody gave the table {table} "
    for one in (ledger, open_ledger()):
        refusals = one.store.refusals() if table != "queues" or name == "delta.appendOnly" else {}
        if name == "delta.appendOnly" and table in ("messages", "receipts"):
            assert not refusals, "verbs only append to it"
        try:
            health = one.health()
        except TableAltered as error:
            # Without its queues nothing more is told.
            assert table in ("queues", "receipts") and what in str(error) and fix in str(error)
        else:
            told = health.tables[table]
            if name == "delta.appendOnly" and table == "receipts":
                assert not told.refused and what in told.altered, "nothing removes its rows"
                continue
            assert told.takes_appends is (name == "delta.appendOnly" and table == "messages")
            assert what in told.refused and f"delta.`{root}/{table}` {fix}" in told.refused_fix
            assert [name for name, one in health.tables.items() if one.refused] == [table]


@pytest.mark.parametrize(
    ("table", "failing"),
    [
        ("messages", "upkeep"),
        ("visibility", "receive upkeep"),
        ("queues", "create upkeep"),
        ("receipts", ""),
        ("tasks", ""),
    ],
)
def test_the_doctor_says_what_an_append_only_table_refuses(open_ledger, root, clock, table, failing):
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1, "MessageRetentionPeriod": 60})
    queue.send(["a"] * 5)
    queue.receive(5).delete()
    queue.send("b")
    append_only(DeltaTable(f"{root}/{table}"))
    clock.advance(90_000)
    calls = {
        "send": lambda: queue.send("c"),
        "receive": lambda: queue.receive(1),
        "create": lambda: ledger.create_queue("more"),
        "upkeep": ledger.upkeep,
    }
    for name, call in calls.items():
        if name in failing.split():
            with pytest.raises(TableAltered):
                call()
        else:
            call()
    said = [line for line in run("doctor", root).out.splitlines() if line.startswith("FAIL  altered: ")]
    words = {
        "messages": "upkeep fails when it has messages to drop",
        "visibility": "receives, extensions, releases and deletions fail",
        "queues": "calls fail that make, change or delete queues",
        "tasks": "message move tasks fail",
    }
    assert len(said) == (table in words) and words.get(table, "") in "".join(said)


@pytest.mark.parametrize("engine", ["delta-rs", "spark"])
def test_nothing_is_sent_to_a_table_that_forgets_who_committed_to_it(open_ledger, root, engine, request):
    """A send that was called again under its attempt id was there twice, and no receive got on."""
    queue = open_ledger(engine).create_queue("jobs")
    sent = queue.send(["a"], attempt_id="run 1")
    forgets(DeltaTable(f"{root}/messages"))
    for one in (queue, open_ledger(engine).queue("jobs")):
        # Until it is forgotten it is answered as before.
        with contextlib.suppress(TableAltered):
            assert one.send(["a"], attempt_id="run 1") == sent
        for attempt in ("run 2", None):
            with pytest.raises(TableAltered, match=r"setTransactionRetentionDuration, .* UNSET TBLPROPERTIES"):
                one.send(["a"], attempt_id=attempt)
    if engine == "delta-rs":
        # It unsets no property.
        return
    unset = "UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')"
    request.getfixturevalue("spark").sql(f"ALTER TABLE delta.`{root}/messages` {unset}")
    again = open_ledger(engine).queue("jobs")
    assert again.send(["a"], attempt_id="run 1") == sent and again.receive(None).count == 1


def test_a_feature_that_others_need_is_dropped_behind_them():
    """Delta refuses to drop domainMetadata while the table has rowTracking."""
    told = undo_statements("/x", ["domainMetadata", "rowTracking"])
    assert [one.partition("DROP FEATURE ")[2] for one in told] == ["", "rowTracking", "domainMetadata"]


def test_a_feature_that_delta_cannot_drop_says_that_nothing_takes_it_back(open_ledger, root):
    queue = open_ledger().create_queue("jobs")
    queue.send(["a"])
    feature("VariantType")(DeltaTable(f"{root}/visibility"))
    health = open_ledger().health().tables["visibility"]
    assert "variantType" in health.by_statement and not health.refused
    assert "cannot drop variantType: restore an earlier backup (`ledger restore-backup BACKUP ROOT" in health.altered
    feature("IdentityColumns")(DeltaTable(f"{root}/visibility"))
    with pytest.raises(TableAltered, match=r"Delta cannot drop identityColumns: .*make a new ledger"):
        queue.receive()


def test_a_table_that_goes_by_the_engine_s_statements_is_told_of_once(open_ledger, root, caplog):
    ledger = open_ledger()
    queue = ledger.create_queue("jobs")
    feature("ChangeDataFeed")(DeltaTable(f"{root}/visibility"))
    queue.send(["a", "b", "c"])
    for _ in range(3):
        assert queue.receive(1).count == 1
    told = [one.getMessage() for one in caplog.records if "is not as the ledger makes it" in one.getMessage()]
    assert len(told) == 1 and "the table visibility" in told[0] and "take longer" in told[0]


def test_rows_that_a_deletion_vector_takes_out_are_neither_received_nor_counted_as_read(open_ledger, root, spark):
    queue = open_ledger("spark").create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b", "c", "d"])
    claim = queue.receive(2, 600)
    ids = [message.message_id for message in claim]
    place = f"delta.`{root}/messages`"
    spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('delta.enableDeletionVectors'='true')")
    held = [int(one[-8:], 16) for one in ids]
    spark.sql(f"DELETE FROM {place} WHERE seq IN ({held[0]}, {min({0, 1, 2, 3} - set(held))})")
    queue = open_ledger("spark").queue("jobs")
    assert queue.receive(None).count == 1
    with pytest.raises(LedgerDamaged, match="1 have no row"):
        queue.claim(claim.receipt_id).write(spark.range(1), f"{root}-out")
