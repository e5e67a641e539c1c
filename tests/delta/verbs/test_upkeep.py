"""Upkeep: it frees what is finished and touches nothing else, whenever it runs and whatever runs beside it."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger.errors import MessageDoesNotExist
from ledger.results import Settled
from ledger.store.delta.model.tables import TABLES, Where
from ledger.store.delta.verbs.upkeep import FILES_WORTH_COMPACTING, UpkeepReport
from tests.clock import FrozenClock

#: How long deleted messages keep their receipts here, and how long a segment is appended to.
KEPT = OPEN = 60
NOTHING = UpkeepReport(receipts_filled=0, queues_removed=0, segments_dropped=0, rows_joined=0, lanes_compacted=0)


@pytest.fixture
def open_one(open_ledger):
    return lambda engine="delta-rs": open_ledger(engine, keep_deleted_receipts=KEPT, open_segment_seconds=OPEN)


@pytest.fixture
def ledger(open_one):
    return open_one()


@pytest.fixture
def queue(ledger):
    return ledger.create_queue("jobs", {"Lanes": 1})


def send(queue, *bodies):
    """Sends into a segment of its own that is sealed; answers the ids."""
    return queue.send(list(bodies), attempt_id=f"attempt of {bodies[0]}")


def handles(claim):
    return {message.body: message.receipt_handle for message in claim}


def exists(queue, message_id):
    try:
        return bool(queue.peek(message_id))
    except MessageDoesNotExist:
        return False


def records(ledger, queue):
    """(first, last, receipt) of the runs about the queue's messages."""
    rows = ledger.store.engine.load("visibility", Where(queue.id)).rows
    return sorted((r["first_seq"], r["last_seq"], r["receipt_id"]) for r in rows.to_pylist() if r["segment"])


def versions(ledger):
    return {table: ledger.store.engine.version(table) for table in TABLES}


@pytest.mark.parametrize("engine", ["delta-rs", "spark"])
def test_finished_segments_are_dropped_and_nothing_else_changes(queue, open_one, clock, engine):
    ids = {}
    for body in ("finished 1", "partly 1", "released 1", "held 1", "run out 1", "young 1"):
        ids |= dict(zip((body, body[:-1] + "2"), send(queue, body, body[:-1] + "2")))
    held = handles(queue.receive(None, visibility_timeout=KEPT))
    queue.delete([held[body] for body in ("finished 1", "finished 2", "partly 2", "released 1", "held 1", "run out 1")])
    queue.change_visibility([held["released 2"], held["held 2"]], [0, 10 * KEPT])
    ids |= dict(zip(("never received", "locked"), send(queue, "never received", "locked")))
    queue.lock(ids["locked"], 10 * KEPT)
    clock.advance(KEPT / 2)
    queue.delete([held["young 1"], held["young 2"]])
    clock.advance(KEPT / 2 + 0.001)
    upkeeper = open_one(engine)
    before = {body: queue.peek(message_id) for body, message_id in ids.items() if body[:8] != "finished"}
    counts = queue.counts()
    report = upkeeper.upkeep(vacuum=engine == "delta-rs")
    assert (report.segments_dropped, report.queues_removed, report.lanes_compacted) == (1, 0, 0)
    assert not exists(queue, ids["finished 1"]) | exists(queue, ids["finished 2"])
    # Of a message deleted long ago only the fact stays recorded.
    after = {body: queue.peek(ids[body]) for body in before}
    assert {body: (after[body].status, after[body].body) for body in before} == {
        body: (message.status, body) for body, message in before.items()
    }
    alive = [body for body, message in before.items() if message.status.value != "deleted" or body[:5] == "young"]
    assert {body: after[body] for body in alive} == {body: before[body] for body in alive}
    assert queue.counts() == counts.__class__(**{**vars(counts), "deleted": counts.deleted - 2})
    assert queue.delete([held["held 2"]])[0].outcome == "deleted"


def test_a_segment_is_dropped_once_its_last_deletion_is_older_than_receipts_are_kept_and_not_before(
    ledger, queue, clock
):
    (message_id,) = send(queue, "a")
    queue.receive().delete()
    clock.advance(KEPT)
    assert ledger.upkeep().segments_dropped == 0
    assert exists(queue, message_id)
    clock.advance(0.001)
    assert ledger.upkeep().segments_dropped == 1
    assert not exists(queue, message_id)
    assert records(ledger, queue) == []


def test_a_segment_that_is_still_appended_to_is_spared_so_that_its_handles_stay_known(open_ledger, clock):
    ledger = open_ledger(keep_deleted_receipts=1, open_segment_seconds=OPEN)
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    claim = queue.receive(2)
    given = list(handles(claim).values())
    claim.delete()
    clock.advance(OPEN - 1)
    assert ledger.upkeep().segments_dropped == 0
    queue.send("c")
    assert [outcome.outcome for outcome in queue.delete(given)] == ["already deleted"] * 2
    assert (claim.delete().messages, claim.delete().lost) == (0, 0)
    queue.receive(None).delete()
    clock.advance(2)
    assert ledger.upkeep().segments_dropped == 1
    queue.send("d")
    assert [message.body for message in queue.receive(None)] == ["d"]


