"""A view as of a version is as it was then: whatever was deleted, changed or tidied since, and whatever clocks said."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger import Ledger
from ledger.clock import instant
from ledger.delta_log.storage import LOG, HeldLog
from ledger.errors import InvalidParameterValue
from ledger.settings import Settings


def held(ledger, version):
    rows = ledger.sql("SELECT * FROM in_flight", version=version).to_pylist()
    return sorted((row["queue"], row["receipt_id"], row["messages"]) for row in rows)


def states(ledger, version):
    rows = ledger.sql("SELECT queue, body, status FROM messages", version=version).to_pylist()
    return sorted((row["queue"], row["body"], row["status"]) for row in rows)


def test_a_view_of_the_past_is_as_it_was_then(open_ledger, root, clock, spark):
    ledger = open_ledger(frames=True, keep_deleted_receipts=1)
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a"], attempt_id="one")
    sent_later = ledger.store.engine.version("messages")
    # The sender's clock is an hour ahead of everybody's: by the timestamps its message came after the claim.
    log = Path(root) / "messages" / "_delta_log" / f"{sent_later:020d}.json"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries:
        if "commitInfo" in entry:
            entry["commitInfo"]["timestamp"] += 3_600_000
    log.write_text("\n".join(json.dumps(entry) for entry in entries))
    settings = Settings(keep_deleted_receipts=1)
    ledger = Ledger.open(root, spark, "delta-rs", settings=settings, clock=clock, owner="tester")
    queue = ledger.queue("jobs")
    claim = queue.receive(1, 3_600)
    seen = [("jobs", claim.receipt_id, 1)]
    assert held(ledger, claim.version) == seen, "right after the verb: exactly that claim"
    assert states(ledger, claim.version) == [("jobs", "a", "in flight")]
    claim.extend(3_600)
    extended = ledger.store.engine.version("visibility")
    assert held(ledger, extended) == seen, "it read no messages; an earlier decision did"
    other = ledger.create_queue("other", {"Lanes": 1})
    other.send(["x", "y"], attempt_id="two")
    done = other.receive(1, 60)
    done.delete()
    clock.advance(7_200)
    ledger.upkeep(vacuum=False)
    tidied = ledger.store.engine.version("visibility")
    assert tidied > done.version + 1 and held(ledger, tidied) == [], "a lease that is over is not in flight then"
    queue.set_attributes({"MessageRetentionPeriod": 60})
    assert states(ledger, claim.version) == [("jobs", "a", "in flight")]
    ledger.delete_queue("jobs")
    assert held(ledger, claim.version) == seen, "what a queue held is there in its past"
    assert held(ledger, done.version) == [*seen, ("other", done.receipt_id, 1)]
    with pytest.raises(Exception, match=r"versions from \d+ to \d+.*deleted_file_retention"):
        ledger.view("in_flight", tidied + 100)


def test_the_depth_of_a_queue_that_was_deleted_since_is_there_in_its_past(open_ledger, clock):
    """What it had then, whatever a namesake has that was made since; the other queue's as well."""
    ledger = open_ledger()
    queue, stays = (ledger.create_queue(name, {"Lanes": 1}) for name in ("jobs", "stays"))
    queue.send(["a", "b", "c"])
    stays.send(["x"])
    clock.advance(5)
    claim, seen = queue.receive(1, 60), instant(clock())
    clock.advance(1)
    claim.delete()
    ledger.delete_queue("jobs")
    ledger.create_queue("jobs", {"Lanes": 2}).send(["new"])
    clock.advance(1)
    asked = "SELECT queue, visible, in_flight, deleted, age_of_oldest FROM queue_depth ORDER BY queue"
    then = [("jobs", 2, 1, 0, 5.0), ("stays", 1, 0, 0, 5.0)]
    for at in ({"version": claim.version}, {"timestamp": seen}):
        assert [tuple(row.values()) for row in ledger.sql(asked, **at).to_pylist()] == then
    now = [("jobs", 1, 0, 0, 1.0), ("stays", 1, 0, 0, 7.0)]
    assert [tuple(row.values()) for row in ledger.sql(asked).to_pylist()] == now


def test_a_verb_that_landed_late_brings_nothing_of_what_others_did_meanwhile(open_ledger, root, clock):
    """By when they decided: it is earlier than what landed before it."""
    ledger = open_ledger()
    late, busy = ledger.create_queue("late", {"Lanes": 1}), ledger.create_queue("busy", {"Lanes": 1})
    late.send(["a"])
    busy.send(["b", "c"])
    clock.advance(10)
    busy.receive(1, 60)
    asked = clock() + 4_000
    clock.advance(10)
    busy.receive(1, 60)
    behind = Ledger.open(root, engine="delta-rs", clock=lambda: asked - 1_000)
    behind.queue("late").receive(1, 60)

    def in_flight(at):
        found = ledger.sql("SELECT queue, messages, age FROM in_flight", timestamp=at).to_pylist()
        assert all(row["age"] >= 0 for row in found)
        return sorted((row["queue"], row["messages"]) for row in found)

    assert in_flight(instant(asked)) == [("busy", 1)]
    assert in_flight(instant(clock())) == [("busy", 1), ("busy", 1), ("late", 1)]
    assert in_flight(instant(asked) - timedelta(seconds=5)) == []


