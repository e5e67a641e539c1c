"""The columns of a table that rows make: types that every reader has, and what a first batch cannot tell."""

import datetime
import decimal
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from ledger.errors import InvalidParameterValue, LeaseLost, OutputNotWritten

D, UTC = decimal.Decimal, datetime.timezone.utc


@pytest.fixture
def write(place):
    """Writes columns of one value for one message, and returns the table's rows without ids."""

    def write(rows, **arguments):
        place.queue.send("a")
        claim = place.queue.receive()
        table = (
            rows([m.message_id for m in claim])
            if callable(rows)
            else pa.table({"message_id": [claim.messages()[0].message_id], **rows})
        )
        claim.write(table, place.table, messages="message_id", **arguments)
        return sorted(
            DeltaTable(place.table).to_pyarrow_table().drop_columns(["message_id"]).to_pylist(),
            key=lambda row: str(row),
        )

    return write


def types_of(place):
    fields = json.loads(DeltaTable(place.table).schema().to_json())["fields"]
    return {field["name"]: field["type"] for field in fields}


def test_a_new_table_has_types_that_every_reader_has(place, write):
    at = datetime.datetime(2024, 1, 1)
    columns = {
        "ns": (pa.array([at], pa.timestamp("ns")), "timestamp_ntz", at),
        "zone": (pa.array([at], pa.timestamp("ns", "Asia/Tokyo")), "timestamp", at.replace(tzinfo=UTC)),
        "day": (pa.array([at], pa.date64()), "date", at.date()),
        "u8": (pa.array([255], pa.uint8()), "short", 255),
        "u16": (pa.array([65535], pa.uint16()), "integer", 65535),
        "u32": (pa.array([2**32 - 1], pa.uint32()), "long", 2**32 - 1),
        "u64": (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)", D(2**64 - 1)),
        "half": (pa.array([np.float16(0.5)], pa.float16()), "float", 0.5),
        "view": (pa.array(["a"], pa.string_view()), "string", "a"),
        "large": (pa.array(["a"], pa.large_string()), "string", "a"),
        "category": (pa.array(["a"]).dictionary_encode(), "string", "a"),
        "bytes": (pa.array([b"ab"], pa.binary(2)), "binary", b"ab"),
        "price": (pa.array([D("9.99")]), "decimal(38,18)", D("9.99")),
        "roomy": (pa.array([D("9.99")], pa.decimal128(10, 2)), "decimal(10,2)", D("9.99")),
        "wide": (pa.array([D(1)], pa.decimal256(60, 2)), "decimal(38,2)", D(1)),
    }  # fmt: skip
    (row,) = write({name: values for name, (values, _, _) in columns.items()})
    kinds = types_of(place)
    assert {name: kinds[name] for name in columns} == {name: kind for name, (_, kind, _) in columns.items()}
    assert row == {name: value for name, (_, _, value) in columns.items()}
    assert len(write({"price": [D("1234.5678")], "u8": [300]})) == 2, "what comes later fits"
    with pytest.raises(
        OutputNotWritten, match=r"column u8 is bigint, and smallint in the table: the value 70000 .*int"
    ):
        write({"u8": [70_000]})


def test_lists_and_structs_of_a_new_table_are_plain_too(place, write):
    rows = pl.DataFrame({"x": [["a"]], "y": [{"z": [1]}], "f": [[1, 2]]}, schema_overrides={"f": pl.Array(pl.UInt8, 2)})
    assert write(lambda ids: rows.with_columns(message_id=pl.Series(ids))) == [
        {"x": ["a"], "y": {"z": [1]}, "f": [1, 2]}
    ]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("time", pa.array([datetime.time(1)])), ("duration", pa.array([datetime.timedelta(1)])),
        ("month_day_nano_interval", pa.array([(1, 2, 3)], pa.month_day_nano_interval())),
        ("would be changed", pa.array([1], pa.timestamp("ns"))),
    ],
)  # fmt: skip
def test_what_delta_has_no_type_for_is_refused_and_leaves_no_table(place, write, name, values):
    with pytest.raises(OutputNotWritten, match=name) as refused:
        write({"x": values})
    assert "column x" in str(refused.value) and not Path(place.table).exists()
    assert place.queue.counts().in_flight == 1
    assert len(write({"x": [1]})) == 1, "no table was left behind"


UNTOLD = {"None": [None], "[]": [[]], "{}": [{}], "[None]": [[None]], "[{}]": [[{}]]}


