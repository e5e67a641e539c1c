"""`Ledger.repair_clock`: what a clock that was ahead has left is put right, and the order of groups goes on."""

import contextlib
from dataclasses import replace

import pytest

from ledger.client import move_tasks
from ledger.errors import ClocksDisagree
from ledger.rules import instants, redrive
from ledger.rules.redrive import MoveTask
from ledger.rules.visibility import Record
from ledger.store.delta.model.tables import Where
from tests.delta.clocks.machine import DAY, HOUR, state


def test_a_repair_puts_lanes_and_their_leases_right_and_is_on_record(ahead, ledger, machine):
    (found,) = ledger.repair_clock(dry_run=True)
    before = state(ledger)
    assert (found.queue, found.ahead, found.lanes, found.messages) == ("jobs", 2 * DAY, 1, 1)
    with pytest.raises(ClocksDisagree, match="repair --clock"):
        ahead.receive(1)
    assert state(ledger) == before, "a dry run changes nothing"
    assert ledger.repair_clock() == [found]
    assert all(ahead.send(["c"])) and ahead.receive(None).count == 2
    machine.advance(29.999)
    assert ahead.counts().visible == 0, "the lease lasts as long as its timeout says, from the repair on"
    machine.advance(0.001)
    assert ahead.receive(None, visibility_timeout=0).count == 3
    query = "SELECT event, messages, reason, owner FROM receipts WHERE event = 'clock repaired'"
    (event,) = ledger.sql(query).to_pylist()
    assert event == {
        "event": "clock repaired", "messages": 1, "reason": "the queue's time was 172800.0 s ahead", "owner": "one"
    }  # fmt: skip
    assert ledger.repair_clock() == []


def test_the_wrong_clocks_holder_keeps_its_claim_through_a_repair(ledger, queue, process, machine):
    machine.set(2 * DAY)
    claim = process("two").queue("jobs").receive(1)
    machine.set(-2 * DAY)
    ledger.repair_clock()
    assert queue.claim(claim.receipt_id).delete().messages == 1


def test_a_repair_leaves_alone_what_is_right(ledger, queue, process, machine):
    """Another queue, another lane, and a hold that was long when it began."""
    other = ledger.create_queue("other")
    other.send("o")
    other.receive(1)
    held = queue.receive(1, visibility_timeout=12 * HOUR)
    machine.set(11 * HOUR)
    process("two").queue("jobs").receive(1)
    machine.set(-11 * HOUR)
    where = Where(other.access.record().id)
    before = ledger.store.engine.load("visibility", where).rows.to_pylist()
    deadline = ledger.store.peek(queue.access.record(), held.messages()[0].message_id).record.visible_at
    ledger.repair_clock()
    assert ledger.store.engine.load("visibility", where).rows.to_pylist() == before
    assert ledger.store.peek(queue.access.record(), held.messages()[0].message_id).record.visible_at == deadline


@pytest.fixture
def beside_a_repair(ledger, process, machine):
    """A process whose clock is ahead, and what a repair did that comes between its first decision and the commit."""
    machine.set(2 * DAY)
    slow, repaired = process("three"), []

    def meanwhile(step):
        if step == "chosen" and not repaired:
            machine.set(-2 * DAY)
            repaired.append(ledger.repair_clock())
            machine.set(2 * DAY)

    slow.store.transactions.on_step = meanwhile
    return slow, repaired


def test_a_decision_that_was_made_by_the_wrong_time_is_made_again_after_a_repair(ledger, ahead, beside_a_repair):
    """A verb of the wrong clock that stood still meanwhile does not bring the wrong time back unseen."""
    slow, repaired = beside_a_repair
    queue = slow.queue("jobs")
    queue.receive(1)
    assert repaired[0], "it has lost to the repair, and decided again"
    versions = [c.metadata["verb"] for c in ledger.store.engine.history("visibility", -1) if c.metadata]
    assert versions.index("repair_clock") < len(versions) - 1 and versions[-1] == "receive"


