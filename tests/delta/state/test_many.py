"""What names thousands: segments finished at once, queues that messages go back to. No predicate grows with it."""

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from ledger.clock import instant
from ledger.rules import message_id as ids
from ledger.store.delta.model.tables import MOST_ALTERNATIVES, MOST_NAMED, VISIBILITY, Where
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.protocol import QueueRecord
from tests.delta.commit.test_engines import NOW, QUEUE, SEGMENT, rows

#: As many as made delta-rs's stack overflow when one predicate named them all.
SEALED = 12_000


def list_files(root, queue, names, now):
    """Makes the log of `messages` list a file of one message for each segment. None is there: who reads one fails."""
    at = instant(now).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    instants = dict.fromkeys(("sent_at", "available_at"), at)
    actions = [
        AddAction(
            path=f"{name}.parquet",
            size=1,
            partition_values={"queue": queue.id, "lane": "0", "segment": name},
            modification_time=now,
            data_change=True,
            stats=json.dumps({"numRecords": 1, "minValues": {"seq": 0} | instants, "maxValues": {"seq": 0} | instants}),
        )
        for name in names
    ]
    table = DeltaTable(f"{root}/messages")
    table.create_write_transaction(actions, "append", table.schema(), ["queue", "lane", "segment"])


def test_thousands_of_segments_that_are_finished_at_once_are_dropped(open_ledger, root, clock):
    """Upkeep ended in a segmentation fault here, at each of its rounds."""
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1, "MessageRetentionPeriod": 60})
    list_files(root, queue, [ids.segment(f"{number:018x}", 0) for number in range(SEALED)], clock())
    assert queue.counts().stored == SEALED
    clock.advance(4_000)
    assert ledger.upkeep(vacuum=False).segments_dropped == SEALED
    assert ledger.store.engine.files()[1].num_rows == 0


def many(count, **named):
    where = None
    for number in range(count):
        where = Where(f"r{number}-00000000", **named, also=where)
    return where


@pytest.mark.parametrize("count", [MOST_ALTERNATIVES + 1, 1_200, 3_000])
def test_a_commit_that_touches_thousands_of_queues(engine_of, count):
    """A redrive into as many queues ended in a RecursionError."""
    engine = engine_of("delta-rs")
    last = QueueRecord(f"r{count - 1}-00000000", "r", {"Lanes": "4"}, {}, 0, 0)
    where = many(count, lanes=(0, 1))
    snapshot = engine.load("visibility", where)
    edits = Lanes(last.id, VISIBILITY.empty_table()).heads.edits([1], NOW)
    engine.merge(snapshot, "visibility", where, edits, {})
    assert engine.load("visibility", where).rows["queue"].to_pylist() == [last.id]


def test_where_stays_small_and_covers_what_it_named():
    differing = None
    for number in range(MOST_ALTERNATIVES + 1):
        differing = Where(f"r{number}", (number,), also=differing)
    assert differing.shorten().alternatives() == [
        {"queue": tuple(sorted(f"r{n}" for n in range(21))), "lane": tuple(range(21))}
    ]
    assert many(MOST_NAMED + 1, lanes=(3,)).shorten() == Where(None, (3,))
    assert Where("q", None, tuple(map(str, range(MOST_NAMED + 1)))).shorten() == Where("q")
    few = Where("q", (1, 2), ("s",), also=Where("r", (3,)))
    assert few.shorten() is few
    assert few.sql("t") == (
        "((t.queue = 'q' AND t.lane IN (1, 2) AND t.segment IN ('s')) OR (t.queue = 'r' AND t.lane IN (3)))"
    )


def test_messages_of_thousands_of_segments_are_those_and_no_others(engine_of):
    engine, other = engine_of("delta-rs"), ids.segment("b" * 18, 0)
    engine.append("messages", pa.concat_tables([rows(0, ["a"]), rows(0, ["b"], segment=other)]), {})
    names = tuple(ids.segment(f"{number:018x}", 0) for number in range(MOST_NAMED))
    found = engine.messages(Where(QUEUE.id, None, (*names, SEGMENT)), ["body"])
    assert found["body"].to_pylist() == ["a"]
