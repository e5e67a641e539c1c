"""SQL without Spark: the views say there what they say through Spark, now, at any version, and at any instant."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

from ledger import Ledger
from ledger.client.settling import apply
from ledger.clock import instant
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.rules.visibility import Verb
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.verbs.receipts import read_events
from ledger.store.delta.views.queries import Queries
from ledger.store.delta.views.statements import VIEWS, comments_of
from ledger.store.protocol import RUNS, Action, Postponed
from tests.clock import FrozenClock

#: More than a block of the ordinals by which messages meet what is recorded about them.
MANY = 2_500


class Rich:
    """A ledger in which everything has happened: sets with bits, FIFO, dead letters, leases that ran out, delays."""

    def __init__(self, root: str) -> None:
        self.root, self.clock, self.marks, self.seen = root, FrozenClock(), {}, {}
        self.ledger = self.open("worker-1")
        self._live()

    def open(self, owner="reader", spark=None):
        return Ledger.open(self.root, spark, clock=self.clock, owner=owner)

    def _mark(self, name):
        ledger = self.open()
        self.marks[name] = ledger.store.engine.version("visibility"), instant(self.clock())
        self.seen[name] = {view: rows(ledger.sql(f"SELECT * FROM {view}")) for view in VIEWS}
        self.clock.advance(5)

    def _live(self):
        ledger, other, clock = self.ledger, self.open("worker-2"), self.clock
        dead = ledger.create_queue("dead", {"Lanes": 1})
        policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}
        jobs = ledger.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": policy})
        wide = ledger.create_queue("wide", {"Lanes": 1})
        events = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 1})
        ledger.create_queue("empty")
        jobs.send([f"job {n}" for n in range(12)])
        jobs.send(["later"], delay_seconds=60, message_attributes={"kind": "express", "priority": 7})
        wide.send([f"wide {n}" for n in range(MANY)])
        events.send([{"MessageBody": f"event {n}", "MessageGroupId": f"g{n % 3}"} for n in range(9)])
        Ledger.open(self.root, clock=clock, sender_id="somebody").queue("jobs").send(
            [
                {"MessageBody": "mine", "MessageAttributes": {"a": {"DataType": "String", "StringValue": "b"}}},
                "also mine",
            ]
        )
        self._mark("sent")
        held = wide.receive(None, 600, attempt_id="task 1")
        handles = [message.receipt_handle for message in held]
        clock.advance(20)
        wide.delete(handles[::2])
        wide.settle(release=handles[1:1_000:4], reason="every fourth")
        first = jobs.receive(4, 30)
        other.queue("jobs").receive(3, 30)
        taken = events.receive(4, 100)
        self._mark("scattered")
        taken.delete()
        first.release("the first time")
        clock.advance(40)
        second = other.queue("jobs").receive(None, 30, attempt_id="task 2")
        some = [message.receipt_handle for message in second]
        other.queue("jobs").settle(
            delete=some[:2], release=some[2:5], extend=some[5:6], visibility_timeout=40, reason="it is 'no' number"
        )
        ledger.fill_receipts()
        clock.advance(60)
        last = jobs.receive(None, 50)
        self._mark("dead")
        taken = dead.receive(1, 100)
        taken.release()
        dead.redrive(max_messages=1)
        jobs.lock(jobs.send(["locked"])[0], 500)
        last.delete()
        wide.receive(100, 5)
        clock.advance(10)
        wide.receive(50, 7_200)
        self._mark("redriven")


@pytest.fixture(scope="module")
def rich(empty_ledger, tmp_path_factory):
    return Rich(str(shutil.copytree(empty_ledger, tmp_path_factory.mktemp("rich") / "ledger")))


def rows(table):
    """Rows in an order of their own; maps, whose order is nobody's, by their keys."""
    plain = [{name: sorted(v) if isinstance(v, list) else v for name, v in row.items()} for row in table.to_pylist()]
    return sorted(plain, key=lambda row: json.dumps(row, default=str, sort_keys=True))


@pytest.fixture
def sql(rich):
    return rich.open().sql


