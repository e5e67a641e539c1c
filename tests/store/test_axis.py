"""The algebra of runs against a brute-force model: a dict from place to code."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ledger.store.delta.model import message_runs
from ledger.store.delta.model.message_runs import ABSENT, Runs

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
        for first, last, code in zip(*(column.tolist() for column in runs.columns()))
        for place in range(first, last + 1)
    }


def assert_sorted_and_apart(runs):
    assert (runs.first <= runs.last).all()
    assert (runs.last[:-1] < runs.first[1:]).all()


def test_no_runs_are_no_runs():
    nothing = Runs.empty()
    assert [len(column) for column in nothing.paint(nothing).columns()] == [0, 0, 0]
    assert len(nothing) == nothing.count == 0
    pieces = nothing.cut(np.array([3]), np.array([9]))
    assert [column.tolist() for column in pieces.columns()] == [[3], [9], [ABSENT], [0]]


def test_places_stay_whole_numbers_beside_no_runs():
    far = Runs(*(np.array([2**60 + 1], dtype=np.int64) for _ in range(3)))
    for painted in (far.paint(Runs.empty()), Runs.empty().paint(far)):
        assert [column.tolist() for column in painted.columns()] == [[2**60 + 1]] * 3, "a float has no such number"


@given(st.binary(max_size=12))
def test_the_ones_of_a_bitmap_are_its_places_lowest_bit_first(bitmap):
    first, last = message_runs.ones(bitmap)
    places = {place for a, b in zip(first.tolist(), last.tolist()) for place in range(a, b + 1)}
    assert places == {8 * byte + bit for byte, value in enumerate(bitmap) for bit in range(8) if value >> bit & 1}
    assert (first <= last).all() and (last[:-1] + 1 < first[1:]).all(), "runs, and none touches the next"


@given(STEPS, QUERIES)
def test_cut_covers_every_query_exactly_in_order_with_the_codes_below(steps, queries):
    runs = runs_of(steps)
    first = np.array([q[0] for q in queries], dtype=np.int64)
    last = np.array([q[0] + q[1] - 1 for q in queries], dtype=np.int64)
    below = model(runs)
    pieces = runs.cut(first, last)
    cut = list(zip(*(column.tolist() for column in pieces.columns())))
    places = [(query, place, code) for a, b, code, query in cut for place in range(a, b + 1)]
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
    pieces = runs.cut(first, last)
    borders = set(runs.first.tolist()) | set((runs.last + 1).tolist())
    starts = set(zip(range(len(queries)), first.tolist()))
    for query, a in zip(pieces.query.tolist(), pieces.first.tolist()):
        assert a in borders or (query, a) in starts


@given(STEPS, STEPS)
def test_paint_lays_the_new_runs_on_top(below, above):
    runs, replacement = runs_of(below), runs_of(above)
    painted = runs.paint(replacement)
    assert model(painted) == {**model(runs), **model(replacement)}
    assert_sorted_and_apart(painted)


@given(STEPS, STEPS)
def test_paint_leaves_no_two_neighbours_of_one_code(below, above):
    painted = runs_of(below).paint(runs_of(above))
    touching = painted.last[:-1] + 1 == painted.first[1:]
    assert not (touching & (painted.code[:-1] == painted.code[1:])).any()


@given(STEPS)
def test_paint_with_nothing_or_with_itself_changes_nothing(steps):
    runs = runs_of(steps).joined()
    for replacement in (Runs.empty(), runs):
        assert [c.tolist() for c in runs.paint(replacement).columns()] == [c.tolist() for c in runs.columns()]


@given(STEPS, STEPS)
def test_parted_is_what_is_inside_and_what_is_beside(steps, others):
    runs, by = runs_of(steps), model(runs_of(others))
    inside, beside = runs.split_by(runs_of(others))
    assert model(inside) == {place: code for place, code in model(runs).items() if place in by}
    assert model(beside) == {place: code for place, code in model(runs).items() if place not in by}


@given(STEPS, STEPS, STEPS)
def test_m2_laid_together_keeps_what_nobody_disputes(one, other, third):
    runs = [runs_of(steps) for steps in (one, other, third)]
    together, disputed = message_runs.lay_together(runs)
    said = {}
    for part in runs:
        for place, code in model(part).items():
            said.setdefault(place, set()).add(code)
    assert model(together) == {place: min(codes) for place, codes in said.items() if len(codes) == 1}
    assert set(model(disputed)) == {place for place, codes in said.items() if len(codes) > 1}
    assert_sorted_and_apart(together)
    assert_sorted_and_apart(disputed)


@given(STEPS)
def test_each_place_is_found_in_its_run_or_in_none(steps):
    runs = runs_of(steps)
    places = np.arange(-2, 100)
    found = [n if n == ABSENT else int(runs.code[n]) for n in runs.find(places).tolist()]
    assert found == [model(runs).get(place, ABSENT) for place in places.tolist()]
    inside = runs.find(places)[runs.find(places) != ABSENT]
    assert (np.diff(inside) >= 0).all() and set(inside.tolist()) == set(range(len(runs)))


@given(STEPS)
def test_join_keeps_every_place_and_is_done_after_once(steps):
    runs = runs_of(steps)
    joined = runs.joined()
    assert model(joined) == model(runs)
    assert [c.tolist() for c in joined.joined().columns()] == [c.tolist() for c in joined.columns()]


def test_a_million_messages_split_and_painted_over_are_one_run_again():
    million = Runs(np.array([0]), np.array([999_999]), np.array([0]))
    part = Runs(np.array([500_000]), np.array([500_000]), np.array([1]))
    split = million.paint(part)
    assert split.first.tolist() == [0, 500_000, 500_001]
    whole = split.paint(part.recode(0))
    assert [c.tolist() for c in whole.columns()] == [[0], [999_999], [0]]


def test_neighbouring_segments_never_touch():
    end = (1 << message_runs.SEGMENT_SHIFT) + 2**32 - 1
    runs = Runs(
        np.array([end, 2 << message_runs.SEGMENT_SHIFT]),
        np.array([end, 2 << message_runs.SEGMENT_SHIFT]),
        np.array([0, 0]),
    )
    assert len(runs.joined()) == 2


def test_runs_count_both_ends_and_know_their_segments():
    place = 5 << message_runs.SEGMENT_SHIFT
    runs = Runs(np.array([3, place + 7]), np.array([3, place + 9]), np.array([0, 0]))
    assert len(runs) == 2 and runs.lengths.tolist() == [1, 3] and runs.count == 4
    assert runs.segment.tolist() == [0, 5] and runs.first_seq.tolist() == [3, 7]
    assert message_runs.positions(runs.segment, runs.first_seq).tolist() == runs.first.tolist()


@given(STEPS, st.randoms())
def test_in_order_is_sorted_and_joined_whatever_order_runs_are_given_in(steps, dice):
    runs = runs_of(steps)
    shuffled = runs.where(np.array(dice.sample(range(len(runs)), len(runs)), dtype=np.int64))
    again = Runs.concatenate([shuffled.where(slice(3)), shuffled.where(slice(3, None))]).in_order()
    assert [c.tolist() for c in again.columns()] == [c.tolist() for c in runs.joined().columns()]
