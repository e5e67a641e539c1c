"""Counting what of some runs is in none of others, against sets of single messages."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ledger.ending import count_outside
from ledger.store import RUNS

SPAN = st.tuples(st.sampled_from(["s", "t", "u"]), st.integers(0, 20), st.integers(0, 6))


def table(spans):
    return pa.Table.from_pylist(
        [{"lane": 0, "segment": s, "first_seq": first, "last_seq": first + more} for s, first, more in spans], RUNS
    )


def messages(spans):
    return {(segment, seq) for segment, first, more in spans for seq in range(first, first + more + 1)}


@given(st.lists(SPAN), st.lists(SPAN))
def test_what_is_outside_is_counted_message_by_message(spans, others):
    disjoint = [(segment, seq, 0) for segment, seq in messages(spans)]
    assert count_outside(table(disjoint), table(others)) == len(messages(spans) - messages(others))
