"""What the DataFrame of a claim reads of `messages`: as little as literals can say, and all of its messages."""

import random
import sqlite3

import pyarrow as pa
import pytest

from ledger.store.delta.dataframes import frames
from ledger.store.delta.dataframes.frames import MOST_RANGES, plan_reads
from ledger.store.protocol import RUNS

#: Ordinals of a segment.
SEQS = 40


def runs_of(random_numbers, segments, scattered):
    """Some messages of each segment, as runs in any order."""
    rows = []
    for segment in segments:
        borders = sorted(random_numbers.sample(range(SEQS), 2 * random_numbers.randint(1, scattered)))
        rows += [(0, segment, first, last) for first, last in zip(borders[::2], borders[1::2])]
    random_numbers.shuffle(rows)
    return pa.Table.from_pylist([dict(zip(RUNS.names, row)) for row in rows], schema=RUNS)


def found(reads, homes):
    """The messages (segment, seq) that each of the reads finds."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE messages (queue, lane, segment, seq)")
    rows = [(queue, 0, name, seq) for queue, segments in homes.items() for name in segments for seq in range(SEQS)]
    database.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)
    return [set(database.execute(f"SELECT segment, seq FROM messages WHERE {read}").fetchall()) for read in reads]


@pytest.mark.parametrize("seed", range(20))
def test_every_message_is_in_just_one_read_however_many_segments_there_are(seed, monkeypatch):
    numbers = random.Random(seed)
    monkeypatch.setattr(frames, "SEGMENTS_BY_NAME", numbers.choice([3, 30, 100]))
    monkeypatch.setattr(frames, "MOST_RANGES", numbers.choice([1, 5, 20]))
    homes = {f"q{n}": [f"s{n}-{m}" for m in range(numbers.randint(1, 12))] for n in range(numbers.randint(1, 6))}
    runs = runs_of(numbers, [name for segments in homes.values() for name in segments], numbers.randint(1, 10))
    wanted = {(r["segment"], seq) for r in runs.to_pylist() for seq in range(r["first_seq"], r["last_seq"] + 1)}
    parts = found(plan_reads(runs, homes), homes)
    assert wanted <= set().union(*parts)
    assert sum(map(len, parts)) == len(set().union(*parts)), "no message is in two of them"


def test_few_runs_are_read_and_nothing_else():
    homes = {"q": ["s1", "s2", "s3"]}
    runs = runs_of(random.Random(1), homes["q"], MOST_RANGES // 3)
    (read,) = found(plan_reads(runs, homes), homes)
    assert read == {(r["segment"], n) for r in runs.to_pylist() for n in range(r["first_seq"], r["last_seq"] + 1)}


def test_of_many_runs_the_widest_gaps_are_left_out():
    wide = [(0, 9), (10, 10), (12, 12), *((n, n) for n in range(1_000, 1_100, 2)), (9_000, 9_001)]
    runs = pa.Table.from_pylist([dict(zip(RUNS.names, (0, "s", *run))) for run in wide], schema=RUNS)
    (read,) = plan_reads(runs, {"q": ["s"]})
    assert read.count("BETWEEN") == MOST_RANGES
    assert "seq BETWEEN 9000 AND 9001" in read
    assert "seq BETWEEN 0 AND " in read


def test_messages_that_were_dropped_are_looked_for_nowhere():
    runs = runs_of(random.Random(1), ["s"], 1)
    assert found(plan_reads(runs, {}), {"q": ["s"]}) == [set()]
