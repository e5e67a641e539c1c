"""Never two holders: a segment has one lane in a queue, and an edit that finds another table than it supposes fails."""

import pyarrow as pa
import pytest
from pyarrow import compute as pc

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, Conflict
from ledger.errors import LedgerDamaged
from ledger.rules.visibility import Record
from ledger.store.delta.model.message_runs import Runs, positions
from ledger.store.delta.model.tables import Where
from ledger.store.delta.state.lane_records import EDITS, Lanes

NOW = 1_700_000_000_000
SEGMENT = "aaaaaaaa-aaaa-8aaa-8aaa-aaaa"


def lanes_by_segment(ledger, queue):
    rows = ledger.store.engine.load("visibility", Where(queue.access.record().id)).rows
    rows = rows.filter(pc.not_equal(rows["segment"], ""))
    found = {}
    for row in rows.group_by(["segment", "lane"]).aggregate([]).to_pylist():
        found.setdefault(row["segment"], []).append(row["lane"])
    return found


def test_messages_of_a_segment_meet_in_one_lane_whichever_way_they_came(open_ledger):
    """Two queues with different Lanes feed a third one: some messages come straight, their neighbours by the other."""
    ledger = open_ledger()
    wide, narrow, third = (ledger.create_queue(n, {"Lanes": k}) for n, k in (("wide", 7), ("narrow", 3), ("third", 5)))
    ids = [wide.send(["straight", "around"]) for _ in range(7)]
    wide.redrive([one for _, one in ids], destination="narrow")
    narrow.redrive(destination="third")
    wide.redrive([one for one, _ in ids], destination="third")
    assert all(len(lanes) == 1 for lanes in lanes_by_segment(ledger, third).values())
    assert sorted(m.message_id for m in third.receive(None, 60)) == sorted(one for pair in ids for one in pair)
    assert not third.receive(None)


def test_two_ways_into_a_queue_at_once_bring_the_messages_of_a_segment_into_one_lane(open_ledger):
    """One redrive is decided, and before it commits another brings a neighbour of its message by the other way."""
    ledger, other = open_ledger(), open_ledger()
    wide, _, third = (ledger.create_queue(n, {"Lanes": k}) for n, k in (("wide", 7), ("narrow", 3), ("third", 5)))
    ids = [wide.send(["straight", "around"]) for _ in range(7)]
    assert wide.redrive([around for _, around in ids], destination="narrow") == 7
    for number, (straight, around) in enumerate(ids):
        calls = [(ledger, "wide", straight), (other, "narrow", around)]
        (one, source, moved), (beside, from_there, neighbour) = calls if number % 2 else calls[::-1]
        left = [beside.queue(from_there)]

        def meanwhile(step, left=left, neighbour=neighbour):
            if step == "chosen" and left:
                assert left.pop().redrive([neighbour], destination="third") == 1

        one.store.transactions.on_step = meanwhile
        assert one.queue(source).redrive([moved], destination="third") == 1 and not left
        one.store.transactions.on_step = lambda step: None
    lanes = lanes_by_segment(ledger, third)
    assert len(lanes) == 7 and all(len(found) == 1 for found in lanes.values())
    received = [message.message_id for _ in range(14) for message in third.receive(1, 60)]
    assert sorted(received) == sorted(one for pair in ids for one in pair), "each to one holder"
    assert not third.receive(None)


def test_messages_that_come_home_lie_in_the_lane_that_they_were_sent_to(open_ledger):
    ledger = open_ledger()
    home = ledger.create_queue("home", {"Lanes": 7})
    ledger.create_queue("away", {"Lanes": 3})
    ids = [home.send("x")[0] for _ in range(7)]
    sent_to = {
        segment: [lane]
        for segment, lane in ledger.store.listings.newest().find_home_lanes([i[:28] for i in ids]).items()
    }
    assert home.redrive(destination="away") == ledger.queue("away").redrive(destination="home") == 7
    assert lanes_by_segment(ledger, home) == sent_to
    assert home.receive(None).count == 7


