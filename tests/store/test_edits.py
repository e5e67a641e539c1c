"""Edits that do not find the table as they suppose are no commit, whichever engine would make it."""

import pyarrow as pa
import pytest

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, Conflict, Snapshot
from ledger.errors import LedgerDamaged
from ledger.store.delta.engine import require_expected
from ledger.store.delta.model.tables import QUEUES, VISIBILITY, Where
from ledger.store.delta.state.lane_records import EDITS

EVERYTHING = Where()


def row(segment="s", first_seq=0, lane=0, revision=None, queue="q"):
    return {
        "queue": queue, "lane": lane, "segment": segment, "first_seq": first_seq, "last_seq": first_seq + 9,
        "revision": revision,
    }  # fmt: skip


def edit(operation, expected=None, **of):
    return {**row(**of), OPERATION: operation, EXPECTED_REVISION: expected}


def check(rows, edits, where=EVERYTHING):
    snapshot = Snapshot(7, where, pa.Table.from_pylist(rows, schema=VISIBILITY))
    require_expected(snapshot, "visibility", pa.Table.from_pylist(edits, schema=EDITS))


HEAD_2 = row(segment="", first_seq=-1, revision=2)


@pytest.mark.parametrize(
    ("rows", "edits"),
    [
        ([], [edit("insert")]),
        ([row()], [edit("update")]),
        ([row()], [edit("delete")]),
        ([row(), HEAD_2], [edit("update", 2, segment="", first_seq=-1), edit("delete"), edit("insert", first_seq=10)]),
        # Rows are told apart by the queue, the lane, the segment and the ordinal that they begin at.
        ([row()], [edit(operation, **of) for of in ({"queue": "p"}, {"lane": 1}, {"segment": "t"}, {"first_seq": 10})
                   for operation in ["insert"]]),
        ([row(revision=9)], [edit("update")]),
    ],
)  # fmt: skip
def test_edits_that_find_the_table_as_they_suppose_may_be_committed(rows, edits):
    check(rows, edits)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([row()], edit("insert")),
        ([], edit("update")),
        ([], edit("delete")),
        ([row(lane=1)], edit("update")),
        ([row(first_seq=10)], edit("delete")),
        ([HEAD_2], edit("update", 1, segment="", first_seq=-1)),
        ([HEAD_2], edit("update", 3, segment="", first_seq=-1)),
        ([row()], edit("update", 1)),
        ([], edit("update", 1)),
    ],
)
def test_one_edit_that_finds_it_otherwise_is_a_conflict_for_all(rows, wrong):
    right = [edit("insert", segment="new"), edit("insert", segment="newer")]
    for place in range(3):
        with pytest.raises(Conflict, match="visibility"):
            check(rows, [*right[:place], wrong, *right[place:]])


@pytest.mark.parametrize(
    ("where", "covered"),
    [
        (Where("q"), True),
        (Where("q", (0, 1)), True),
        (Where("q", (1,)), False),
        (Where("p"), False),
        (Where("p", also=Where("q", (0,))), True),
        (Where("p", also=Where("q", (1,))), False),
        (Where("q", None, ("s",)), False),
    ],
)
def test_what_was_not_read_cannot_be_changed(where, covered):
    edits = [edit("insert", lane=0)]
    if covered:
        check([], edits, where)
    else:
        with pytest.raises(Conflict, match="more is changed than was read"):
            check([], edits, where)


def test_a_table_without_partitions_is_read_as_a_whole():
    edits = pa.Table.from_pylist(
        [{"queue": "q-0", "name": "q", OPERATION: "insert", EXPECTED_REVISION: None}],
        schema=pa.schema([*QUEUES, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())]),
    )
    require_expected(Snapshot(7, Where("p"), QUEUES.empty_table()), "queues", edits)


def test_a_row_that_is_there_twice_is_damage_and_upkeep_is_named():
    with pytest.raises(LedgerDamaged, match=r"visibility is there twice\. Run upkeep"):
        check([HEAD_2, HEAD_2], [edit("update", 2, segment="", first_seq=-1)])
    check([HEAD_2, HEAD_2], [edit("insert")]), "what is not touched does no harm here"


def test_two_inserts_of_one_place_are_damage_as_two_messages_have_it():
    with pytest.raises(LedgerDamaged, match=r"Two messages of the table messages have the same place.*Run upkeep"):
        check([], [edit("insert"), edit("insert")])


def test_two_edits_of_one_row_are_no_commit_at_all():
    with pytest.raises(ValueError, match="two edits of visibility are about one row"):
        check([row()], [edit("update"), edit("delete")])