def values(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def test_what_happened_is_all_there(sql):
    """Or a comparison with Spark would say little."""
    seen = set(values(sql("SELECT DISTINCT queue, status FROM messages")))
    assert {("wide", "in flight"), ("wide", "deleted"), ("wide", "visible"), ("jobs", "locked")} <= seen
    assert {"moved", "expired", "locked", "released"} <= {
        event for (event,) in values(sql("SELECT event FROM receipts"))
    }
    assert sql("SELECT * FROM dead_letters").num_rows


def test_views_say_through_spark_what_they_say_without(rich, spark):
    ledger, (_, then) = rich.open(spark=spark), rich.marks["dead"]
    for view, past in [*((view, {}) for view in VIEWS), ("in_flight", {"timestamp": then})]:
        mine, theirs = ledger.sql(f"SELECT * FROM {view}", **past), ledger.view(view, **past).toArrow()
        assert mine.column_names == theirs.column_names == list(comments_of(view).columns), view
        assert rows(mine) == rows(theirs), (view, past)
        assert mine.schema.types == theirs.schema.types, view


def test_a_view_of_an_instant_is_what_it_was_then(rich):
    ledger = rich.open()
    for name, (version, at) in rich.marks.items():
        for view, seen in rich.seen[name].items():
            assert rows(ledger.sql(f"SELECT * FROM {view}", timestamp=at)) == seen, (name, view)
        assert values(ledger.sql("SELECT coalesce(max(version), 0) FROM receipts", version)) == [(version,)]
        iso = at.isoformat().replace("+00:00", "Z")
        assert values(ledger.sql("SELECT coalesce(max(version), 0) FROM receipts", timestamp=iso)) == [(version,)]


def test_a_lease_that_ran_out_between_two_commits_is_over_at_an_instant_behind_its_deadline(rich):
    scattered = rich.marks["scattered"][1]
    held = "SELECT count(*) FROM in_flight WHERE queue = 'jobs'"
    assert values(rich.open().sql(held, timestamp=scattered)) == [(2,)]
    assert values(rich.open().sql(held, timestamp=scattered + timedelta(seconds=44))) == [(0,)]


def test_in_flight_names_the_owner_and_counts_the_seconds(rich, sql):
    (row,) = sql("SELECT * FROM in_flight WHERE queue = 'wide' AND attempt_id IS NULL").to_pylist()
    assert (row["owner"], row["messages"], row["age"], row["seconds_left"]) == ("worker-1", 50, 5.0, 7_195.0)
    (row,) = sql("SELECT * FROM in_flight WHERE queue = 'wide' AND attempt_id = 'task 1'").to_pylist()
    assert row["messages"] == MANY // 2 - 250


def test_dead_letters_tell_who_held_them_and_what_was_said(clock, root):
    one, two = (Ledger.open(root, clock=clock, owner=f"worker-{n}") for n in (1, 2))
    dead = one.create_queue("dead")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}
    jobs = one.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": policy})
    jobs.send([str(n) for n in range(9)])
    jobs.receive(None, 60).release("the first time, which does not count")
    claim = two.queue("jobs").receive(None, 60, attempt_id="task 2")
    handles = [message.receipt_handle for message in claim.messages()]
    claim.settle(release=handles[:3], reason="it is 'no' number")
    clock.advance(1)
    claim.settle(release=handles[3:4])
    claim.settle(extend=handles[4:6], visibility_timeout=30, reason="too slow")
    clock.advance(100)
    assert not jobs.receive(None)
    said = "SELECT cause, reason, owner, attempt_id, messages FROM dead_letters ORDER BY messages, cause"
    assert values(one.sql(said)) == [
        ("released", None, "worker-2", "task 2", 1),
        ("timed out", "too slow", "worker-2", "task 2", 2),
        ("released", "it is 'no' number", "worker-2", "task 2", 3),
        ("timed out", None, "worker-2", "task 2", 3),
    ]
    before = instant(clock())
    clock.advance(1)
    dead.redrive(max_messages=4)
    jobs.receive(2, 60)
    assert sum(values(one.sql("SELECT sum(messages) FROM dead_letters"))[0]) == 5, "what was redriven is none any more"
    assert values(one.sql("SELECT sum(messages) FROM dead_letters", timestamp=before)) == [(9,)], "but it was one"