@pytest.mark.parametrize(("engine", "late"), [("delta-rs", "send"), ("delta-rs", "create_queue"), ("spark", "send")])
def test_what_stood_still_before_its_commit_is_in_no_view_of_what_was_before_it_landed(
    open_ledger, root, clock, monkeypatch, engine, late
):
    """Whatever the verb read that made the version, and whenever it is asked."""
    ledger, reader = open_ledger(engine), open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    claim, last = queue.receive(1, 600), queue.receive(1, 600)
    behind = Ledger.open(root, engine="delta-rs", clock=clock, owner="late")
    behind.queue("jobs")
    put_new, moments, seen = HeldLog.put_new, [], []

    def views():
        queries = (
            "SELECT queue, body, status FROM messages ORDER BY body",
            "SELECT queue, visible, in_flight FROM queue_depth ORDER BY queue",
        )
        return [reader.sql(query, **moment).to_pylist() for moment in moments for query in queries]

    def stalled(files, path, content):
        # What it has to say is written down, with the time at which it decided.
        if path.startswith(LOG) and not seen:
            monkeypatch.setattr(HeldLog, "put_new", put_new)
            for verb in (lambda: claim.extend(600), claim.release, lambda: last.extend(60)):
                moments.append({"timestamp": instant(clock())})
                clock.advance(1)
                verb()
                moments.append({"version": ledger.store.engine.version("visibility")})
            seen.append(views())
        return put_new(files, path, content)

    clock.advance(1)
    monkeypatch.setattr(HeldLog, "put_new", stalled)
    if late == "send":
        behind.queue("jobs").send("late")
    else:
        behind.create_queue("late").send("late")
    assert len(moments) == 6 and seen == [views()]
    # The next verb has it, whatever that is about.
    clock.advance(1)
    last.extend(60)
    moments = [{"version": ledger.store.engine.version("visibility")}]
    assert "late" in str(views())


def test_an_instant_of_which_a_log_tells_no_more_is_refused_with_the_bound(open_ledger, root, clock):
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    marks = []
    for number in range(6):
        clock.advance(1)
        queue.send([str(number)])
        queue.receive(1, 60)
        marks.append(instant(clock()))

    def cut(table):
        version = ledger.store.engine.version(table) - 1
        DeltaTable(f"{root}/{table}", version=version).create_checkpoint()
        for entry in range(version):
            Path(root, table, "_delta_log", f"{entry:020d}.json").unlink()

    asked = "SELECT count(*) AS messages FROM messages"
    assert ledger.sql(asked, timestamp=marks[1]).to_pylist() == [{"messages": 2}]
    cut("messages")
    ledger = open_ledger()
    with pytest.raises(InvalidParameterValue, match="The log of the table messages begins at version"):
        ledger.sql(asked, timestamp=marks[1])
    assert ledger.sql(asked, timestamp=marks[5]).to_pylist() == [{"messages": 6}]
    cut("visibility")
    with pytest.raises(InvalidParameterValue, match=marks[4].strftime("Must be .*%H:%M:%S.* or later")):
        open_ledger().sql(asked, timestamp=marks[1])


def test_what_was_decided_on_a_version_that_the_log_has_lost_is_refused_where_one_since_may_note_more(
    open_ledger, root, clock, monkeypatch
):
    """The commit before it is of a claim of what was sent meanwhile: only that commit notes the version of it."""
    ledger, other, put_new, claims = open_ledger(), open_ledger(), HeldLog.put_new, []
    for name in ("busy", "late"):
        ledger.create_queue(name, {"Lanes": 1}).send([name] * 2)
        ledger.queue(name).receive(1, 600)

    def stalled(files, path, content):
        if path.startswith(LOG) and not claims:
            monkeypatch.setattr(HeldLog, "put_new", put_new)
            other.queue("busy").send("meanwhile")
            claims.append(other.queue("busy").receive(2, 600))
        return put_new(files, path, content)

    monkeypatch.setattr(HeldLog, "put_new", stalled)
    late = ledger.queue("late").receive(1, 600)
    assert late.version == claims[0].version + 1
    seen = states(ledger, late.version)
    assert ("busy", "meanwhile", "in flight") in seen
    clock.advance(1)
    later = ledger.queue("late").send("b") and ledger.queue("late").receive(1, 600)
    then, last = instant(clock() - 1_000), states(ledger, later.version)
    DeltaTable(f"{root}/visibility", version=late.version).create_checkpoint()
    for entry in range(late.version):
        Path(root, "visibility", LOG, f"{entry:020d}.json").unlink()
    for at in ({"version": late.version}, {"timestamp": then}):
        with pytest.raises(InvalidParameterValue, match=f"visibility begins at version {late.version}, and version"):
            open_ledger().sql("SELECT * FROM messages", **at)
    assert states(open_ledger(), later.version) == last


