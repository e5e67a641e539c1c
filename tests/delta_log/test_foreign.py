"""What others do to a table: the client reads on as every reader does, or refuses; it never misreads."""

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable, Field, Schema, TableFeatures, convert_to_deltalake, write_deltalake
from deltalake.schema import PrimitiveType

from ledger.delta_log.protocol import Conflict
from ledger.errors import TableAltered
from tests.delta_log import by_hand as hand
from tests.delta_log.readers import READERS, delta_rs, require_same, told, told_of
from tests.delta_log.tables import THINGS, Places, edits_of, merge, opened, rows_of, thing

A, B = {"lot": 1, "place": "a"}, {"lot": 2, "place": "b"}
IN_A, IN_ALL = Places(THINGS.partitions, ((1, "a"),)), Places(THINGS.partitions, ((1, "a"), (2, "b")))
ROWS = [{**partition, **thing(number)} for partition in (A, B) for number in range(6)]


@pytest.fixture
def filled(tables):
    """With ROWS, in two commits."""
    tables.add_rows("things", rows_of(THINGS, ROWS[:6]), {}, [("app", 1)])
    tables.add_rows("things", rows_of(THINGS, ROWS[6:]), {}, [("app", 2)])
    return tables


def require_goes_on(tables, location, rows, *readers, readable=True):
    """The client that was open, and a new one, read these rows and commit to them; returns the rows then.

    `readable`: by the readers without a JVM, too."""
    again = opened(Path(location).parent, THINGS)
    for number, one in enumerate((tables, again)):
        assert told(one.load("things", Places(THINGS.partitions)).rows) == told_of(rows)
        first = next(row for row in rows if row["lot"] == 1)
        new = {**first, "text": f"changed {number}", "revision": first["revision"] + 1}
        more = {**A, **thing(100 + number)}
        merge(one, THINGS, IN_A, [("update", new)])
        one.add_rows("things", rows_of(THINGS, [more]), {})
        rows = [*(row for row in rows if row is not first), new, more]
    if readable:
        assert require_same(location, *readers) == told_of(rows)
    assert told(tables.load("things", Places(THINGS.partitions)).rows) == told_of(rows)
    return rows


def checkpoint(table):
    table.create_checkpoint()
    table.cleanup_metadata()


def overwrite(table):
    write_deltalake(table, rows_of(THINGS, ROWS[:3]), mode="overwrite")


def vacuum(table):
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)


#: What somebody does through delta-rs, and the rows that are there then.
BY_DELTA_RS = {
    "a checkpoint, and a log that is cut": (checkpoint, ROWS),
    "a restore": (lambda table: table.restore(1), ROWS[:6]),
    "a restore of what a restore took out": (lambda table: (table.restore(1), table.restore(2)), ROWS),
    "a delete of rows": (lambda table: table.delete("id = 0"), [row for row in ROWS if row["id"]]),
    "a delete of a partition": (lambda table: table.delete("lot = 2"), ROWS[:6]),
    "an update": (lambda table: table.update({"number": "7"}), [{**row, "number": 7} for row in ROWS]),
    "an overwrite": (overwrite, ROWS[:3]),
    "an optimize": (lambda table: table.optimize.compact(), ROWS),
    "a sort": (lambda table: table.optimize.z_order(["id"]), ROWS),
    "a vacuum": (vacuum, ROWS),
}


@pytest.mark.parametrize("event", BY_DELTA_RS)
def test_the_client_goes_on_after_what_somebody_did_through_delta_rs(filled, location, event):
    act, rows = BY_DELTA_RS[event]
    filled.load("things", IN_ALL)
    act(DeltaTable(location))
    require_goes_on(filled, location, rows)
    assert filled.transaction_version("things", "app") == 2


def test_a_decision_on_a_file_that_somebody_removed_is_a_conflict(filled, location):
    snapshot = filled.load("things", IN_A)
    DeltaTable(location).delete("lot = 1 AND id = 0")
    before = hand.versions_of(location)[-1]
    with pytest.raises(Conflict):
        edits = edits_of(THINGS, [("update", {**ROWS[0], "revision": 2})])
        filled.merge(snapshot, "things", IN_A, edits, {})
    assert hand.versions_of(location)[-1] == before
    assert require_same(location) == told_of([row for row in ROWS if row is not ROWS[0]])


