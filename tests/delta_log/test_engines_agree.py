"""What the client commits is what delta-rs's and Spark's own statements make of the same table, and each goes on from
where another one stopped."""

import pytest

from ledger.delta_log import log
from tests.delta_log import by_hand as hand
from tests.delta_log.engines import ByClient, ByDeltaRs, BySpark
from tests.delta_log.readers import require_same, spark_reader, told_of
from tests.delta_log.tables import NOON, THINGS, Places, copied, opened, rows_of, thing


def things(*places):
    """The partitions A, B and C, and what each writer does with the rows that are there then, in plain Python."""
    a, b, c = ({"lot": lot, "place": place} for lot, place in zip((1, 2, 1), places))
    in_a, in_all = (Places(THINGS.partitions, tuple(tuple(one.values()) for one in some)) for some in ([a], [a, b, c]))
    rows = [{**partition, **thing(number)} for partition in (a, b) for number in range(12)]
    more = [{**partition, **thing(number)} for partition in (a, c) for number in (20, 21)]
    changed, new = {**a, **thing(3, revision=2), "text": None, "many": []}, {**a, **thing(30)}
    ending = [*rows[12:15], *more]

    def ended(row):
        return {**row, "ended": NOON, "revision": 2}

    steps = [
        (lambda one: one.append(more), lambda now: [*now, *more]),
        (
            lambda one: one.merge(in_a, [("update", changed), ("delete", rows[4]), ("insert", new)]),
            lambda now: [*(row for row in now if row not in (rows[3], rows[4])), changed, new],
        ),
        (
            lambda one: one.delete("lot = 2 AND id >= 6"),
            lambda now: [row for row in now if row["lot"] != 2 or row["id"] < 6],
        ),
        (lambda one: one.optimize(in_all), lambda now: now),
        (
            lambda one: one.merge(in_all, [("update", ended(row)) for row in ending]),
            lambda now: [ended(row) if row in ending else row for row in now],
        ),
        (lambda one: one.delete("lot = 2"), lambda now: [row for row in now if row["lot"] != 2]),
    ]
    return in_all, rows, steps


@pytest.mark.parametrize(
    ("places", "most"),
    [
        (("a", "b", "c"), 3),
        pytest.param(("a", "b", "c"), None, marks=pytest.mark.soak),
        pytest.param(("a", "b b%/=", "c'c"), None, marks=pytest.mark.soak),
    ],
    ids=["plain", "plain, all steps", "odd"],
)
def test_each_writer_goes_on_from_where_another_stopped_and_all_make_the_same_rows(tmp_path, spark, places, most):
    in_all, rows, steps = things(*places)
    first = opened(tmp_path, THINGS)
    first.add_rows("things", rows_of(THINGS, rows), {})
    copies = [f"{tmp_path}/things", *(copied(f"{tmp_path}/things", name) for name in ("one", "other"))]
    makers = (ByClient, ByDeltaRs, lambda table, place: BySpark(table, place, spark))
    writers = [[make(THINGS, place) for place in copies] for make in makers]
    for number, (step, expected) in enumerate(steps[:most]):
        for place in range(3):
            step(writers[(number + place) % 3][place])
        rows = expected(rows)
        assert [require_same(place) == told_of(rows) for place in copies] == [True] * 3, f"step {number}"
    for place in copies:
        assert require_same(place, spark_reader(spark)) == told_of(rows)
        client = ByClient(THINGS, place).tables
        assert told_of(client.load("things", in_all).rows.to_pylist()) == told_of(rows)


@pytest.mark.soak
def test_the_client_over_spark_makes_the_same_entries_and_rows(tmp_path, spark, monkeypatch):
    in_all, rows, steps = things("a", "b", "c")
    first = opened(tmp_path, THINGS)
    first.add_rows("things", rows_of(THINGS, rows), {})
    places = [f"{tmp_path}/things", copied(f"{tmp_path}/things", "by_spark")]
    writers = [ByClient(THINGS, places[0]), ByClient(THINGS, places[1], spark)]
    for step, expected in steps:
        for one in writers:
            step(one)
        rows = expected(rows)
        assert [require_same(place, spark_reader(spark)) == told_of(rows) for place in places] == [True] * 2
    assert hand.versions_of(places[0]) == hand.versions_of(places[1])
    monkeypatch.setattr(log, "SMALL", 0)
    instants = sorted(round(row["at"].timestamp() * 1_000) for row in rows if row["at"] is not None)
    bounds = {"between": {"at": (instants[0], instants[-1])}, "above": {"at": instants[0]}}
    found = [told_of(one.tables.rows("things", in_all, ["id", "at"], **bounds).to_pylist()) for one in writers]
    assert found[0] == found[1] and len(found[0]) == sum(one > instants[0] for one in instants)
