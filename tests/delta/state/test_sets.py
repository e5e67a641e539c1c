"""What is scattered is a row a block: through both engines, in what DataFrames and views say, and on older tables."""

import pytest

from ledger.store.delta.model import message_runs
from ledger.store.delta.model.tables import BITS, Where
from tests.frames import assert_rows

MANY = 3_000


def recorded(ledger):
    """The rows about messages, without heads."""
    rows = ledger.store.engine.load("visibility", Where()).rows.to_pylist()
    return [row for row in rows if row["segment"]]


@pytest.fixture
def ledger(open_ledger, engine):
    return open_ledger(engine, frames=True, messages_per_segment=MANY, messages_per_file=MANY)


@pytest.mark.soak_variants("spark*")
def test_every_other_message_of_a_claim_is_a_set_in_what_everybody_sees(ledger, spark, clock):
    queue = ledger.create_queue("wide", {"Lanes": 1, "VisibilityTimeout": 600})
    queue.send(spark.range(MANY).coalesce(1).selectExpr("string(id) AS body"))
    claim = queue.receive(None)
    odd = claim.dataframe.where("int(body) % 2 = 1").select("receipt_handle")
    outcomes = queue.delete(odd)
    assert outcomes.groupBy("outcome").count().collect() == [("deleted", MANY // 2)]
    assert sorted((row["deleted_at"] is None, row[BITS] is None) for row in recorded(ledger)) == [
        (False, False),
        (True, False),
    ]
    assert (queue.counts().in_flight, queue.counts().deleted) == (MANY // 2, MANY // 2)
    seen = ledger.view("messages").selectExpr("int(body) % 2 AS odd", "status").groupBy("odd", "status").count()
    rows = [(0, "in flight", MANY // 2), (1, "deleted", MANY // 2)]
    assert_rows(seen, "odd int, status string, count bigint", rows)
    assert [row.messages for row in ledger.view("in_flight").collect()] == [MANY // 2]
    assert [row.messages for row in ledger.view("in_flight", version=claim.version).collect()] == [MANY]
    again = queue.claim(claim.receipt_id)
    bodies = [int(row.body) for row in again.dataframe.select("body").collect()]
    assert sorted(bodies) == list(range(0, MANY, 2))
    assert {int(message.body) for message in again.messages()} == set(bodies)
    assert queue.restore(claim.receipt_id) == MANY // 2
    assert all(row[BITS] is not None for row in recorded(ledger))
    again.release()
    assert [row[BITS] for row in recorded(ledger) if row["released_at"]], "a set, or with the restored ones a run"
    assert queue.receive(None).count == MANY


def test_what_an_earlier_release_scattered_is_read_and_becomes_sets_where_it_changes(open_ledger, engine, monkeypatch):
    ledger = open_ledger(engine)
    queue = ledger.create_queue("wide", {"Lanes": 1, "VisibilityTimeout": 600})
    queue.send([str(number) for number in range(40)])
    with monkeypatch.context() as before:
        before.setattr(message_runs, "MOST_RUNS", MANY)
        claim = queue.receive(None)
        queue.delete([message.receipt_handle for message in claim.messages()[::2]])
    assert len(recorded(ledger)) == 40 and not any(row[BITS] for row in recorded(ledger))
    claim = queue.claim(claim.receipt_id)
    assert claim.extend(900).messages == 20
    held = [row for row in recorded(ledger) if not row["deleted_at"]]
    assert len(held) == 1 and len(recorded(ledger)) == 21, "only what changed"
    assert claim.delete().messages == 20
    assert len(recorded(ledger)) < 40 and queue.counts().deleted == 40