def test_rows_of_a_column_that_somebody_added_keep_it_and_the_client_s_have_none(filled, location):
    filled.load("things", IN_ALL)
    table = DeltaTable(location)
    table.alter.add_columns([Field("note", PrimitiveType("string"))])
    theirs = {**B, **thing(50)}
    noted = rows_of(THINGS, [theirs]).append_column("note", pa.array(["kept"]))
    write_deltalake(location, noted, mode="append")
    for one in (filled, opened(Path(location).parent, THINGS)):
        assert told(one.load("things", Places(THINGS.partitions)).rows) == told_of([*ROWS, theirs])
        row = {**A, **thing(60 + one.version("things"))}
        one.add_rows("things", rows_of(THINGS, [row]), {})
        merge(one, THINGS, IN_ALL, [("delete", row)])
        assert told(one.load("things", Places(THINGS.partitions)).rows) == told_of([*ROWS, theirs])
    changed = {**theirs, "revision": 2, "text": "changed"}
    merge(filled, THINGS, IN_ALL, [("update", changed)])
    expected = [*({**row, "note": None} for row in ROWS), {**changed, "note": "kept"}]
    assert require_same(location) == told_of(expected)


def test_a_column_that_somebody_renamed_is_named(filled, location):
    filled.load("things", IN_ALL)
    state = hand.replay(location)
    renamed = {**state.metadata, "schemaString": state.metadata["schemaString"].replace('"text"', '"words"')}
    hand.write_entry(location, state.version + 1, [{"commitInfo": {"timestamp": 1}}, {"metaData": renamed}])
    for one in (filled, opened(Path(location).parent, THINGS)):
        with pytest.raises(TableAltered, match=r"^Somebody altered the table things: it has no column text any more"):
            merge(one, THINGS, IN_A, [("delete", ROWS[0])])
    assert hand.versions_of(location)[-1] == state.version + 1


def test_a_constraint_that_somebody_added_holds_for_the_client(filled, location):
    filled.load("things", IN_ALL)
    DeltaTable(location).alter.add_constraint({"positive": "id >= 0"})
    refused = (
        "^Somebody gave the table things a constraint that refuses a row.* failed validation check.* DROP CONSTRAINT"
    )
    with pytest.raises(TableAltered, match=refused):
        filled.add_rows("things", rows_of(THINGS, [{**A, **thing(-1)}]), {})
    with pytest.raises(TableAltered, match=refused):
        merge(filled, THINGS, IN_A, [("insert", {**A, **thing(-1)})])
    require_goes_on(filled, location, ROWS)


def test_a_folder_of_parquet_that_somebody_converted_is_a_table(tmp_path):
    location = f"{tmp_path}/things"
    columns = pa.schema([THINGS.schema.field(name) for name in THINGS.partitions])
    pads.write_dataset(
        rows_of(THINGS, ROWS), location, format="parquet", partitioning=pads.partitioning(columns, flavor="hive")
    )
    convert_to_deltalake(location, partition_by=Schema.from_arrow(columns), partition_strategy="hive")
    require_goes_on(opened(tmp_path, THINGS), location, ROWS)


#: Features that ask more of a reader or a writer than the client and delta-rs do, and those that delta-rs knows:
#: together all that delta-rs can switch on.
REFUSED = (
    *("DeletionVectors", "V2Checkpoint", "RowTracking", "ColumnMapping", "DomainMetadata", "IdentityColumns"),
    "IcebergCompatV1",
)
KNOWN = (
    *("TimestampWithoutTimezone", "ChangeDataFeed", "GeneratedColumns", "CheckConstraints", "AppendOnly", "Invariants"),
    *("VariantType", "VariantTypePreview"),
)


def test_each_feature_that_delta_rs_can_switch_on_is_tried():
    # It refuses to switch the last one on.
    assert {name for name in dir(TableFeatures) if name[0].isupper()} == {*REFUSED, *KNOWN, "TimestampNanos"}