def test_a_sender_that_appends_for_longer_than_upkeep_spares_segments_loses_nothing(ledger, open_ledger, clock):
    """The setting of the sender is an hour, and that of upkeep a minute: deletion.md asks for it."""
    sender = open_ledger(open_segment_seconds=3_600).create_queue("jobs", {"Lanes": 1})
    (first,) = sender.send(["first"])
    queue = ledger.queue("jobs")
    queue.receive(None).delete()
    sender.send("second")
    clock.advance(max(KEPT, OPEN) + 1)
    assert ledger.upkeep().segments_dropped == 0, "second is in the same segment"
    queue.receive(None).delete()
    clock.advance(max(KEPT, OPEN) + 1)
    assert ledger.upkeep().segments_dropped == 1 and not exists(queue, first)
    sender.send("third")
    clock.advance(max(KEPT, OPEN) + 1)
    assert ledger.upkeep().segments_dropped == 0
    assert [message.body for message in queue.receive(None)] == ["third"]


def test_what_a_sender_with_a_slow_clock_still_appends_while_upkeep_drops_is_not_lost(
    ledger, queue, root, clock, monkeypatch
):
    slow, engine = FrozenClock(clock()), ledger.store.engine
    sender = type(ledger).open(root, clock=slow, settings=ledger.settings).queue("jobs")
    sender.send(["a", "b"])
    queue.receive(None).delete()
    clock.advance(max(KEPT, OPEN) + 1)
    delete = engine.delete

    def delete_late(table, *rest):
        sender.send("late")
        delete(table, *rest)

    monkeypatch.setattr(engine, "delete", delete_late)
    assert ledger.upkeep().segments_dropped == 1
    assert queue.counts().stored == 1
    assert [message.body for message in queue.receive(None)] == ["late"]


def test_a_claim_that_is_open_meanwhile_deletes_what_is_left_and_is_safe_to_retry(ledger, queue, clock):
    send(queue, "a 1", "a 2")
    send(queue, "b 1", "b 2")
    claim = queue.receive(4, visibility_timeout=600)
    given = handles(claim)
    queue.delete([given["a 1"], given["a 2"], given["b 1"]])
    clock.advance(KEPT + 1)
    assert ledger.upkeep().segments_dropped == 1
    assert claim.extend(600).messages == 1
    assert [message.body for message in claim] == ["b 1", "b 2"], "what was dropped cannot be read any more"
    assert claim.delete() == Settled(1, 0)
    clock.advance(KEPT + 1)
    assert ledger.upkeep().segments_dropped == 1
    assert claim.delete() == Settled(0, 0)
    assert {outcome.outcome for outcome in queue.delete(list(given.values()))} == {"already deleted"}


def test_a_send_tried_again_after_its_messages_were_dropped_is_not_sent_again(ledger, queue, clock):
    sent = send(queue, "a", "b")
    queue.receive(None).delete()
    assert send(queue, "a", "b") == sent
    clock.advance(KEPT + 1)
    assert ledger.upkeep().segments_dropped == 1
    assert send(queue, "a", "b") == sent
    assert not queue.receive()


def test_rows_of_old_deletions_are_joined_and_those_of_living_messages_stay_as_they_are(ledger, queue, clock):
    send(queue, *(f"{n}" for n in range(8)))
    given = {}
    for _ in range(7):
        given |= handles(queue.receive(1, visibility_timeout=600))
        clock.advance(1)
    queue.delete([given[body] for body in "01"])
    clock.advance(1)
    for body in "245":
        queue.delete(given[body])
    clock.advance(KEPT + 1)
    before, counts = records(ledger, queue), queue.counts()
    receipt = {first: receipt for first, _, receipt in before}
    assert [row[:2] for row in before] == [(n, n) for n in range(7)]
    assert ledger.upkeep().rows_joined == 3
    assert records(ledger, queue) == [(0, 2, None), (3, 3, receipt[3]), (4, 5, None), (6, 6, receipt[6])]
    assert queue.counts() == counts
    again = queue.delete([given[body] for body in "0253"])
    assert [one.outcome for one in again] == ["already deleted"] * 3 + ["deleted"]


def test_a_segment_of_many_files_becomes_one_file_with_the_same_messages(ledger, queue):
    ids = [queue.send(f"{n}")[0] for n in range(FILES_WORTH_COMPACTING - 1)]
    claim = queue.receive(3)
    assert ledger.upkeep().lanes_compacted == 0, "a file short of being worth it"
    ids += queue.send("last")
    before = [queue.peek(message_id) for message_id in ids]
    assert ledger.upkeep().lanes_compacted == 1
    assert ledger.store.engine.files()[1].num_rows == 1
    assert [queue.peek(message_id) for message_id in ids] == before
    assert claim.delete().messages == 3
    assert len(queue.receive(None)) == len(ids) - 3