@pytest.mark.parametrize("name", UNTOLD)
def test_what_the_first_rows_do_not_tell_is_added_by_the_first_that_do(place, write, name):
    later = {"None": ["x"], "[]": [["x"]], "{}": [{"a": 1}], "[None]": [["x"]], "[{}]": [[{"a": 1}]]}[name]
    assert write({"n": [1], "note": UNTOLD[name]}) == [{"n": 1}]
    assert write({"n": [2], "note": UNTOLD[name]}) == [{"n": 1}, {"n": 2}]
    versions = DeltaTable(place.table).version()
    assert write({"n": [3], "note": later}) == [
        {"n": 1, "note": None},
        {"n": 2, "note": None},
        {"n": 3, "note": later[0]},
    ]
    assert DeltaTable(place.table).version() == versions + 1, "in the commit of the rows"
    with pytest.raises(OutputNotWritten, match="no column other"):
        write({"n": [4], "other": ["x"]})


def test_a_field_inside_that_nothing_told_is_added_too(place, write):
    assert write({"s": [{"a": 1, "b": None}]}) == [{"s": {"a": 1}}]
    assert write({"s": [{"a": 2, "b": "x"}]}) == [{"s": {"a": 1, "b": None}}, {"s": {"a": 2, "b": "x"}}]


def test_the_writer_may_give_the_types(place, write):
    schema = pa.schema([("note", pa.string()), ("price", pa.decimal128(10, 2)), ("later", pa.date32())])
    assert write({"note": [None], "price": [D("9.99")]}, schema=schema) == [
        {"note": None, "price": D("9.99"), "later": None}
    ]
    assert types_of(place)["price"] == "decimal(10,2)"
    for wrong in ("wider", 7, {"note": "string"}):
        with pytest.raises(InvalidParameterValue, match="schema"):
            write({"note": ["x"]}, schema=wrong)
    with pytest.raises(OutputNotWritten, match=r"note is string in the table, and bigint in schema="):
        write({"note": ["x"]}, schema=pa.schema([("note", pa.int64())]))
    with pytest.raises(OutputNotWritten, match="no row tells the type"):
        place.queue.send("a")
        place.queue.receive().write(pa.table({"note": [None]}), f"{place.table}-2")
    assert not Path(f"{place.table}-2").exists()


def test_columns_are_widened_and_added_when_that_is_asked(place, write):
    write({"price": [10], "n": pa.array([1], pa.int8())})
    for refused in ({"price": [9.99]}, {"n": [300]}, {"price": [10], "new": ["x"]}):
        with pytest.raises(OutputNotWritten, match='schema="widen"'):
            write(refused)
    assert write({"price": [9.99], "n": [300], "new": ["x"]}, schema="widen") == [
        {"price": 10.0, "n": 1, "new": None}, {"price": 9.99, "n": 300, "new": "x"},
    ]  # fmt: skip
    assert types_of(place) == {"message_id": "string", "price": "double", "n": "long", "new": "string"}
    with pytest.raises(OutputNotWritten, match="price is string, and double"):
        write({"price": ["x"]}, schema="widen")


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (
            lambda table: table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"}),
            "its property delta.enableChangeDataFeed",
        ),
        (lambda table: table.alter.add_constraint({"positive": "n > 0"}), "what it asks of "),
        (
            lambda table: write_deltalake(
                table, table.to_pyarrow_table(), mode="overwrite", schema_mode="overwrite", partition_by=["part"]
            ),
            "its partitions by part",
        ),
    ],
    ids=["change data feed", "CHECK", "partitions"],
)
def test_widening_is_offered_for_tables_alone_that_are_widened(place, write, alter, why):
    write({"n": pa.array([1], pa.int32()), "part": ["a"]})
    alter(DeltaTable(place.table))
    for rows, schema in (
        ({"n": [2**40], "part": ["a"]}, None),
        ({"n": [1.5], "part": ["a"]}, None),
        ({"n": [1], "part": ["a"]}, pa.schema([("n", pa.int64())])),
    ):
        with pytest.raises(OutputNotWritten) as refused:
            write(rows, schema=schema)
        said = str(refused.value)
        assert f'or have Spark write the table anew (schema="widen" does not, because of {why}' in said
        assert 'give schema="widen"' not in said
    with pytest.raises(OutputNotWritten, match="are not widened here because of"):
        write({"n": [2**40], "part": ["a"]}, schema="widen")


