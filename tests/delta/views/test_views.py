"""The analyst views against the memory store, which lives through the same story, and against `counts()`."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass

import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue, LedgerError, SparkIsNeeded
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.views import statements
from tests.clock import FrozenClock

STATES = ("visible", "delayed", "locked", "in_flight", "deleted", "expired")
FACTS = ("status", "body", "receive_count", "sent_at", "first_received_at", "visible_at")
#: More than two of the blocks of ordinals by which messages meet what is recorded about them.
MANY = 2_500
VIEWS = ("messages", "queue_depth", "in_flight")

#: Step of the story -> who holds what then: queue, attempt, messages, first and last deadline (seconds from the
#: beginning), greatest receive count.
HELD = {
    "claimed": [("one", None, 3, 60, 60, 1)],
    "settled, locked, claimed elsewhere": [("one", None, 1, 60, 60, 1), ("two", "run-1", 2_000, 110, 110, 1)],
    "run out to the millisecond": [("two", "run-1", 2_000, 110, 110, 1)],
    "one claim of three fates": [("two", "run-1", 1_900, 110, 560, 1)],
    "claimed again, released": [("one", None, 5, 80, 80, 2)],
}
#: Every entry of the receipts view, in the order of the commits: queue, event, messages, seconds from the beginning.
ENTRIES = [
    ("one", "granted", 3, 0),
    ("one", "deleted", 1, 10),
    ("one", "released", 1, 10),
    ("two", "locked", 1, 10),
    ("two", "granted", 2_000, 10),
    ("two", "deleted", 100, 60),
    ("two", "extended", 50, 60),
    ("one", "expired", 1, 60),
    ("one", "granted", 5, 60),
    ("two", "released", 1_900, 70),
]


class Life:
    """A ledger that lives through the story, with a clock of its own."""

    def __init__(self, open_at) -> None:
        self.clock, self.ids = FrozenClock(), []
        self.ledger = open_at(self.clock)

    def send(self, queue, *bodies):
        self.ids += [(queue.name, message_id) for message_id in queue.send(list(bodies))]

    def story(self):
        """Yields the name of each step, once it has been."""
        one, two = (self.ledger.create_queue(name, {"Lanes": 1}) for name in ("one", "two"))
        self.ledger.create_queue("nothing")
        self.send(one, *(f"one {n}" for n in range(5)))
        self.send(two, *(f"two {n}" for n in range(MANY)))
        first = one.receive(3, 60)
        yield "claimed"
        self.clock.advance(10)
        a, b, _ = first.messages()
        one.settle(delete=[a.receipt_handle], release=[b.receipt_handle])
        two.lock(self.ids[-1][1], 50)
        second = two.receive(2_000, 100, attempt_id="run-1")
        yield "settled, locked, claimed elsewhere"
        self.clock.advance(50)
        yield "run out to the millisecond"
        self.send(one, "one 5")
        handles = [message.receipt_handle for message in second]
        two.delete(handles[1_000:1_100])
        two.change_visibility(handles[:50], 500)
        yield "one claim of three fates"
        one.receive(None, 20)
        self.clock.advance(10)
        second.release()
        yield "claimed again, released"


@dataclass
class Step:
    """What the views said at one moment, what the memory store and `counts()` said, and what looking changed."""

    version: int
    seen: dict[str, list]
    messages: dict[tuple, tuple]
    counts: dict[str, object]
    counts_in_memory: dict[str, object]
    moved: dict[str, int]


@pytest.fixture(scope="module")
def root(empty_ledger, tmp_path_factory):
    return str(shutil.copytree(empty_ledger, tmp_path_factory.mktemp("views") / "ledger"))


@pytest.fixture(scope="module")
def life(root, spark):
    return Life(lambda clock: Ledger.open(root, spark, clock=clock, owner="tester"))


@pytest.fixture(scope="module")
def steps(life):
    """The story, looked at after each of its steps."""
    memory, steps = Life(Ledger.in_memory), {}
    for name, same_name in zip(life.story(), memory.story()):
        assert (name, life.clock()) == (same_name, memory.clock())
        before = versions(life.ledger)
        seen = {view: rows(life.ledger.view(view)) for view in VIEWS}
        after = versions(life.ledger)
        messages = {
            ours: facts(memory.ledger.queue(theirs[0]).peek(theirs[1])) for ours, theirs in zip(life.ids, memory.ids)
        }
        counts, in_memory = ({q.name: q.counts() for q in one.ledger.list_queues()} for one in (life, memory))
        moved = {table: after[table] for table in TABLES if after[table] != before[table]}
        steps[name] = Step(before["visibility"], seen, messages, counts, in_memory, moved)
    return steps


def versions(ledger):
    return {table: ledger.store.engine.version(table) for table in TABLES}


def rows(frame):
    return sorted(frame.toArrow().to_pylist(), key=str)


def facts(message):
    return (message.status.value, *(getattr(message, fact) for fact in FACTS[1:]))


def seconds(instant):
    return round(instant.timestamp()) - FrozenClock().now // 1_000


@pytest.mark.parametrize("step", HELD)
def test_messages_says_of_every_message_what_the_rules_say(steps, step):
    seen = {
        (row["queue"], row["message_id"]): tuple(row[fact] for fact in FACTS) for row in steps[step].seen["messages"]
    }
    assert len(seen) == len(steps[step].seen["messages"]), "a row per message"
    expected = steps[step].messages
    assert {k: (seen.get(k), expected.get(k)) for k in seen | expected if seen.get(k) != expected.get(k)} == {}


@pytest.mark.parametrize("step", HELD)
def test_queue_depth_says_of_every_queue_what_counts_says(steps, step):
    seen = {row["queue"]: tuple(row[state] for state in STATES) for row in steps[step].seen["queue_depth"]}
    assert steps[step].counts == steps[step].counts_in_memory
    assert seen == {
        name: tuple(getattr(count, state) for state in STATES) for name, count in steps[step].counts.items()
    }
    assert seen["nothing"] == (0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("step", HELD)
def test_in_flight_has_a_row_for_every_receipt_that_holds_something(steps, step):
    names = ("queue", "attempt_id", "messages", "earliest_deadline", "latest_deadline", "greatest_receive_count")
    seen = [[row[name] for name in names] for row in steps[step].seen["in_flight"]]
    assert sorted((*row[:3], seconds(row[3]), seconds(row[4]), row[5]) for row in seen) == HELD[step]


def test_looking_commits_nothing(steps):
    assert [name for name, step in steps.items() if step.moved] == []


@pytest.mark.soak_variants("claimed")
@pytest.mark.parametrize("step", ["claimed", "one claim of three fates"])
def test_a_view_of_an_older_version_is_what_was_seen_then(steps, life, step):
    for view in VIEWS:
        assert rows(life.ledger.view(view, version=steps[step].version)) == steps[step].seen[view], view


def test_receipts_tells_what_happened_and_once_filled_commits_nothing_either(steps, life):
    before = versions(life.ledger)["visibility"]
    seen = sorted(rows(life.ledger.view("receipts")), key=lambda row: (row["version"], row["event"]))
    assert [(row["queue"], row["event"], row["messages"], seconds(row["at"])) for row in seen] == ENTRIES
    assert {row["owner"] for row in seen} == {"tester"}
    filled = versions(life.ledger)
    assert filled["visibility"] == before
    assert rows(life.ledger.view("receipts")) == sorted(seen, key=str)
    assert versions(life.ledger) == filled


def test_receipts_of_an_older_version_end_with_it(steps, life):
    seen = rows(life.ledger.view("receipts", version=steps["claimed"].version))
    assert [(row["event"], row["version"]) for row in seen] == [("granted", steps["claimed"].version)]


def test_deployed_views_tell_the_present_state_by_the_wall_clock(tmp_path, empty_ledger, spark):
    clock = FrozenClock(round(time.time() * 1_000) - 7_200_000)
    ledger = Ledger.open(str(shutil.copytree(empty_ledger, tmp_path / "ledger")), spark, clock=clock)
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b", "c", "d"])
    queue.receive(1, 3_600)
    clock.advance(7_200)
    held = queue.receive(2, 36_000)
    queue.delete(held.messages()[0].receipt_handle)
    try:
        names = ledger.deploy_views("test_views", "ops_")
        assert names == [f"test_views.ops_{name}" for name in statements.VIEWS]
        (row,) = rows(spark.table("test_views.ops_queue_depth"))
        assert row.pop("age_of_oldest") >= 7_200
        counts = {"visible": 2, "delayed": 0, "locked": 0, "in_flight": 1, "deleted": 1, "expired": 0, "moved": 0}
        assert row == {"queue": "jobs", **counts}
        said = [(row.col_name, row.comment) for row in spark.sql("DESCRIBE test_views.ops_in_flight").collect()]
        assert said == list(statements.comments_of("in_flight").columns.items())
        (row,) = rows(spark.table("test_views.ops_in_flight"))
        assert (row["receipt_id"], row["messages"], row["latest_deadline"]) == (held.receipt_id, 1, held.deadline)
        held.release()
        ledger.fill_receipts()
        assert spark.table("test_views.ops_in_flight").count() == 0
        assert (
            sorted(row["status"] for row in rows(spark.table("test_views.ops_messages")))
            == ["deleted"] + ["visible"] * 3
        )
        events = sorted(rows(spark.table("test_views.ops_receipts")), key=lambda row: (row["version"], row["event"]))
        assert [row["event"] for row in events] == ["granted", "expired", "granted", "deleted", "released"]
        # Deployed again, nothing is in the way; and of a version, it is as it was then.
        assert ledger.deploy_views("test_views", "ops_", version=held.version) == names
        assert [row["messages"] for row in rows(spark.table("test_views.ops_in_flight"))] == [2]
        spark.sql("CREATE TABLE test_views.in_flight (a INT) USING parquet")
        for schema, prefix, said in (
            ("test_views", "", r"a table test_views\.in_flight.*prefix"),
            ("two words", "", "schema.*name of Spark's catalog"),
            (None, "", "schema"),
            ("test_views", "two words", "prefix.*letters"),
        ):
            with pytest.raises(InvalidParameterValue, match=said):
                ledger.deploy_views(schema, prefix)
    finally:
        spark.sql("DROP SCHEMA IF EXISTS test_views CASCADE")


def test_a_view_or_a_version_that_does_not_exist_is_refused_by_its_name(life, steps):
    newest = life.ledger.store.engine.version("visibility")
    with pytest.raises(InvalidParameterValue, match=r"'depth'.*messages, in_flight, queue_depth"):
        life.ledger.view("depth")
    for version in (newest + 1, -1):
        with pytest.raises(
            InvalidParameterValue, match=rf"{version}.*versions from 0 to {newest}\. Those of the last days"
        ):
            life.ledger.view("queue_depth", version=version)


def test_views_without_spark_or_without_tables_say_what_is_missing(root, clock):
    for look in (lambda ledger: ledger.view("messages"), lambda ledger: ledger.deploy_views("test_views")):
        with pytest.raises(SparkIsNeeded, match="spark=spark"):
            look(Ledger.open(root, clock=clock))
        with pytest.raises(LedgerError, match="needs a ledger on Delta tables"):
            look(Ledger.in_memory(clock))