def test_each_dead_letter_has_its_own_reason(clock, root):
    ledger = Ledger.open(root, clock=clock, owner="worker")
    dead = ledger.create_queue("dead")
    jobs = ledger.create_queue("jobs", {"RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}})
    jobs.send([str(n) for n in range(4)])
    claim = jobs.receive(None, 60)
    messages = claim.messages()
    failed = pa.table({"receipt_handle": [m.receipt_handle for m in messages], "reason": ["a", "b", "a", None]})
    assert all(claim.settle(release=failed)["outcome"].to_pylist())
    assert not jobs.receive(None)
    said = ledger.sql("SELECT reason, messages, example FROM dead_letters ORDER BY reason NULLS LAST").to_pylist()
    assert [(row["reason"], row["messages"]) for row in said] == [("a", 2), ("b", 1), (None, 1)]
    assert said[1]["example"] == messages[1].message_id and said[2]["example"] == messages[3].message_id
    events = ledger.sql("SELECT reason, messages FROM receipts WHERE event = 'released' ORDER BY reason").to_pylist()
    assert [tuple(event.values()) for event in events] == [("a", 2), ("b", 1), (None, 1)]


def test_planned_retries_parked_messages_and_lost_leases_are_told_apart(clock, root):
    ledger = Ledger.open(root, clock=clock, owner="worker")
    jobs = ledger.create_queue("jobs", {"VisibilityTimeout": 60, "Lanes": 1})
    jobs.send([str(n) for n in range(10)])
    claim = jobs.receive(None)
    handles = [message.receipt_handle for message in claim.messages()]
    claim.settle(extend=handles[:1], visibility_timeout=30, reason="a retry, as before there was another way")
    access, actions = jobs.access, []
    for first, count, kind in ((1, 2, Postponed.RETRY), (3, 3, Postponed.PARKED)):
        runs = claim.grant.part(first, count).runs.select(RUNS.names)
        actions.append(
            Action(Verb.CHANGE, claim.receipt_id, runs, 40, True, reason=kind.name, postponed=kind, mark=first)
        )
    apply(access, access.record(), actions)
    states = "SELECT state, reason, messages, seconds_left FROM in_flight ORDER BY messages"
    assert values(ledger.sql(states)) == [
        ("postponed", "RETRY", 2, 39.999), ("parked", "PARKED", 3, 39.997), ("held", None, 5, 30.0)
    ]  # fmt: skip
    events = "SELECT event, reason, messages FROM receipts WHERE event IN ('postponed', 'parked') ORDER BY messages"
    assert values(ledger.sql(events)) == [("postponed", "RETRY", 2), ("parked", "PARKED", 3)]
    clock.advance(60)
    assert jobs.receive(None).count == 10
    hours = "SELECT postponed, parked, timed_out, released, redeliveries FROM processing_times"
    assert values(ledger.sql(hours)) == [(3, 3, 4, 0, 10)]
    expired = "SELECT sum(messages) FROM receipts WHERE event = 'expired'"
    assert values(ledger.sql(expired)) == [(5,)], "what was postponed or parked is no lease that ran out"


def test_the_last_lease_before_a_dead_letter_or_a_redrive_leaves_an_expired_event_of_its_holder(clock, root):
    one, two = (Ledger.open(root, clock=clock, owner=f"worker-{n}") for n in (1, 2))
    dead = one.create_queue("dead", {"Lanes": 1})
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
    jobs = one.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": policy})
    jobs.send(["a", "b", "c"])
    lost = two.queue("jobs").receive(2, 60)
    jobs.receive(1, 60).release("on purpose")
    clock.advance(61)
    assert not jobs.receive(None)
    unheard_of = two.queue("dead").receive(1, 60)
    clock.advance(61)
    assert dead.redrive() == 3
    said = "SELECT queue, receipt_id, owner, messages FROM receipts WHERE event = 'expired' ORDER BY version"
    expired = [("jobs", lost.receipt_id, "worker-2", 2), ("dead", unheard_of.receipt_id, "worker-2", 1)]
    assert values(one.sql(said)) == expired
    one.upkeep()
    assert values(one.sql(said)) == expired
    known = [row for row in read_events(one.store.engine, jobs.id) if row["event"] == "expired"]
    assert [(row["receipt_id"], row["owner"]) for row in known] == [(lost.receipt_id, "worker-2")]


def test_in_flight_tells_the_last_beat_of_each_claim(clock, open_ledger):
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"VisibilityTimeout": 600})
    queue.send(["a", "b"])
    beating, silent = queue.receive(), queue.receive()
    granted = instant(clock())
    clock.advance(200)
    beating.extend()
    seen = dict(values(ledger.sql("SELECT receipt_id, last_beat FROM in_flight")))
    assert seen == {beating.receipt_id: instant(clock()), silent.receipt_id: granted}


