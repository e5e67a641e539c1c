"""The algebra of runs against a brute-force model: a dict from place to code."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ledger.store.delta.model import run_algebra
from ledger.store.delta.model.run_algebra import ABSENT, Runs

#: Steps between borders: (gap before, length, code); short, so that runs touch and overlap often.
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 2)), max_size=12)
QUERIES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), max_size=8)


def runs_of(steps):
    at, rows = 0, []
    for gap, length, code in steps:
        rows.append((at + gap, at + gap + length - 1, code))
        at += gap + length
    return Runs(*(np.array([row[i] for row in rows], dtype=np.int64) for i in range(3)))


def model(runs):
    return {
        place: code
        for first, last, code in zip(*(column.tolist() for column in runs))
        for place in range(first, last + 1)
    }


def assert_sorted_and_apart(runs):
    assert (runs.first <= runs.last).all()
    assert (runs.last[:-1] < runs.first[1:]).all()


def test_no_runs_are_no_runs():
    nothing = run_algebra.empty_runs()
    assert [len(column) for column in run_algebra.paint(nothing, nothing)] == [0, 0, 0]
    pieces = run_algebra.cut(nothing, np.array([3]), np.array([9]))
    assert [column.tolist() for column in pieces] == [[0], [3], [9], [ABSENT]]


def test_places_stay_whole_numbers_beside_no_runs():
    far = Runs(*(np.array([2**60 + 1], dtype=np.int64) for _ in range(3)))
    for painted in (run_algebra.paint(far, run_algebra.empty_runs()), run_algebra.paint(run_algebra.empty_runs(), far)):
        assert [column.tolist() for column in painted] == [[2**60 + 1]] * 3, "a float has no such number"


@given(st.binary(max_size=12))
def test_the_ones_of_a_bitmap_are_its_places_lowest_bit_first(bitmap):
    first, last = run_algebra.ones(bitmap)
    places = {place for a, b in zip(first.tolist(), last.tolist()) for place in range(a, b + 1)}
    assert places == {8 * byte + bit for byte, value in enumerate(bitmap) for bit in range(8) if value >> bit & 1}
    assert (first <= last).all() and (last[:-1] + 1 < first[1:]).all(), "runs, and none touches the next"


@given(STEPS, QUERIES)
def test_cut_covers_every_query_exactly_in_order_with_the_codes_below(steps, queries):
    runs = runs_of(steps)
    first = np.array([q[0] for q in queries], dtype=np.int64)
    last = np.array([q[0] + q[1] - 1 for q in queries], dtype=np.int64)
    below = model(runs)
    pieces = run_algebra.cut(runs, first, last)
    cut = list(zip(*(column.tolist() for column in pieces)))
    places = [(query, place, code) for query, a, b, code in cut for place in range(a, b + 1)]
    assert places == [
        (n, place, below.get(place, ABSENT))
        for n, (a, b) in enumerate(zip(first.tolist(), last.tolist()))
        for place in range(a, b + 1)
    ]


@given(STEPS, QUERIES)
def test_cut_cuts_only_at_borders(steps, queries):
    runs = runs_of(steps)
    first = np.array([q[0] for q in queries], dtype=np.int64)
    last = np.array([q[0] + q[1] - 1 for q in queries], dtype=np.int64)
    pieces = run_algebra.cut(runs, first, last)
    borders = set(runs.first.tolist()) | set((runs.last + 1).tolist())
    starts = set(zip(range(len(queries)), first.tolist()))
    for query, a in zip(pieces.query.tolist(), pieces.first.tolist()):
        assert a in borders or (query, a) in starts


@given(STEPS, STEPS)
def test_paint_lays_the_new_runs_on_top(below, above):
    runs, over = runs_of(below), runs_of(above)
    painted = run_algebra.paint(runs, over)
    assert model(painted) == {**model(runs), **model(over)}
    assert_sorted_and_apart(painted)


@given(STEPS, STEPS)
def test_paint_leaves_no_two_neighbours_of_one_code(below, above):
    painted = run_algebra.paint(runs_of(below), runs_of(above))
    touching = painted.last[:-1] + 1 == painted.first[1:]
    assert not (touching & (painted.code[:-1] == painted.code[1:])).any()


@given(STEPS)
def test_paint_with_nothing_or_with_itself_changes_nothing(steps):
    runs = run_algebra.join(runs_of(steps))
    for over in (run_algebra.empty_runs(), runs):
        assert [c.tolist() for c in run_algebra.paint(runs, over)] == [c.tolist() for c in runs]


@given(STEPS, STEPS)
def test_parted_is_what_is_inside_and_what_is_beside(steps, others):
    runs, by = runs_of(steps), model(runs_of(others))
    inside, beside = run_algebra.parted(runs, runs_of(others))
    assert model(inside) == {place: code for place, code in model(runs).items() if place in by}
    assert model(beside) == {place: code for place, code in model(runs).items() if place not in by}


@given(STEPS, STEPS, STEPS)
def test_m2_laid_together_keeps_what_nobody_disputes(one, other, third):
    runs = [runs_of(steps) for steps in (one, other, third)]
    together, disputed = run_algebra.laid_together(runs)
    said = {}
    for part in runs:
        for place, code in model(part).items():
            said.setdefault(place, set()).add(code)
    assert model(together) == {place: min(codes) for place, codes in said.items() if len(codes) == 1}
    assert set(model(disputed)) == {place for place, codes in said.items() if len(codes) > 1}
    assert_sorted_and_apart(together)
    assert_sorted_and_apart(disputed)


@given(STEPS)
def test_join_keeps_every_place_and_is_done_after_once(steps):
    runs = runs_of(steps)
    joined = run_algebra.join(runs)
    assert model(joined) == model(runs)
    assert [c.tolist() for c in run_algebra.join(joined)] == [c.tolist() for c in joined]


def test_a_million_messages_split_and_painted_over_are_one_run_again():
    million = Runs(np.array([0]), np.array([999_999]), np.array([0]))
    part = Runs(np.array([500_000]), np.array([500_000]), np.array([1]))
    split = run_algebra.paint(million, part)
    assert split.first.tolist() == [0, 500_000, 500_001]
    whole = run_algebra.paint(split, part._replace(code=np.array([0])))
    assert [c.tolist() for c in whole] == [[0], [999_999], [0]]


def test_neighbouring_segments_never_touch():
    end = (1 << run_algebra.SEGMENT_SHIFT) + 2**32 - 1
    runs = Runs(
        np.array([end, 2 << run_algebra.SEGMENT_SHIFT]),
        np.array([end, 2 << run_algebra.SEGMENT_SHIFT]),
        np.array([0, 0]),
    )
    assert len(run_algebra.join(runs).first) == 2


def test_lengths_count_both_ends():
    assert run_algebra.lengths(np.array([3, 7]), np.array([3, 9])).tolist() == [1, 3]
