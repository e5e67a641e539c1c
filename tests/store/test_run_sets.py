"""Rows about sets: every state becomes rows and comes back, equal ones are equal rows, a change touches its groups."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.store.delta.model import message_runs
from ledger.store.delta.model.message_runs import (
    BLOCK_SHIFT,
    SEGMENT_SHIFT,
    Runs,
    find_difference,
    make_set_rows,
    make_stored_runs,
)

BLOCK = 1 << BLOCK_SHIFT
#: Around the ends of words, blocks and segments.
STARTS = [
    0,
    1,
    60,
    64,
    127,
    BLOCK - 70,
    BLOCK - 2,
    BLOCK,
    2 * BLOCK - 1,
    1 << SEGMENT_SHIFT,
    (1 << SEGMENT_SHIFT) + BLOCK,
]


@st.composite
def states(draw):
    """Runs, sorted, disjoint and joined: some scattered thickly, some far apart, some longer than a block; under codes
    that lie together and far apart."""
    runs, end = [], -1
    for start in sorted(draw(st.lists(st.sampled_from(STARTS), unique=True, max_size=4))):
        at = max(start, end + 1)
        for gap, length, code in draw(
            st.lists(
                st.tuples(
                    st.integers(0, 3), st.sampled_from([1, 1, 2, 63, 64, 65, 200, BLOCK]), st.sampled_from([0, 1, 70])
                ),
                max_size=12,
            )
        ):
            at += gap
            runs.append((at, at + length - 1, code))
            at += length
        end = at
    return Runs(*(np.array([run[part] for run in runs], dtype=np.int64) for part in range(3))).in_order()


@pytest.fixture(autouse=True, params=[0, 1, 4])
def most_runs(request, monkeypatch):
    monkeypatch.setattr(message_runs, "MOST_RUNS", request.param)


def listed(rows):
    """Rows as a table has them."""
    bits = rows.bits().to_pylist() if len(rows) else []
    return list(zip(rows.first.tolist(), rows.last.tolist(), rows.code.tolist(), bits))


def read(rows):
    """What is made of rows that were written to a table."""
    return make_stored_runs(Runs(rows.first, rows.last, rows.code), pa.chunked_array([rows.bits()]))


def columns(runs):
    return [column.tolist() for column in runs.columns()]


def members(rows):
    """Message by message, read plainly: what each row says of which code."""
    found = {}
    for first, last, code, bits in listed(rows):
        for place in range(first, last + 1):
            if bits is None or bits[place // 64 - first // 64] >> place % 64 & 1:
                assert place not in found
                found[place] = code
    return found


def applied(rows, change):
    known = {row[0]: row for row in listed(rows)}
    for row in listed(change.gone):
        assert known.pop(row[0]) == row
    for row, is_new in zip(listed(change.written), change.is_new.tolist()):
        assert (row[0] not in known) == is_new and known.get(row[0]) != row
        known[row[0]] = row
    return [known[first] for first in sorted(known)]


EXAMPLES = settings(deadline=None, max_examples=30)


@EXAMPLES
@given(states())
def test_what_becomes_rows_comes_back(runs):
    rows = make_set_rows(runs)
    assert columns(read(rows).runs) == columns(runs)
    assert (np.diff(rows.first) > 0).all(), "first messages are keys"


@EXAMPLES
@given(states())
def test_bits_say_which_messages_a_row_is_about(runs):
    wanted = {
        place: code
        for first, last, code in zip(*columns(runs))
        for place in (range(first, last + 1) if last - first < 300 else (first, last))
    }
    found = members(make_set_rows(runs.where(runs.lengths < 300)))
    assert found == {place: code for place, code in wanted.items() if place in found}
    assert len(found) == runs.where(runs.lengths < 300).count


@EXAMPLES
@given(states(), states())
def test_a_difference_makes_of_the_rows_of_one_state_those_of_the_other(before, after):
    old = make_set_rows(before)
    assert applied(old, find_difference(read(old), after)) == listed(make_set_rows(after))
    unchanged = find_difference(read(old), before)
    assert not len(unchanged.written) and not len(unchanged.gone)


@EXAMPLES
@given(states(), states())
def test_a_part_laid_on_a_state_makes_the_rows_of_the_whole(state, part):
    old, new = make_set_rows(state), state.paint(part)
    change = find_difference(read(old), new)
    assert applied(old, change) == listed(make_set_rows(new))
    blocks = {place >> BLOCK_SHIFT for run in (part.first, part.last) for place in run.tolist()}
    near = {block + step for block in blocks for step in (-1, 0, 1)}
    short = [row for row in listed(change.written) if row[0] >> BLOCK_SHIFT == row[1] >> BLOCK_SHIFT]
    if (part.lengths < BLOCK).all():
        assert all(first >> BLOCK_SHIFT in near or last >> BLOCK_SHIFT in near for first, last, *_ in short)


def _as_read(rows):
    places = Runs(*(np.array([row[part] for row in rows], dtype=np.int64) for part in range(3)))
    return places, pa.chunked_array([pa.array([row[3] for row in rows], message_runs.WORDS)])


def scattered(step, count, length=1):
    first = np.arange(count) * step
    return Runs(first, first + length - 1, np.zeros(count, dtype=np.int64))


def test_every_other_one_of_a_million_is_a_row_a_block(monkeypatch):
    monkeypatch.setattr(message_runs, "MOST_RUNS", 4)
    rows = make_set_rows(scattered(2, 500_000))
    assert len(rows) == 31 and (rows.size[:-1] == 512).all()


def test_few_runs_and_what_is_scattered_far_apart_stay_rows_of_their_own(monkeypatch):
    monkeypatch.setattr(message_runs, "MOST_RUNS", 4)
    assert len(make_set_rows(scattered(2, 4))) == 4 and len(make_set_rows(scattered(2, 5))) == 1
    thin = message_runs.WORDS_A_RUN * 64
    assert len(make_set_rows(scattered(thin, 30))) == 1 and len(make_set_rows(scattered(thin + 64, 30))) == 30


def test_what_lies_in_two_blocks_is_a_row_and_the_rest_a_set_in_each(monkeypatch):
    monkeypatch.setattr(message_runs, "MOST_RUNS", 4)
    runs = scattered(2, BLOCK, length=1)
    across = Runs(np.array([BLOCK - 1]), np.array([BLOCK]), np.array([0]))
    rows = make_set_rows(runs.paint(across))
    assert listed(rows.where(rows.size == 0)) == [(BLOCK - 2, BLOCK, 0, None)]
    assert rows.first.tolist() == [0, BLOCK - 2, BLOCK + 2]


def test_bits_that_changed_between_the_same_ends_are_a_change():
    runs = scattered(2, 100)
    other = Runs(*(np.delete(column, 50) for column in runs.columns()))
    old = make_set_rows(runs)
    change = find_difference(read(old), other)
    assert len(change.written) == 1 and not change.is_new.any() and not len(change.gone)