def test_receipts_are_filled_once_and_a_second_upkeep_changes_nothing(ledger, queue, clock):
    for _ in range(FILES_WORTH_COMPACTING):
        queue.send("a")
    queue.receive(2).delete()
    send(queue, "b")
    queue.receive(None, visibility_timeout=600).delete()
    send(queue, "done", "held")
    queue.delete(handles(queue.receive(None, visibility_timeout=600))["done"])
    ledger.create_queue("gone").send("x")
    ledger.delete_queue("gone")
    clock.advance(KEPT + 1)
    first = ledger.upkeep()
    assert (first.receipts_filled, first.queues_removed, first.segments_dropped) == (6, 1, 2)
    before = versions(ledger)
    clock.advance(1)
    assert ledger.upkeep() == NOTHING
    assert versions(ledger) == before
    assert ledger.store.engine.load("receipts", Where()).rows.num_rows == 6


def test_a_deleted_queue_leaves_nothing_and_its_namesake_keeps_everything(ledger, queue):
    send(queue, "old")
    queue.receive(1)
    ledger.delete_queue("jobs")
    anew = ledger.create_queue("jobs", {"Lanes": 1})
    new = send(anew, "new")[0]
    anew.receive(1)
    assert ledger.upkeep().queues_removed == 1
    engine = ledger.store.engine
    for rows in (engine.files()[1], engine.load("visibility", Where()).rows):
        assert rows["queue"].unique().to_pylist() == [anew.id]
    assert anew.peek(new).status.value == "in flight"


def test_upkeep_that_loses_to_a_verb_tries_again_and_keeps_what_the_verb_did(ledger, queue, open_one, clock):
    send(queue, "a", "b", "c")
    given = {}
    for _ in range(3):
        given |= handles(queue.receive(1, visibility_timeout=600))
    queue.delete(given["a"])
    queue.delete(given["b"])
    clock.advance(KEPT + 1)
    upkeeper, released = open_one(), []
    upkeeper.store.transactions.on_step = lambda step: (
        step != "chosen" or released or released.extend(queue.change_visibility([given["c"]], 0))
    )
    assert upkeeper.upkeep().rows_joined == 1
    assert [row[:2] for row in records(ledger, queue)] == [(0, 1), (2, 2)]
    assert [message.body for message in queue.receive(None)] == ["c"]


def test_an_upkeep_tells_its_steps(ledger, queue):
    said = []
    ledger.upkeep(report=said.append)
    assert said == [
        "fills the receipts", "reads what is recorded", "tidies jobs (1 of 1 queues)", "drops 0 finished segments",
        "joins small files", *(f"vacuums {table}" for table in TABLES),
    ]  # fmt: skip


def without_statistics(root):
    """What a session with spark.databricks.delta.stats.collect=false leaves: files of `messages` without statistics."""
    for entry in sorted(Path(root, "messages", "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"].pop("stats")
        entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


@pytest.mark.parametrize("sealed", [True, False])
def test_files_without_statistics_are_kept_and_their_messages_are_found(open_one, root, clock, sealed):
    """Each round ended with a TypeError, and so did a peek."""
    queue = open_one().create_queue("jobs", {"Lanes": 1, "MessageRetentionPeriod": 60})
    sent = send(queue, "a", "b") if sealed else queue.send(["a", "b"])
    without_statistics(root)
    ledger = open_one()
    queue = ledger.queue("jobs")
    assert queue.peek(sent[1].message_id).body == "b"
    with pytest.raises(MessageDoesNotExist):
        queue.peek(f"{sent[1].message_id[:-1]}7")
    claim = queue.receive(1)
    assert claim.count == 1
    claim.delete()
    clock.advance(24 * 3_600)
    ledger.upkeep()
    assert queue.counts().stored == 0 and not queue.receive(None)
    assert ledger.upkeep().segments_dropped == 0, "nobody knows their ages"


@pytest.mark.parametrize(
    "asked", [{"delta.dataSkippingStatsColumns": "body"}, {"delta.dataSkippingNumIndexedCols": "0"}], ids=str
)
def test_tables_that_ask_for_other_statistics_are_worked_at_and_tidied(open_one, root, clock, asked):
    """Each send and each round ended with a KeyError."""
    queue = open_one().create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    for table in ("messages", "receipts"):
        DeltaTable(f"{root}/{table}").alter.set_table_properties(asked, raise_if_not_exists=False)
    queue.send("c")
    DeltaTable(f"{root}/messages").optimize.compact()
    ledger = open_one()
    queue = ledger.queue("jobs")
    queue.send("d")
    claim = queue.receive(None)
    assert sorted(message.body for message in claim) == ["a", "b", "c", "d"]
    claim.delete()
    clock.advance(10 * KEPT)
    for _ in range(2):
        ledger.upkeep()
    assert queue.counts().stored == 0 and ledger.health().queues
