"""Records by their codes, read from rows only where they are asked for: the same as if all had been read at once."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.delta_log import rewrite
from ledger.delta_log.rewrite import list_distinct_rows, matches, number_rows
from ledger.rules.visibility import UNTOUCHED, Record, status
from ledger.store.delta.model.message_runs import ABSENT
from ledger.store.delta.model.tables import INSTANT_COLUMNS, RECORD_COLUMNS, VISIBILITY
from ledger.store.delta.state import lane_records as of_records
from ledger.store.delta.state.lane_records import NONE, Records
from ledger.store.delta.state.listing import STATES, read_recorded_states

NOW = 5_000
INSTANTS = st.none() | st.integers(NOW - 2, NOW + 2)
TEXTS = st.none() | st.sampled_from(["a", "b"])
RECORDS = st.builds(
    Record, TEXTS, TEXTS, st.integers(0, 2), INSTANTS, INSTANTS, INSTANTS, INSTANTS, INSTANTS, TEXTS, TEXTS, INSTANTS,
    TEXTS, TEXTS,
)  # fmt: skip
LISTS = st.lists(RECORDS, max_size=20)
EXAMPLES = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows_of(records):
    """Rows of `visibility` as far as they are records."""
    schema = pa.schema([VISIBILITY.field(name) for name in RECORD_COLUMNS])
    columns = []
    for name, values in zip(RECORD_COLUMNS, zip(*records) if records else [()] * len(RECORD_COLUMNS)):
        kind = schema.field(name).type
        instants = [None if value is None else value * 1_000 for value in values]
        columns.append(pa.array(instants, pa.int64()).cast(kind) if name in INSTANT_COLUMNS else pa.array(values, kind))
    return pa.table(columns, schema=schema)


@pytest.fixture(params=[0, 3, 200], autouse=True)
def few(request, monkeypatch):
    """Records are read one by one, those of few rows at once, or all at once."""
    monkeypatch.setattr(of_records, "FEW", request.param)


@EXAMPLES
@given(LISTS, LISTS, st.randoms())
def test_equal_records_share_a_code_whether_stored_read_or_met_later(stored, met, random):
    records = Records(rows_of(stored))
    asked = [*stored, *met, *met]
    random.shuffle(asked)
    for record in asked:
        assert records.record(records.code(record)) == record
    assert [records.record(code) for code in records.codes.tolist()] == stored
    assert sorted(map(repr, records.all())) == sorted(map(repr, {*stored, *met}))
    assert [records.code(record) for record in records.all()] == list(range(len({*stored, *met})))


@EXAMPLES
@given(LISTS, LISTS)
def test_columns_tell_what_the_records_do(stored, met):
    records = Records(rows_of(stored))
    for record in met:
        records.code(record)
    states, visible_at = read_recorded_states(records, NOW), records.numbers("visible_at")
    under, begun = records.is_there("receipt_id", "a"), records.is_there("write_id")
    for code, record in zip(range(ABSENT, len(records.all())), [UNTOUCHED, *records.all()]):
        assert STATES[states[code - ABSENT]] == status(record, 0, NOW)
        assert visible_at[code - ABSENT] == (NONE if record.visible_at is None else record.visible_at)
        assert under[code - ABSENT] == (record.receipt_id == "a")
        assert begun[code - ABSENT] == (record.write_id is not None)
        assert records.is_there("visible_at")[code - ABSENT] == (record.visible_at is not None)


@EXAMPLES
@given(LISTS)
def test_a_rule_is_asked_about_those_alone_that_it_may_be_true_of(stored):
    records, asked = Records(rows_of(stored)), []
    codes = np.append(records.codes, ABSENT)
    under = records.is_there("receipt_id", "a")
    found = records.per_code(codes, lambda r: asked.append(r) or r.receive_count + 1, np.int64, under)
    assert found.tolist() == [r.receive_count + 1 if r.receipt_id == "a" else 0 for r in (*stored, UNTOUCHED)]
    assert len(asked) == len({record for record in stored if record.receipt_id == "a"})


@EXAMPLES
@given(LISTS)
def test_equal_rows_have_equal_numbers_and_others_do_not(stored):
    rows = rows_of(stored)
    number, some_row = number_rows([rows[name] for name in RECORD_COLUMNS], rows.num_rows)
    assert [stored[some_row[one]] for one in number.tolist()] == stored
    assert len(some_row) == len(set(stored))


ROWS = st.lists(st.tuples(st.sampled_from("ab") | st.none(), st.integers(0, 3)), max_size=12)


def table_of(pairs):
    """Two columns."""
    return pa.table(
        {"text": pa.array([p[0] for p in pairs], pa.string()), "n": pa.array([p[1] for p in pairs], "int64")}
    )


@pytest.mark.parametrize(("few", "very_few"), [(0, 0), (1_000, -100), (1_000, 2), (1_000, 100)])
@EXAMPLES
@given(rows=ROWS, edits=ROWS)
def test_few_rows_and_many_are_told_apart_and_found_alike(few, very_few, rows, edits):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "FEW_ROWS", few)
        patch.setattr(rewrite, "VERY_FEW_ROWS", very_few)
        told = list_distinct_rows(table_of(rows), ["text", "n"])
        found = sorted(zip(*(one.tolist() for one in matches(table_of(rows), table_of(edits), ["text", "n"]))))
    assert sorted(map(repr, told)) == sorted(repr({"text": t, "n": n}) for t, n in set(rows))
    assert found == [
        (i, j) for i, row in enumerate(rows) for j, edit in enumerate(edits) if row == edit and row[0] is not None
    ]
