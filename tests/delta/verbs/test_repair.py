"""A lane that has its head row twice, which an earlier version could write: upkeep repairs it."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ledger.errors import LedgerDamaged
from ledger.store.delta.model.tables import Where
from tests.delta.conftest import ENGINES


class Killed(BaseException):
    """What stops an upkeep in the middle."""


@pytest.fixture
def queue(open_ledger):
    queue = open_ledger().create_queue("jobs", {"Lanes": 2})
    queue.send(["a", "b", "c"], attempt_id="one")
    return queue


def heads(ledger):
    rows = ledger.store.engine.load("visibility", Where()).rows
    return rows.filter(pc.equal(rows["segment"], ""))


def damaged(ledger, queue, **changes):
    """Plants each head row a second time, with changes; answers a claim of before and the latest revision and time."""
    claim = queue.receive(2, visibility_timeout=600)
    known = heads(ledger)
    planted = pa.Table.from_pylist([row | changes for row in known.to_pylist()], known.schema)
    ledger.store.engine.append("visibility", planted, {"verb": "planted"})
    rows = heads(ledger)
    assert rows.num_rows == 2
    return claim, pc.max(rows["revision"]).as_py(), pc.max(rows["received_at"]).as_py()


def repaired(ledger):
    """The one head row that there is."""
    (row,) = heads(ledger).to_pylist()
    return row


@pytest.mark.parametrize("at", [-2, -3])
def test_a_head_row_that_is_lower_and_does_not_count_is_repaired_too(open_ledger, queue, clock, at):
    """The new one has to lie below all, and is the one that is kept."""
    ledger = open_ledger()
    claim, revision, latest = damaged(ledger, queue, first_seq=at, last_seq=at, revision=0)
    clock.advance(1)
    ledger.upkeep(vacuum=False)
    row = repaired(ledger)
    assert row["first_seq"] == at - 1 and row["revision"] == revision + 1 and row["received_at"] > latest
    assert claim.extend(60).messages == 2


@pytest.mark.parametrize("upkeep_on", ENGINES)
def test_a_lane_whose_head_row_is_there_twice_is_repaired(open_ledger, queue, clock, upkeep_on):
    ledger = open_ledger()
    claim, revision, latest = damaged(ledger, queue)
    with pytest.raises(LedgerDamaged, match="upkeep"):
        claim.extend(60)
    clock.advance(1)
    open_ledger(upkeep_on).upkeep(vacuum=False)
    row = repaired(ledger)
    assert row["revision"] > revision and row["received_at"] > latest
    assert claim.extend(60).messages == 2 and queue.receive(None).count == 1
    after = repaired(ledger)
    assert after["revision"] == row["revision"] + 2, "one row counts from then on, in its place"
    before = ledger.store.engine.version("visibility")
    ledger.upkeep(vacuum=False)
    assert ledger.store.engine.version("visibility") == before, "there is nothing left to repair"
    assert claim.delete().messages == 2


def test_a_later_revision_and_a_later_time_are_kept(open_ledger, queue, clock):
    ledger = open_ledger()
    known = queue.receive(1, visibility_timeout=600) and heads(ledger).to_pylist()[0]
    damaged(ledger, queue, revision=known["revision"] + 40)
    ledger.upkeep(vacuum=False)
    assert repaired(ledger)["revision"] == known["revision"] + 41
    assert repaired(ledger)["received_at"] == known["received_at"]


def test_a_repair_that_was_stopped_in_the_middle_stops_nobody_and_is_carried_on(open_ledger, queue, monkeypatch):
    ledger, stopped = open_ledger(), open_ledger()
    claim, revision, _ = damaged(ledger, queue)

    def delete(*arguments):
        raise Killed

    monkeypatch.setattr(stopped.store.engine, "delete", delete)
    with pytest.raises(Killed):
        stopped.upkeep(vacuum=False)
    assert heads(ledger).num_rows == 3
    assert claim.extend(60).messages == 2, "the new row counts already"
    ledger.upkeep(vacuum=False)
    assert repaired(ledger)["revision"] > revision + 2
    assert claim.delete().messages == 2
