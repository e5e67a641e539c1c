"""Counting what of some runs is in none of others, against sets of single messages."""

import contextlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ledger.client.access import ClaimSettlements, count_outside
from ledger.errors import LeaseLost
from ledger.store.protocol import RUNS

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


def test_what_ended_one_by_one_is_known_from_the_first_moment_on():
    endings, claimed = ClaimSettlements("r"), table([("s", 0, 199)])
    for seq in range(150):
        one = table([("s", seq, 0)])
        with endings.ending(one):
            assert endings.count_surely_not_ended(claimed) == 199 - seq, "from the first moment on"
            assert endings.left(claimed) == 200 - seq
    with contextlib.suppress(LeaseLost), endings.ending(table([("s", 150, 9)])):
        raise LeaseLost("nothing was done")
    taken_over = endings.copy()
    with contextlib.suppress(OSError), endings.ending(table([("s", 160, 9)])):
        raise OSError("its answer was lost")
    assert (endings.count_surely_not_ended(claimed), endings.left(claimed)) == (40, 50)
    assert (taken_over.count_surely_not_ended(claimed), taken_over.left(claimed)) == (50, 50)
