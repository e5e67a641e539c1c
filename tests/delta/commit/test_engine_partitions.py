"""What both engines promise of several queues in one commit, and of the time of a send."""

import pyarrow as pa
import pytest

from ledger.delta_log.protocol import Conflict
from ledger.rules.message import Entry
from ledger.store.delta.model.tables import HEAD, VISIBILITY, Where
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.sent_messages import message_rows
from ledger.store.protocol import QueueRecord
from tests.delta.commit.test_engines import NOW, QUEUE, SEGMENT, Decision, rows


def test_messages_are_read_by_when_they_were_sent(one, other):
    for number in range(3):
        other.append("messages", rows(number, [f"{number}"], now=NOW + number), {})
    for after, bodies in ((NOW - 1, ["0", "1", "2"]), (NOW, ["1", "2"]), (NOW + 1, ["2"]), (NOW + 2, [])):
        read = one.messages(Where(QUEUE.id), ["body"], sent_after=after)
        assert sorted(read["body"].to_pylist()) == bodies
    read = one.messages(Where(QUEUE.id), ["body"], 0, 1, sent_after=NOW)
    assert read["body"].to_pylist() == ["1"]


def test_partitions_of_several_queues_are_read_and_merged_in_one_go(one, other):
    elsewhere = QueueRecord("r-00000000", "r", {"Lanes": "4"}, {}, 0, 0)
    Decision(other, lane=1).commit()
    for queue, lane in ((QUEUE, 0), (QUEUE, 2), (elsewhere, 0), (elsewhere, 3)):
        other.append("messages", message_rows(queue, lane, SEGMENT, 0, [Entry(f"{queue.name}{lane}")], NOW), {})
    both = Where(QUEUE.id, (0, 1), also=Where(elsewhere.id, (3,)))
    assert sorted(one.messages(both, ["body"])["body"].to_pylist()) == ["q0", "r3"]
    snapshot = one.load("visibility", both)
    counted_up, new = (
        Lanes(QUEUE.id, snapshot.rows).heads.edits([1], NOW),
        Lanes(elsewhere.id, VISIBILITY.empty_table()).heads.edits([3], NOW),
    )
    edits = pa.concat_tables([counted_up, new])
    late = one.load("visibility", both)
    one.merge(snapshot, "visibility", both, edits, {})
    heads = [row for row in other.load("visibility", Where()).rows.to_pylist() if row["segment"] == HEAD]
    revisions = {(row["queue"], row["lane"]): row["revision"] for row in heads}
    assert revisions[QUEUE.id, 1] == 2 and revisions[elsewhere.id, 3] == 1
    with pytest.raises(Conflict):
        one.merge(late, "visibility", both, edits, {})
