"""Which rows go into which column: one rule, tried on both engines with every pair of types and a set of values."""

import datetime
import decimal
import itertools
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ledger.output_tables.arrow_types import arrow_type
from ledger.output_tables.exact_casts import Changed, cast_exactly
from ledger.rules.column_types import Fit, fit, has_local_time_in_map, make_nullable_field

D = decimal.Decimal
UTC = datetime.timezone.utc
DAY, NOON = datetime.datetime(2024, 3, 31), datetime.datetime(2024, 3, 31, 12, 0, 0, 1)
#: Of each type some values: usual ones, and those at bounds.
VALUES = {
    "boolean": [True, False],
    "byte": [0, 127, -128],
    "short": [7, 300, -32768],
    "integer": [7, 16_777_217, 2**31 - 1, 2**31 - 128, -(2**31)],
    "long": [7, 16_777_217, 2**53 + 1, 2**60, 2**63 - 1, 2**63 - 512, 2**63 - 600, 2**63 - 2**39, -(2**63)],
    "float": [1.0, 0.5, 16_777_216.0, float(2**31), 2.0**63, 2.0**90, float("nan"), float("inf")],
    "double": [
        7.0,
        9.99,
        0.1,
        0.1 + 0.2,
        0.125,
        1e300,
        2.0**53 - 1,
        2.0**53,
        2.0**60,
        849913100847272580.0,
        2.0**63,
        -(2.0**63),
        1e23,
        -1e22,
        2.0**64,
        1e38,
        1.1e38,
        float("nan"),
        float("-inf"),
        -0.0,
    ],
    "decimal(5,2)": [D("7.00"), D("9.99"), D("-999.99")],
    "decimal(20,0)": [D(7), D(2**63 - 1), D(2**63), D(10**19), D(2**53 + 1), D(2**60)],
    "decimal(38,0)": [D(10**23), D(10**22), D(int(1e23)), D(10**38 - 1), D(2**100), D(-(2**64))],
    "decimal(38,18)": [D("7"), D("0.1"), D("9.990000000000000001"), D("12345678901234567890.5")],
    "string": ["", "7", "007", "true", "2024-03-31"],
    "binary": [b"", b"7", b"\xff"],
    "date": [datetime.date(2024, 3, 31), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp": [DAY.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC), datetime.datetime(1900, 1, 1, tzinfo=UTC)],
    "timestamp_ntz": [DAY, NOON, datetime.datetime(2024, 3, 31, 2, 30), datetime.datetime(1900, 1, 1)],
}
PAIRS = list(itertools.product(VALUES, VALUES))


def array_of(kind, values):
    return pa.array(values, arrow_type(kind))


def stored_by_arrow(given, column, value):
    """What becomes of a value in a column; "refused"."""
    array = array_of(given, [value])
    try:
        made = cast_exactly(array, arrow_type(column))
    except (Changed, pa.ArrowException, ArithmeticError):
        return "refused"
    return told(made[0].as_py())


def told(value):
    return "nan" if value != value else value


@pytest.mark.parametrize(("given", "column"), PAIRS)
def test_a_value_is_stored_as_itself_or_refused(given, column):
    found = fit(given, column)
    for value in VALUES[given]:
        stored = stored_by_arrow(given, column, value)
        if found is Fit.NEVER:
            assert stored == "refused"
        elif found is Fit.ALWAYS:
            assert stored != "refused"
        if stored == "refused" or stored == "nan":
            continue
        back = cast_exactly(array_of(column, [stored]), arrow_type(given))[0].as_py()
        assert told(back) == told(value), (value, stored)


@pytest.mark.parametrize(
    ("given", "column", "value"),
    [
        ("double", "long", 9.99), ("string", "long", "007"), ("long", "boolean", 5), ("boolean", "long", True),
        ("long", "date", 19_000), ("long", "timestamp", 1_700_000_000), ("long", "integer", 2**31),
        ("long", "string", 7),
        ("long", "double", 2**53 + 1), ("double", "float", 0.1), ("timestamp", "date", NOON.replace(tzinfo=UTC)),
        ("double", "long", float("nan")), ("double", "long", 2.0**63), ("long", "float", 2**63 - 1),
        ("decimal(5,2)", "long", D("9.99")), ("string", "date", "2024-03-31"), ("binary", "string", b"7"),
    ],
)  # fmt: skip
def test_what_would_be_another_value_is_refused(given, column, value):
    assert stored_by_arrow(given, column, value) == "refused"


@pytest.mark.parametrize(
    ("given", "column", "value", "stored"),
    [
        ("integer", "double", 7, 7.0), ("long", "integer", 7, 7), ("integer", "long", 7, 7),
        ("float", "double", 0.5, 0.5),
        ("double", "long", 7.0, 7), ("decimal(5,2)", "decimal(38,18)", D("9.99"), D("9.99")),
        ("long", "double", 2**60, 2.0**60),
        ("date", "timestamp", DAY.date(), DAY.replace(tzinfo=UTC)),
        ("timestamp", "date", DAY.replace(tzinfo=UTC), DAY.date()),
        ("timestamp_ntz", "timestamp", NOON, NOON.replace(tzinfo=UTC)), ("double", "decimal(5,2)", 9.99, D("9.99")),
    ],
)  # fmt: skip
def test_ordinary_widening_stays(given, column, value, stored):
    assert stored_by_arrow(given, column, value) == stored


@pytest.mark.parametrize("refused", ["some", pytest.param("each", marks=pytest.mark.soak)])
def test_rows_of_arrow_and_dataframes_are_stored_alike(spark, tmp_path, refused):
    from ledger.output_tables.row_errors import find_refused_value
    from ledger.store.delta.dataframes.column_casts import fit_frame

    before = spark.conf.get("spark.sql.session.timeZone")
    # A zone with a gap in the night of DAY: no answer may depend on it.
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    wrong, turn = [], 0
    try:
        for given, values in VALUES.items():
            expected = {
                column: [stored_by_arrow(given, column, value) for value in values]
                for column in VALUES
                if fit(given, column) is not Fit.NEVER
            }
            # Of rows in memory Spark computes expressions before it simplifies them; of those of a file after it. All
            # columns are of one file, and a value that its column refuses is left out: each job takes a moment.
            kept = {
                column: [value if one != "refused" else None for value, one in zip(values, stored)]
                for column, stored in expected.items()
            }
            file = str(tmp_path / f"{given}.parquet")
            columns = {f"into {column}": array_of(given, rows) for column, rows in kept.items()}
            pq.write_table(pa.table({"n": range(len(values)), "x": array_of(given, values), **columns}), file)
            frame = spark.read.parquet(file)
            fields = [
                make_nullable_field("n", "long"),
                *(make_nullable_field(f"into {column}", column) for column in kept),
            ]
            found = fit_frame(frame.drop("x"), {"type": "struct", "fields": fields}).toArrow().sort_by("n")
            for column, stored in expected.items():
                made = [told(one) for one in found[f"into {column}"].to_pylist()]
                if made != [None if one == "refused" else one for one in stored]:
                    wrong.append((given, column, made, stored))
            for column, stored in expected.items():
                schema = {
                    "type": "struct",
                    "fields": [make_nullable_field("n", "long"), make_nullable_field("x", column)],
                }
                others = [number for number, one in enumerate(stored) if one == "refused"]
                turn += bool(others)
                if refused == "some":
                    others = others[turn % len(others) :][:1] if others and turn % 4 == 0 else []
                for number in others:
                    try:
                        rows = frame.where(frame.n == number).select("n", "x")
                        wrong.append(
                            (given, column, values[number], fit_frame(rows, schema).toArrow(), "must be refused")
                        )
                        continue
                    except Exception as error:
                        raised, said = error, find_refused_value(error)[0]
                    if not said or "column x is " not in said or not re.search("would be changed|has no value", said):
                        wrong.append((given, column, values[number], str(raised)[:300]))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert not wrong


def test_a_local_time_in_a_map_is_a_type_and_not_a_name():
    def map_of(value):
        return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}

    def struct_of(name, kind):
        return {"type": "struct", "fields": [make_nullable_field(name, kind)]}

    assert not has_local_time_in_map(map_of(struct_of("at_timestamp_ntz", "long")))
    assert not has_local_time_in_map(struct_of("at", "timestamp_ntz"))
    for kind in ("timestamp_ntz", struct_of("at", "timestamp_ntz"), map_of("timestamp_ntz")):
        assert has_local_time_in_map(struct_of("column", map_of(kind)))