def test_messages_that_were_sent_by_the_wrong_clock_are_counted(ledger, queue, process, machine):
    machine.set(2 * DAY)
    process("two").queue("jobs").send(["c", "d"])
    machine.set(-2 * DAY)
    (found,) = ledger.repair_clock()
    assert (found.lanes, found.sent_ahead) == (0, 2) and queue.counts().delayed == 2


@pytest.fixture
def sent_ahead(ledger, process, machine):
    """A FIFO queue to which a clock 2 days ahead has sent, and nobody else since."""
    queue = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    queue.send(["a"], message_group_id="g")
    machine.set(2 * DAY)
    process("two").queue("jobs.fifo").send(["b"], message_group_id="h")
    machine.set(-2 * DAY)
    return queue


def test_sends_to_a_fifo_queue_go_on_after_a_repair(ledger, sent_ahead, process, machine):
    with pytest.raises(ClocksDisagree, match="repair --clock"):
        sent_ahead.send(["c"], message_group_id="g")
    assert "jobs.fifo" in ledger.health().clocks
    (found,) = ledger.repair_clock(dry_run=True)
    assert (found.queue, found.refused_sends, found.sent_ahead, found.lanes) == ("jobs.fifo", True, 1, 0)
    assert found.ahead == 2 * DAY and ledger.repair_clock() == [found]
    for sender in (sent_ahead, process("three").queue("jobs.fifo")):
        assert all(sender.send([str(id(sender)), "d"], message_group_id="g"))
    assert not ledger.health().clocks
    assert [one.refused_sends for one in ledger.repair_clock()] == [False]
    claim = sent_ahead.receive(None)
    numbers = [int(message.sequence_number) for message in claim.messages()]
    assert numbers == sorted(numbers) and claim.messages()[0].body == "a"
    machine.advance(2 * DAY + 60)
    assert "b" in [message.body for message in sent_ahead.receive(None).messages()]


@pytest.mark.parametrize("receives", [False, True])
def test_the_order_of_a_group_goes_on_through_a_repair(ledger, sent_ahead, process, machine, receives):
    """What was sent ahead is before what follows it, whoever looks, and hides it until its time has come."""
    if receives:
        assert [message.body for message in sent_ahead.receive(1)] == ["a"], "this process knows all messages"
    ledger.repair_clock()
    machine.advance(1)
    sent_ahead.send(["after b"], message_group_id="h")
    sent_ahead.send(["other"], message_group_id="z")
    for queue in (sent_ahead, process("three").queue("jobs.fifo")):
        assert (queue.counts().delayed, queue.counts().visible) == (1, 2 if receives else 3)
    claim = sent_ahead.receive(None, visibility_timeout=0)
    assert [message.body for message in claim] == (["other"] if receives else ["a", "other"])
    machine.advance(2 * DAY + 60)
    for queue in (sent_ahead, process("four").queue("jobs.fifo")):
        bodies = [message.body for message in queue.receive(None, visibility_timeout=0)]
        assert bodies.index("b") < bodies.index("after b") and set(bodies) >= {"other", "a"}


def test_what_was_sent_far_ahead_is_kept_until_it_is_visible(ledger, process, machine):
    """By a clock that was ahead by more than the queue keeps messages."""
    attributes = {"FifoQueue": True, "ContentBasedDeduplication": True, "MessageRetentionPeriod": DAY}
    queue = ledger.create_queue("brief.fifo", attributes)
    machine.set(3 * DAY)
    process("two").queue("brief.fifo").send(["b"], message_group_id="h")
    machine.set(-3 * DAY)
    ledger.repair_clock()
    machine.advance(3 * DAY - 60)
    queue.send(["after b"], message_group_id="h")
    machine.advance(120)
    for view in ("SELECT body FROM messages WHERE status = 'visible' ORDER BY body",):
        assert ledger.sql(view)["body"].to_pylist() == ["after b", "b"]
    assert [message.body for message in queue.receive(None)] == ["b", "after b"]