SAID = ["nightly", "[1]", '{"operation": "x", "at": "noon", "events": [{}]}']
THROUGH = [*((said, "delta-rs") for said in SAID), (SAID[2], "spark")]
THROUGH += [pytest.param(said, "spark", marks=pytest.mark.soak) for said in SAID[:2]]


@pytest.mark.soak_variants("*-spark")
@pytest.mark.parametrize(("said", "engine"), THROUGH)
def test_what_others_say_of_their_commits_is_theirs(open_ledger, root, clock, said, engine):
    """Spark writes what a session's setting says, whatever that is."""
    ledger = open_ledger(engine)
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send("a")
    claim = queue.receive(1, 60)
    seen = states(ledger, claim.version)
    for table in ("visibility", "messages", "queues"):
        version = ledger.store.engine.version(table) + 1
        # By a clock that is ahead.
        entry = {"commitInfo": {"timestamp": clock() + 10_000, "operation": "OPTIMIZE", "userMetadata": said}}
        Path(root, table, LOG, f"{version:020d}.json").write_text(json.dumps(entry))
    assert states(ledger, claim.version) == seen
    # Of which only its file's time tells when it was: that is no time of this test's.
    foreign = claim.version + 1
    bodies = lambda: ledger.sql("SELECT body FROM messages", version=foreign).to_pylist()  # noqa: E731
    assert bodies() == [{"body": "a"}]
    assert ledger.sql("SELECT event FROM receipts").to_pylist() == [{"event": "granted"}]
    ledger.upkeep(vacuum=False)
    assert queue.send("b", attempt_id="again") == queue.send("b", attempt_id="again")
    assert bodies() == [{"body": "a"}]
    assert claim.delete().messages == 1 and ledger.health()
    if engine == "delta-rs":
        DeltaTable(f"{root}/visibility", version=foreign).create_checkpoint()
        for entry in range(foreign):
            Path(root, "visibility", LOG, f"{entry:020d}.json").unlink()
        with pytest.raises(InvalidParameterValue, match=f"begins at version {foreign}, and version {claim.version}"):
            open_ledger().sql("SELECT body FROM messages", version=foreign)


def test_now_is_an_instant_to_the_microsecond_of_which_is_told_as_of_its_millisecond(open_ledger, clock):
    """Most often it was refused as later than now, which is counted in milliseconds."""
    ledger = open_ledger()
    ledger.create_queue("jobs").send("a")
    clock.advance(1)
    now = instant(clock()) + timedelta(microseconds=999)
    assert ledger.sql("SELECT body FROM messages", timestamp=now).to_pylist() == [{"body": "a"}]
    with pytest.raises(InvalidParameterValue, match="later than now"):
        ledger.sql("SELECT 1", timestamp=now + timedelta(microseconds=1))


def test_a_version_that_upkeep_made_has_nothing_of_what_landed_later_either(open_ledger, root, clock, monkeypatch):
    ledger, put_new, versions = open_ledger(), HeldLog.put_new, []
    ledger.create_queue("gone", {"Lanes": 1}).send("x")
    ledger.queue("gone").receive(1, 60)
    ledger.create_queue("jobs", {"Lanes": 1}).send("a")
    behind = Ledger.open(root, engine="delta-rs", clock=clock, owner="late")
    queue = behind.queue("jobs")

    def stalled(files, path, content):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        ledger.delete_queue("gone")
        ledger.upkeep(vacuum=False)
        versions.append(ledger.store.engine.version("visibility"))
        return put_new(files, path, content)

    monkeypatch.setattr(HeldLog, "put_new", stalled)
    queue.send("late")
    (version,) = versions
    assert ledger.store.engine.history("visibility", version - 1)[0].metadata["verb"] == "upkeep"
    assert states(ledger, version) == [("jobs", "a", "visible")]


def test_a_version_has_what_its_claim_holds_however_late_that_landed(open_ledger, root, monkeypatch):
    """A receive lists the files of messages, and reads them as they are a moment later."""
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    others = open_ledger().queue("jobs")
    ledger.store.transactions.on_step = lambda step: step == "chosen" and others.send("meanwhile")
    claim = queue.receive(2, 600)
    ledger.store.transactions.on_step = lambda step: None
    assert {body for _, body, _ in states(ledger, claim.version)} >= {message.body for message in claim}
    assert ("jobs", "meanwhile", "visible") in states(ledger, claim.version), "it was there when that was noted"