def test_a_type_in_schema_that_is_not_the_tables_is_refused_with_both_and_widen_where_it_helps(place, write):
    write({"n": pa.array([1], pa.int32()), "note": ["a"]})
    with pytest.raises(OutputNotWritten) as refused:
        write({"n": [1]}, schema=pa.schema([("n", pa.int64()), ("note", pa.int64())]))
    said = str(refused.value)
    assert "column n is int in the table, and bigint in schema=: give the table's type" in said
    assert 'or give schema="widen", which makes the column bigint' in said
    assert "column note is string in the table, and bigint in schema=" in said and said.count("widen") == 1
    assert write({"n": [2**40], "note": ["b"]}, schema="widen")[-1]["n"] == 2**40


def test_a_stored_value_that_would_be_changed_keeps_its_column_from_being_widened(place, write):
    write({"n": [2**53 + 1]})
    with pytest.raises(OutputNotWritten, match="n is bigint, and double in the table: the value 9007199254740993"):
        write({"n": [9.99]}, schema="widen")
    assert DeltaTable(place.table).version() == 1


def test_a_table_whose_files_delta_rs_cannot_remove_is_not_widened(place, write):
    """See docs/explanation/delta-rs-faults.md: its rows would be there twice."""
    write({"n": pa.array([1], pa.int32())})
    entry = Path(place.table, "_delta_log", f"{1:020d}.json")
    (path,) = DeltaTable(place.table).get_add_actions()["path"].to_pylist()
    (Path(place.table) / path).rename(Path(place.table, "Zürich.parquet"))
    entry.write_text(entry.read_text().replace(path, "Zürich.parquet"))
    with pytest.raises(OutputNotWritten, match=r"Zürich.parquet, which delta-rs would write in another way"):
        write({"n": [2**40]}, schema="widen")
    assert DeltaTable(place.table).to_pyarrow_table()["n"].to_pylist() == [1]


LONG = pa.array([D("12345678901234567890.123456789012345678")], pa.decimal128(38, 18))


def test_what_is_widened_is_found_by_filters_afterwards(place, write):
    """delta-rs's own bounds of decimals are floats, and of NaN and infinity they do not tell."""
    rows = {"n": pa.array([1], pa.int32()), "d": LONG, "s": pa.StructArray.from_arrays([LONG], names=["a"])}
    write(rows)
    write({**rows, "n": pa.array([2**40], pa.int64()), "d": pa.array([D("1.5")], LONG.type)}, schema="widen")
    write({**rows, "n": [5], "x": [float("inf")]}, schema="widen")
    write({**rows, "n": [0.5], "x": [1.5]}, schema="widen")
    assert types_of(place)["n"] == "double"
    dataset, inner = DeltaTable(place.table).to_pyarrow_dataset(), pc.field("s", "a")
    for condition, count in (
        (pc.field("d") == LONG[0], 3), (pc.field("d") == pa.scalar(D("1.5"), LONG.type), 1), (inner == LONG[0], 4),
        (pc.field("n") == 1, 1), (pc.field("n") == 2**40, 1), (pc.field("x") > 1, 2), (pc.field("x") == 1.5, 1),
    ):  # fmt: skip
        assert dataset.to_table(filter=condition).num_rows == count, condition


def test_columns_keep_their_comments_and_lengths_where_others_are_widened(place, write):
    nested = pa.struct([pa.field("a", pa.int64(), metadata={"comment": "inside"})])
    schema = pa.schema(
        [
            ("message_id", pa.string()),
            pa.field("n", pa.int32(), metadata={"comment": "the {number}", "ml": "1"}),
            pa.field("s", pa.string(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
            ("st", nested),
        ]
    )
    DeltaTable.create(place.table, schema=schema, description="all of it")
    before = json.loads(DeltaTable(place.table).schema().to_json())["fields"]
    write({"n": pa.array([2**40], pa.int64()), "s": ["abc"]}, schema="widen")
    after = json.loads(DeltaTable(place.table).schema().to_json())["fields"]
    assert after == [{**one, "type": "long"} if one["name"] == "n" else one for one in before]
    assert DeltaTable(place.table).metadata().description == "all of it"
    with pytest.raises(OutputNotWritten, match=r"varchar\(3\)"):
        write({"s": ["too long"]})


def test_a_stored_value_that_would_be_changed_is_named(place, write):
    write({"n": pa.array([2**53 + 1], pa.int64())})
    said = "n cannot be widened: of the stored rows, column n is bigint, .* 9007199254740993 would be changed; leave"
    with pytest.raises(OutputNotWritten, match=said):
        write({"n": [1.5]}, schema="widen")
    assert types_of(place)["n"] == "long"


def test_an_empty_frame_acknowledges_nothing_and_is_no_error(place, write):
    for empty in (
        lambda ids: pd.DataFrame({"message_id": ids, "n": [1]}).query("n > 5"),
        lambda ids: pl.DataFrame({"message_id": [], "n": []}),
        lambda ids: pd.DataFrame({"message_id": [], "x": []}),
        lambda ids: pa.table({"message_id": pa.array([], pa.int64())}),
    ):
        assert write(empty) == []
    assert place.queue.counts().deleted == 0


def test_a_column_of_nulls_fits_every_column(write):
    write({"text": ["a"], "number": [1]})
    frame = lambda ids: pd.DataFrame({"message_id": ids, "text": [float("nan")], "number": [None]})  # noqa: E731
    assert write(frame)[1] == {"text": None, "number": None}


def test_names_in_other_capitals_are_the_same_column(place, write):
    write({"price": [1]})
    assert write({"Price": [2]}) == [{"price": 1}, {"price": 2}]
    with pytest.raises(OutputNotWritten, match="in other capitals"):
        write({"price": [1], "Price": [2]})


TWICE = pa.struct([("a", pa.int64()), ("A", pa.int64())])
ONE_AND_TWO = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], fields=list(TWICE))