def test_processing_times_are_of_messages_and_not_of_claims(clock, open_ledger):
    ledger = open_ledger()
    queue = ledger.create_queue("jobs")
    queue.send([str(n) for n in range(100)])
    claims = [queue.receive(most, 1_000) for most in (94, 4, 1, 1)]
    for claim, seconds in zip(claims, (10, 10, 30, 50)):
        clock.advance(seconds)
        claim.delete()
    row = ledger.sql("SELECT p50, p95, p99, longest, suggested_timeout, acknowledged FROM processing_times")
    assert values(row) == [(10.0, 20.0, 50.0, 100.0, 300, 100)]


def test_where_nothing_was_acknowledged_no_timeout_is_suggested(clock, open_ledger):
    ledger = open_ledger()
    queue = ledger.create_queue("jobs")
    queue.send("a")
    queue.receive().release()
    row = ledger.sql("SELECT received, released, p99, suggested_timeout FROM processing_times")
    assert values(row) == [(1, 1, None, None)]


def test_queue_depth_of_the_past_is_what_was_counted_then(rich, sql):
    counted = {row["queue"]: row for row in sql("SELECT * FROM queue_depth").to_pylist()}
    now = instant(rich.clock())
    past = {row["queue"]: row for row in sql("SELECT * FROM queue_depth", timestamp=now).to_pylist()}
    assert counted == past
    assert counted["jobs"]["moved"] > 0 and counted["empty"]["age_of_oldest"] is None


def test_a_limit_holds_for_every_view(sql):
    """delta-rs forgets it where it reads no column of a table but those that it is partitioned by."""
    for view in VIEWS:
        for column in ("1", "queue"):
            assert sql(f"SELECT {column} FROM {view} LIMIT 1").num_rows == 1, (view, column)


def test_looking_commits_nothing_though_receipts_are_up_to_date(rich):
    ledger = rich.open()
    before = {table: ledger.store.engine.version(table) for table in TABLES}
    ((newest,),) = values(ledger.sql("SELECT max(version) FROM receipts"))
    assert newest == before["visibility"]
    assert {table: ledger.store.engine.version(table) for table in TABLES} == before


def test_the_comments_say_what_every_column_is(sql):
    said = sql('SELECT view, "column", comment FROM comments').to_pylist()
    assert not any("'" in row["comment"] for row in said), "Spark 4.0 has no way to say one in a view's comment"
    for view in VIEWS:
        names = [row["column"] for row in said if row["view"] == view]
        assert names == [None, *sql(f"SELECT * FROM {view} LIMIT 0").column_names]
    assert all(row["comment"] for row in said)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT nope FROM messages", "No field named nope"),
        ("SELECT * FROM nope", "nope' not found.*on the views messages, in_flight"),
        ("SELECT 1; SELECT 2", "single SQL statement"),
        ("COPY (SELECT 1) TO 'file.csv'", "Must be one that reads: select"),
        ("CREATE TABLE a AS VALUES (1)", "Must be one that reads: select"),
        ("", "Must be one that reads"),
        (None, "Must be one that reads"),
    ],
)
def test_what_is_no_query_is_refused_by_what_is_wrong(sql, query, said):
    with pytest.raises(InvalidParameterValue, match=said):
        sql(query)