def test_messages_that_come_after_a_repair_are_seen_by_who_knew_the_queue(ledger, sent_ahead, process, machine):
    """A process reads only what came since it looked last: by numbers, as instants went back."""
    known = process("three").queue("jobs.fifo")
    assert known.receive(None).count == 1
    ledger.repair_clock()
    machine.advance(1)
    for body in ("x", "y"):
        sent_ahead.send([body], message_group_id=body)
        assert [message.body for message in known.receive(None)] == [body]


def test_duplicates_are_known_behind_a_repair_but_for_what_the_wrong_clock_sent(ledger, sent_ahead, machine):
    ledger.repair_clock()
    machine.advance(1)
    assert all(sent_ahead.send(["a", "b", "c"], message_group_id="g"))
    assert all(sent_ahead.send(["c"], message_group_id="g"))
    counts = sent_ahead.counts()
    assert (counts.visible, counts.delayed) == (3, 1), "a and c are duplicates; when b was sent before, nobody knows"


def test_what_the_wrong_clock_sent_makes_no_duplicates_when_its_instant_has_come(ledger, sent_ahead, machine):
    ledger.repair_clock()
    machine.advance(2 * DAY + 30)
    before = sent_ahead.counts().visible
    sent_ahead.send(["b"], message_group_id="g")
    machine.advance(1)
    assert sent_ahead.counts().visible == before + 1


def test_a_send_that_was_decided_by_the_wrong_time_is_decided_again_after_a_repair(ledger, sent_ahead, beside_a_repair):
    slow, repaired = beside_a_repair
    slow.queue("jobs.fifo").send(["late"], message_group_id="g")
    assert repaired[0]
    verbs = [one.metadata["verb"] for one in ledger.store.engine.history("messages", -1) if one.metadata]
    assert verbs[-2:] == ["repair_clock", "send"], "it has lost to the repair"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Record(), Record()),
        # Granted by the wrong clock; granted by a right one, and extended by the wrong one.
        (Record("r", received_at=1_000_000, visible_at=1_030_000), Record("r", received_at=0, visible_at=30_000)),
        (Record("r", received_at=-9, visible_at=1_030_000), Record("r", received_at=-9, visible_at=30_000)),
        # Held for long by a right clock.
        (Record("r", received_at=-9, visible_at=500_000), Record("r", received_at=-9, visible_at=500_000)),
        (Record(deleted_at=1_000_000), Record(deleted_at=0)),
        (Record(deleted_at=-5, released_at=-7), Record(deleted_at=-5, released_at=-7)),
    ],
)
def test_what_was_recorded_by_the_wrong_clock_is_as_a_right_one_had_recorded_it(record, expected):
    assert instants.put_back(record, 1_000_000, 0, 30_000, 600_000) == expected