def give(location, feature):
    """Adds a feature to a table, as somebody's ALTER TABLE does."""
    DeltaTable(location).alter.add_feature(getattr(TableFeatures, feature), allow_protocol_versions_increase=True)


@pytest.mark.parametrize("feature", REFUSED)
def test_a_table_with_a_feature_that_is_not_supported_is_refused_by_its_name(filled, location, feature):
    filled.load("things", IN_ALL)
    give(location, feature)
    before = hand.versions_of(location)[-1]
    new = {**A, **thing(70)}
    for one in (filled, opened(Path(location).parent, THINGS)):
        what, fix = one.refusal("things")
        assert what.lower().startswith(f"somebody gave the table things {feature.lower()}, which")
        assert ("DROP FEATURE" in fix) or ("Delta cannot drop" in fix and "restore an earlier backup" in fix)
        insert = partial(merge, one, THINGS, IN_A, [("insert", new)])
        for verb in (insert, partial(one.delete, "things", "lot = 1", {})):
            with pytest.raises(TableAltered, match=f"^Somebody gave the table things (?i:{feature})") as raised:
                verb()
            assert (raised.value.what, raised.value.fix) == (what, fix) and "call again" not in str(raised.value)
    assert hand.versions_of(location)[-1] == before


@pytest.mark.parametrize("feature", KNOWN)
def test_a_table_with_a_feature_that_delta_rs_knows_is_written_by_its_statements(filled, location, feature):
    filled.load("things", IN_ALL)
    give(location, feature)
    for number, one in enumerate((filled, opened(Path(location).parent, THINGS))):
        assert one.refusal("things") is None
        new = [{**A, **thing(70 + one)} for one in range(number + 1)]
        merge(one, THINGS, IN_A, [("insert", new[-1])])
        assert told(one.load("things", IN_ALL).rows) == told(delta_rs(location)) == told_of([*ROWS, *new])


def as_checkpoint(location, version, *parts):
    """Writes a checkpoint of a version by hand, of actions in so many files, and takes the entries before it away."""
    log = Path(location, "_delta_log")
    names = [f"{version:020d}.checkpoint.{number + 1:010d}.{len(parts):010d}.parquet" for number in range(len(parts))]
    for name, actions in zip(names if len(parts) > 1 else [f"{version:020d}.checkpoint.parquet"], parts):
        pa.parquet.write_table(pa.Table.from_pylist(actions, CHECKPOINT), log / name)
    size = sum(map(len, parts))
    hint = {"version": version, "size": size, **({"parts": len(parts)} if len(parts) > 1 else {})}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    for old in range(version):
        hand.entry_path(location, old).unlink()


_TEXTS = pa.map_(pa.string(), pa.string())
#: The columns of a checkpoint, as the protocol's appendix has them.
CHECKPOINT = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
    ]
)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_checkpoint_written_by_hand_is_read_of_one_file_or_of_several(filled, location, parts):
    state = hand.replay(location)
    actions = [
        {"protocol": {name: state.protocol[name] for name in ("minReaderVersion", "minWriterVersion")}},
        {"metaData": {name: state.metadata[name] for name in CHECKPOINT.field("metaData").type.names}},
        *({"txn": {"appId": name, "version": version}} for name, version in state.transactions.items()),
        *({"add": one} for one in state.files.values()),
    ]
    for action in actions:
        if "add" in action:
            action["add"] = {name: action["add"][name] for name in CHECKPOINT.field("add").type.names}
    as_checkpoint(location, state.version, *(actions[number::parts] for number in range(parts)))
    again = opened(Path(location).parent, THINGS)
    for one in (filled, again):
        assert told(one.load("things", IN_ALL).rows) == told_of(ROWS)
        assert one.transaction_version("things", "app") == 2
    merge(again, THINGS, IN_A, [("delete", ROWS[0])])
    assert [told(reader(location)) == told_of(ROWS[1:]) for reader in READERS] == [True] * len(READERS)