@pytest.mark.parametrize(
    ("past", "said"),
    [
        ({"timestamp": "yesterday"}, "with a time zone"),
        ({"timestamp": datetime(2026, 1, 1)}, "tzinfo=timezone.utc"),
        ({"timestamp": 5}, "with a time zone"),
        ({"timestamp": "1999-01-01T00:00:00Z"}, "or later: of what was before, nothing is known"),
        ({"timestamp": datetime(9_000, 1, 1, tzinfo=timezone.utc)}, "later than now"),
        ({"timestamp": "2026-01-01T00:00:00Z", "version": 1}, "Give one of them"),
        ({"version": 10_000}, "has the versions from 0 to"),
        ({"version": "3"}, "Must be a number.*timestamp="),
        ({"version": True}, "Must be a number.*timestamp="),
        ({"version": datetime(2026, 1, 1, tzinfo=timezone.utc)}, "Must be a number.*timestamp="),
    ],
)
def test_a_moment_that_is_none_is_refused_with_what_to_write(sql, past, said):
    with pytest.raises(InvalidParameterValue, match=said):
        sql("SELECT * FROM in_flight", **past)


@pytest.mark.parametrize(
    "statement",
    [
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{}'",
        "explain analyze verbose COPY (SELECT 1) TO '{}'",
        "DESCRIBE ANALYZE COPY (SELECT 1) TO '{}'",
        "EXPLAIN /* */ ANALYZE COPY (SELECT 1) TO '{}'",
        "/* /* */ select */ COPY (SELECT 1) TO '{}'",
        "/* /* */ explain select 1 -- */ COPY (SELECT 1) TO '{}'",
    ],
)
def test_what_writes_is_no_query_however_it_is_dressed(sql, tmp_path, statement):
    file = tmp_path / "written.csv"
    with pytest.raises(InvalidParameterValue, match="query"):
        sql(statement.format(file))
    assert not file.exists()


@pytest.mark.parametrize(
    "query",
    [
        "EXPLAIN ANALYZE SELECT count(*) FROM messages",
        "explain format indent select 1",
        "describe messages;",
        "/* a comment */ (SELECT 1) UNION ALL (SELECT 2) ORDER BY 1 -- and another",
        "SELECT * FROM messages a JOIN messages b ON a.message_id = b.message_id LIMIT 1;",
    ],
)
def test_what_reads_is_a_query(sql, query):
    assert sql(query) is not None


def test_a_ledger_in_memory_has_no_tables(clock):
    with pytest.raises(LedgerError, match="needs a ledger on Delta tables"):
        Ledger.in_memory(clock).sql("SELECT 1")


def test_a_query_of_now_is_of_one_moment_whatever_others_commit_while_it_is_made(root, clock, monkeypatch):
    """A receipt that was granted between the reads of two tables had no owner, and an age below 0."""
    ledger = Ledger.open(root, engine="delta-rs", owner="analyst", clock=clock)
    queue = ledger.create_queue("work", {"VisibilityTimeout": 600})
    queue.send([f"{n}" for n in range(100)])
    queue.receive(3)
    other, opened = Ledger.open(root, engine="delta-rs", owner="worker", clock=clock).queue("work"), []
    make = Queries._add

    def beside(self, session, table, at):
        opened.append(table)
        clock.advance(1)
        other.receive(3)
        other.send("one more")
        return make(self, session, table, at)

    monkeypatch.setattr(Queries, "_add", beside)
    asked = """SELECT owner, age, messages, (SELECT sum(in_flight) FROM queue_depth) AS counted,
        (SELECT count(*) FROM messages) AS there,
        (SELECT sum(visible + in_flight) FROM queue_depth) AS deep FROM in_flight"""
    rows = ledger.sql(asked).to_pylist()
    assert {"receipts", "visibility", "messages"} <= set(opened)
    assert rows == [{"owner": "analyst", "age": 0.0, "messages": 3, "counted": 3, "there": 100, "deep": 100}]