def test_a_repair_brings_back_what_had_expired_by_a_clock_that_was_ahead(lengthened_ahead, ledger, machine):
    (found,) = ledger.repair_clock(dry_run=True)
    assert (found.queue, found.changed_ahead, found.ahead, found.lanes) == ("jobs", True, 10 * DAY, 0)
    assert ledger.repair_clock() == [found] and ledger.repair_clock() == [] and not ledger.health().clocks
    assert all(lengthened_ahead.send(["c"])) and lengthened_ahead.receive(None, visibility_timeout=0).count == 3
    assert lengthened_ahead.attributes()["LastModifiedTimestamp"] == str(machine.clock() // 1_000)
    machine.advance(2 * DAY)
    assert lengthened_ahead.counts().stored == 0


@pytest.mark.parametrize("knows", [False, True])
def test_the_order_of_a_group_goes_on_through_repairs_by_two_wrong_clocks(ledger, process, machine, knows):
    """The first repair is by a clock that is itself ahead: what it sends then is earlier than what was sent before."""
    attributes = {"FifoQueue": True, "ContentBasedDeduplication": True, "MessageRetentionPeriod": 14 * DAY}
    queue = ledger.create_queue("jobs.fifo", attributes)
    for ahead, bodies in ((10, ["a", "b"]), (5, ["c"]), (2, ["d", "e"]), (0, ["f"])):
        machine.set(ahead * DAY)
        one = process(f"ahead by {ahead}").queue("jobs.fifo")
        process(f"ahead by {ahead}").repair_clock()
        machine.advance(1)
        for body in bodies:
            one.send([body], message_group_id="g")
        if knows:
            assert queue.access.record() and process().queue("jobs.fifo").counts().stored
        machine.set(-ahead * DAY)
    machine.advance(10 * DAY + 60)
    assert [m.body for m in process("last").queue("jobs.fifo").receive(None, visibility_timeout=0)] == list("abcdef")
    assert [m.body for m in process("last").queue("jobs.fifo").receive(3)] == list("abc")


@pytest.fixture
def abandoned(ledger, queue, process, machine, monkeypatch):
    """A task that moves dead letters of `dead` back, started by a clock 2 days ahead, whose process ended at once."""
    dead = ledger.create_queue("dead", {"Lanes": 1})
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
    queue.set_attributes({"RedrivePolicy": policy})
    queue.receive(None, visibility_timeout=0)
    assert queue.receive(None).count == 0 and dead.counts().visible == 2
    monkeypatch.setattr(move_tasks, "start_thread", lambda *given, **more: None)
    machine.set(2 * DAY)
    process("two").queue("dead").start_message_move_task(max_messages_per_second=1)
    machine.set(-2 * DAY)
    return dead


def test_a_move_task_that_a_clock_ahead_has_started_is_carried_on_after_a_repair(abandoned, process, machine):
    found = process().repair_clock(dry_run=True)
    assert [(one.queue, one.tasks, one.ahead, one.changed_ahead) for one in found if one.tasks] == [
        ("dead", 1, 2 * DAY, False)
    ]
    assert process().repair_clock() == found and process().repair_clock() == []
    for _ in range(3):
        machine.advance(600)
        process().upkeep()
    (task,) = process().queue("dead").list_message_move_tasks(5)
    assert (task.status, task.moved) == ("COMPLETED", 2)


@pytest.mark.parametrize("sends", [False, True])
def test_the_order_of_what_a_clock_ahead_has_moved_goes_on_through_a_repair(process, machine, sends):
    """Two dead letters came back in the other order than they were sent in, and one was sent in between."""
    fifo = {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 1, "MessageRetentionPeriod": 14 * DAY}
    old, new, queue = (process().create_queue(name, fifo) for name in ("old.fifo", "new.fifo", "q.fifo"))
    for one, body in ((old, "old"), (new, "new")):
        machine.advance(1)
        one.send([body], message_group_id="g")
    queue.send(["right"], message_group_id="g")
    machine.set(2 * DAY)
    ahead = process("two")
    for name in ("new", "old"):
        ahead.queue(f"{name}.fifo").redrive(destination="q.fifo")
        machine.advance(1)
        if sends:
            ahead.queue("q.fifo").send([f"behind {name}"], message_group_id="g")
            machine.advance(1)
    expected = ["right", "new", "behind new", "old", "behind old"] if sends else ["right", "new", "old"]
    assert [one.body for one in ahead.queue("q.fifo").receive(None, visibility_timeout=0)] == expected
    machine.set(-2 * DAY)
    process().repair_clock()
    machine.advance(1)
    process().queue("q.fifo").send(["last"], message_group_id="g")
    machine.advance(2 * DAY + 60)
    assert [one.body for one in process().queue("q.fifo").receive(None)] == [*expected, "last"]


def test_what_a_repair_has_set_aside_stays_so_after_a_second_one(process, machine):
    """When its instant has come, and a later repair counts what was sent by then, too."""
    process().create_queue("q.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 1})
    for ahead, body in ((2 * DAY, "b"), (3 * HOUR, "x")):
        machine.set(ahead)
        process("two").queue("q.fifo").send([body], message_group_id=body)
        machine.set(-ahead)
        process().repair_clock()
        machine.advance(2 * DAY + 30 if body == "b" else 10)
    queue = process().queue("q.fifo")
    before = queue.counts().stored
    queue.send(["b"], message_group_id="g")
    assert queue.counts().stored == before + 1
    queue.send(["b"], message_group_id="g")
    assert queue.counts().stored == before + 1, "a right clock has sent that"


def test_more_repairs_than_are_remembered_go_on(process, machine):
    process().create_queue("q.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 1})
    for number in range(10):
        machine.set(HOUR)
        process("two").queue("q.fifo").send([f"{number}"], message_group_id="g")
        machine.set(-HOUR)
        assert [one.refused_sends for one in process().repair_clock()] == [True]
        machine.advance(1)
        process().queue("q.fifo").send([f"{number} right"], message_group_id="g")
    machine.advance(2 * HOUR)
    expected = [body for number in range(10) for body in (f"{number}", f"{number} right")]
    assert [one.body for one in process().queue("q.fifo").receive(None)] == [*expected]


def test_repairs_by_clocks_within_the_skew_keep_the_order(process, machine):
    process().create_queue("q.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 1})
    for ahead, body, repaired in ((2 * DAY, "b", 20), (DAY, "d", 0)):
        machine.set(ahead)
        process("two").queue("q.fifo").send([body], message_group_id="g")
        machine.set(repaired - ahead)
        process("three").repair_clock()
        machine.set(-repaired)
        machine.advance(1)
    machine.advance(3 * DAY)
    assert [one.body for one in process("four").queue("q.fifo").receive(None)] == ["b", "d"]


def test_a_move_task_waits_while_the_clocks_disagree(abandoned, process, machine):
    process().repair_clock()
    machine.set(2 * DAY)
    process("two").queue("jobs").receive(1)
    machine.set(-2 * DAY)
    for _ in range(3):
        machine.advance(600)
        process().upkeep()
    (task,) = process().queue("dead").list_message_move_tasks(5)
    assert task.status == "RUNNING"
    store, ticks, before = process().store, iter(range(30)), process().store.engine.version("tasks")
    mover = move_tasks.MoveTasks(store, store.queue("dead"), machine.clock)
    with contextlib.suppress(StopIteration):
        mover.run(task.task, -1, lambda seconds: (next(ticks), machine.advance(1)))
    assert store.engine.version("tasks") <= before + 1, "it looks again after a while, and not each second"
    process().repair_clock()
    for _ in range(3):
        machine.advance(600)
        process().upkeep()
    (task,) = process().queue("dead").list_message_move_tasks(5)
    assert (task.status, task.moved) == ("COMPLETED", 2)


def test_what_an_earlier_release_noted_by_a_clock_ahead_is_not_believed(queue, ledger, process, machine):
    """It did not record by which clock: there the last change counts."""
    queue.set_attributes({"MessageRetentionPeriod": 4 * DAY})
    machine.set(3 * DAY)
    process("two").queue("jobs").set_attributes({"MessageRetentionPeriod": 14 * DAY})
    machine.set(-3 * DAY)
    record = ledger.store.queue("jobs")
    assert record.expiry_noted_at > 0
    old = replace(record, expiry_noted_at=-1)
    assert old.noted_at == record.noted_at and replace(old, expired_before=-1).noted_at == -1
    skew = 30_000
    assert old.put_back(machine.clock(), skew).expired_before == machine.clock() - 14 * DAY * 1_000
    later = old.expired(machine.clock())
    assert later is old or later.noted_at == record.noted_at, "a right clock's note does not make it right"


def test_a_task_with_a_rate_goes_on_at_once_behind_a_repair():
    task = MoveTask("t", "dead", None, 1, 10 * DAY * 1_000, 10 * DAY * 1_000 + 900_000, 5_000, moved=900)
    right = redrive.put_back(task, DAY * 1_000)
    assert right.updated_at == DAY * 1_000 and redrive.allowance(right, DAY * 1_000) == 1