@pytest.mark.parametrize(
    "column",
    [
        ONE_AND_TWO,
        pa.ListArray.from_arrays([0, 1], ONE_AND_TWO),
        pa.StructArray.from_arrays([ONE_AND_TWO], names=["s"]),
        pa.MapArray.from_arrays([0, 1], ["k"], ONE_AND_TWO),
    ],
    ids=lambda column: str(column.type),
)
def test_fields_of_structs_in_other_capitals_are_refused_of_new_tables_and_new_columns(place, write, column):
    """Spark does not open a table that has them."""
    with pytest.raises(OutputNotWritten, match=r"the rows have two columns x\.\S*A, in other capitals: rename one"):
        write({"x": column})
    assert not Path(place.table).exists()
    write({"n": [1]})
    with pytest.raises(OutputNotWritten, match=r"the rows have two columns x\.\S*A, in other capitals: rename one"):
        write({"x": column}, schema="widen")


def test_a_lease_that_is_lost_makes_no_table_and_leaves_the_columns_of_one_as_they_are(place, write):
    place.queue.send("a")
    lost = place.queue.receive(visibility_timeout=30)
    message_id = lost.messages()[0].message_id
    place.clock.advance(31)
    place.queue.receive(visibility_timeout=0)
    rows = {"message_id": [message_id], "price": [1.5]}
    with pytest.raises(LeaseLost):
        lost.write(pa.table(rows), place.table, messages="message_id")
    assert not Path(place.table).exists()
    write({"price": pa.array([1], pa.int64())})
    with pytest.raises(LeaseLost):
        lost.write(pa.table(rows), place.table, messages="message_id", schema="widen")
    assert types_of(place)["price"] == "long"


@pytest.mark.parametrize(
    "kind, value",
    [
        (pa.map_(pa.string(), pa.uint16()), [("k", 1)]),
        (pa.map_(pa.large_string(), pa.large_string()), [("k", "v")]),
        (pa.map_(pa.string(), pa.timestamp("ns", "UTC")), [("k", datetime.datetime(2024, 1, 1, tzinfo=UTC))]),
        (pa.map_(pa.string(), pa.timestamp("us")), [("k", datetime.datetime(2024, 1, 1))]),
        (pa.list_(pa.map_(pa.string(), pa.timestamp("us"))), [[("k", datetime.datetime(2024, 1, 1))]]),
        (pa.map_(pa.int32(), pa.decimal128(9, 2)), [(1, D("1.50"))]),
        (pa.map_(pa.string(), pa.list_(pa.large_string())), [("k", ["v"])]),
        (pa.map_(pa.string(), pa.struct([("a", pa.uint8())])), [("k", {"a": 1})]),
        (pa.map_(pa.string(), pa.string()), []),
    ],
)
def test_maps_are_written_as_what_is_in_them(write, kind, value):
    """The second write finds the table."""
    for number in (1, 2):
        assert write({"x": pa.array([value], kind)}) == [{"x": value}] * number


def test_what_is_in_a_map_is_compared_with_its_cast_back(place, write):
    write({"x": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))})
    write({"x": pa.array([[("k", 2)]], pa.map_(pa.string(), pa.int64()))})
    with pytest.raises(OutputNotWritten, match="column x is map<string,bigint>, and map<string,int> in the table"):
        write({"x": pa.array([[("k", 2**40)]], pa.map_(pa.string(), pa.int64()))})


