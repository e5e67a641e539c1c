"""Which messages values name, read by whole arrays as one by one; and what of a claim is not among them."""

import random

import pyarrow as pa
import pytest

from ledger.outputs.messages import compare_with_claim, find_other_messages, resolve_ids, resolve_values
from ledger.rules import message_id as ids
from ledger.store.protocol import RUNS

KEY = ids.new_send_key()
SEGMENTS = [ids.segment(KEY, number) for number in range(3)]


def named(*places):
    return [ids.message_id(SEGMENTS[segment], seq) for segment, seq in places]


def test_an_array_of_ids_names_what_its_values_name_one_by_one():
    places = [(segment, seq) for segment in range(3) for seq in (*range(20), 40, ids.SEQ_BOUND - 1)]
    values = named(*places, *places[:5])
    random.Random(1).shuffle(values)
    values.insert(7, None)
    for array in (
        pa.chunked_array([values]),
        pa.chunked_array([values[:30], values[30:]]),
        pa.chunked_array([values[9:]]),
    ):
        assert resolve_ids(array) == resolve_values(array.to_pylist(), "queue")
    assert resolve_ids(pa.chunked_array([[None, None]], pa.string())).nulls == 2
    assert resolve_ids(pa.chunked_array([], pa.string())).messages.num_rows == 0


@pytest.mark.parametrize(
    "other",
    ["x", "", "G" * 36, "é" + "a" * 34, named((0, 1))[0][:-1] + "g", "-" * 36],
    ids=["too short", "nothing", "no digits", "not ASCII", "no digit at its end", "dashes"],
)
def test_an_array_with_another_value_is_left_to_who_says_what_that_is(other):
    assert resolve_ids(pa.chunked_array([[*named((0, 1), (0, 2)), other]])) is None


def test_what_of_a_claim_is_not_named_keeps_its_columns():
    rows = [(1, SEGMENTS[0], 0, 9, 3), (1, SEGMENTS[0], 10, 19, 4), (2, SEGMENTS[2], 5, 5, 1)]
    claimed = pa.table(list(zip(*rows)), names=[*RUNS.names, "receive_count"])
    claimed = claimed.set_column(0, RUNS.field("lane"), claimed["lane"].cast(pa.int32()))
    some, strangers, missing = compare_with_claim(
        claimed.select(RUNS.names),
        resolve_ids(pa.chunked_array([named((0, 3), (0, 9), (0, 10), (2, 5), (1, 1))])).messages,
    )
    assert (strangers, missing) == (1, 17)
    left = find_other_messages(claimed, some).to_pylist()
    assert [tuple(row.values()) for row in left] == [
        (1, SEGMENTS[0], 0, 2, 3), (1, SEGMENTS[0], 4, 8, 3), (1, SEGMENTS[0], 11, 19, 4)
    ]  # fmt: skip
    assert find_other_messages(claimed, claimed.select(RUNS.names)).num_rows == 0
    assert find_other_messages(claimed, RUNS.empty_table()).equals(claimed)
