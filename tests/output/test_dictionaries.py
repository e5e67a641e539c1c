"""Dictionaries that a work function returns, as the rows of an output table."""

import pyarrow as pa
import pytest

from ledger.airflow.message_work import table_of
from ledger.errors import InvalidParameterValue


def test_rows_may_differ_in_their_columns_whichever_comes_first():
    done, failed = {"message_id": "a", "value": 1}, {"message_id": "b", "error": "bad"}
    for rows in ([done, failed], [failed, done]):
        assert sorted(table_of(rows).to_pylist(), key=lambda row: row["message_id"]) == [
            {"message_id": "a", "value": 1, "error": None},
            {"message_id": "b", "value": None, "error": "bad"},
        ]
    assert table_of([]).equals(pa.table({}))


@pytest.mark.parametrize("row", [{}, None, "a", b"a", 7, ["message_id"]])
def test_a_row_that_is_no_dictionary_or_says_nothing_is_refused(row):
    """Without columns, all messages would be acknowledged."""
    with pytest.raises(InvalidParameterValue, match="must be a dictionary, of a column at least"):
        table_of([{"message_id": "a"}, row])
    with pytest.raises(InvalidParameterValue, match="must be a dictionary"):
        table_of([row])