COUNTED = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("values", "key"),
    [
        (pa.array([[("k", 1), ("j", 2), ("k", 3)]], COUNTED), "k"),
        (pa.array([[[("k", 1)], [("k", 1), ("k", 2)]]], pa.list_(COUNTED)), "k"),
        (pa.array([{"a": [("k", 1), ("k", 2)]}], pa.struct([("a", COUNTED)])), "k"),
        (pa.array([[("o", [("k", 1), ("k", 2)])]], pa.map_(pa.string(), COUNTED)), "k"),
        (pa.array([[({"a": 1}, 1), ({"a": 1}, 2)]], pa.map_(pa.struct([("a", pa.int64())]), pa.int64())), "{'a': 1}"),
        (pa.array([None, [("k", 1)], [("k", 1), ("k", 2)]], COUNTED).slice(2), "k"),
        (pa.chunked_array([pa.array([], COUNTED), pa.array([[("k", 1), ("k", 2)]], COUNTED)]), "k"),
    ],
    ids=["map", "list", "struct", "inner", "key of structs", "slice", "chunks"],
)
def test_a_map_with_a_key_twice_is_refused(place, write, values, key):
    with pytest.raises(OutputNotWritten, match=f"column x has a map with the key {key} twice, .*: keep one value"):
        write({"x": values})
    assert not Path(place.table).exists()


def test_maps_of_several_rows_may_have_the_same_keys(place):
    place.queue.send("a")
    claim = place.queue.receive()
    ids = [claim.messages()[0].message_id] * 3
    maps = pa.array([[("k", 1)], None, [("k", 2), ("j", 1)]], COUNTED)
    claim.write(pa.table({"message_id": ids, "x": maps}), place.table, messages="message_id")
    assert DeltaTable(place.table).to_pyarrow_table()["x"].to_pylist() == [[("k", 1)], None, [("k", 2), ("j", 1)]]


def test_an_integer_of_128_bits_of_polars_is_named(place, write):
    with pytest.raises(InvalidParameterValue, match=r"Int128 or UInt128 of polars.*Decimal\(38, 0\)"):
        write(lambda ids: pl.DataFrame({"message_id": ids, "x": pl.Series([2**70], dtype=pl.Int128)}))


def test_an_empty_struct_inside_another_is_left_out(write):
    assert write({"x": pa.array([{"a": {}, "b": 1}])}) == [{"x": {"b": 1}}]


@pytest.mark.parametrize("kind", [pa.decimal32(5, 2), pa.decimal64(12, 2)])
def test_short_decimals_are_decimals(write, kind):
    assert write({"x": pa.array([D("1.50")], kind), "y": pa.array([[D("1.50")]], pa.list_(kind))}) == [
        {"x": D("1.50"), "y": [D("1.50")]}
    ]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([-800_000], pa.int32()).cast(pa.date32()),
        pa.array([2_932_897], pa.int32()).cast(pa.date32()),
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([-(2**63)], pa.int64()).cast(pa.timestamp("us")),
        pa.array([253_402_300_800_000_000], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([[2_932_897]], pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
    ],
)
def test_days_and_instants_that_readers_fail_on_are_refused(place, write, values):
    """Python has the years 1 to 9999: one such value, and to_pyarrow_table fails for the whole table."""
    with pytest.raises(OutputNotWritten, match=r"column x has the value -?[0-9]+ .* since 1970, .* years 1 to 9999"):
        write({"x": values})
    assert not Path(place.table).exists()
    edges = pa.array([-719_162], pa.int32()).cast(pa.date32())
    assert write({"x": edges, "y": pa.array([2_932_896], pa.int32()).cast(pa.date32())}) == [
        {"x": datetime.date(1, 1, 1), "y": datetime.date(9999, 12, 31)}
    ]


def test_an_empty_text_in_a_column_of_partitions_is_refused(place, write):
    """Delta stores null for it."""
    rows = pa.table({"message_id": ["m"], "part": ["a"], "x": [1]})
    write_deltalake(place.table, rows, partition_by=["part"])
    for text in ("", "__HIVE_DEFAULT_PARTITION__"):
        with pytest.raises(
            OutputNotWritten, match=r"column part has an empty text, or __HIVE.*, and the table is part"
        ):
            write({"part": [text], "x": [2]})
    write({"part": pa.array([None], pa.string()), "x": [3]})
    assert [row["part"] for row in write({"part": ["b"], "x": [4]})] == ["a", "b", None]


def test_bytes_in_a_column_of_partitions_are_refused(place, write):
    rows = pa.table({"message_id": ["m"], "part": pa.array([None], pa.binary()), "x": [1]})
    write_deltalake(place.table, rows, partition_by=["part"])
    with pytest.raises(OutputNotWritten, match="column part has bytes, and the table is partitioned by it"):
        write({"part": [b"ab"], "x": [2]})