def edit(operation, first_seq=0, lane=0, revision=None, expected=None, segment=SEGMENT):
    row = {"queue": "q-00000000", "lane": lane, "segment": segment, "first_seq": first_seq, "last_seq": first_seq}
    row |= {"receive_count": 1, "revision": revision, OPERATION: operation, EXPECTED_REVISION: expected}
    return row


@pytest.fixture
def committed(engine_of, engine):
    """Reads lane 0 of a queue with one row and a head row, and commits edits to it; answers the rows that are there."""
    one, where = engine_of(engine), Where("q-00000000", (0,))

    def commit(*edits):
        snapshot = one.load("visibility", where)
        one.merge(snapshot, "visibility", where, pa.Table.from_pylist(list(edits), schema=EDITS), {})
        return one.load("visibility", where).rows

    lanes = Lanes("q-00000000", one.load("visibility", where).rows)
    at = positions(lanes.register(pa.array([SEGMENT]), [0]), [0])
    first = lanes.edits(Runs(at, at, pa.array([lanes.code(Record("r" * 32))]).to_numpy()), NOW)
    commit(*first.to_pylist())
    return commit


@pytest.mark.soak_variants("spark*", but=("spark-update of nothing", "spark-another lane"))
@pytest.mark.parametrize(
    "wrong",
    [
        edit("update", first_seq=5),
        edit("delete", first_seq=5),
        edit("insert"),
        edit("update", lane=1),
        edit("insert", lane=1),
        edit("update", segment="", first_seq=-1, revision=9, expected=8),
    ],
    ids=[
        "update of nothing",
        "delete of nothing",
        "insert of what is there",
        "another lane",
        "a lane not read",
        "head",
    ],
)
def test_an_edit_that_does_not_find_what_it_supposes_fails_the_whole_commit(committed, wrong):
    with pytest.raises(Conflict):
        committed(edit("insert", first_seq=1), wrong)
    head = edit("update", segment="", first_seq=-1, revision=2, expected=1)
    assert committed(head).num_rows == 2, "nothing of the others was committed"


def test_no_commit_has_two_edits_of_one_row(committed):
    with pytest.raises(LedgerDamaged, match="the same place"):
        committed(edit("insert", first_seq=1), edit("insert", first_seq=1))


def test_a_row_that_is_there_twice_is_said_to_be_damage_that_upkeep_repairs(engine_of, committed):
    engine = engine_of("delta-rs")
    rows = engine.load("visibility", Where("q-00000000")).rows
    engine.append("visibility", rows.filter(pc.equal(rows["segment"], "")), {})
    with pytest.raises(LedgerDamaged, match="upkeep"):
        committed(edit("update", segment="", first_seq=-1, revision=2, expected=1))


@pytest.mark.parametrize(("engine", "attempts", "all_lanes"), [("delta-rs", "abcdef", (1, 2, 3)), ("spark", "a", (1,))])
def test_an_attempt_on_a_queue_with_a_quota_counts_up_each_lane_once(open_ledger, engine, attempts, all_lanes):
    """The attempt's own lane and the one that a quota's receives meet on may be the same: of one lane it always is."""
    ledger = open_ledger(engine)
    for lanes in all_lanes:
        queue = ledger.create_queue(f"limited-{lanes}", {"Limits": "SQS", "Lanes": lanes})
        for attempt in attempts:
            queue.send("x")
            claim = queue.receive(1, attempt_id=attempt)
            assert claim.receipt_id == queue.receive(1, attempt_id=attempt).receipt_id and claim.delete().messages == 1
        heads = ledger.store.engine.load("visibility", Where(queue.access.record().id)).rows
        heads = heads.filter(pc.equal(heads["segment"], ""))["lane"].to_pylist()
        assert len(heads) == len(set(heads))
