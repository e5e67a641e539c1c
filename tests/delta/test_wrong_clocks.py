"""A wall clock that is set while time passes as ever: what is refused, and that one wrong look destroys nothing."""

import contextlib
import json
from dataclasses import replace

import pytest

from ledger import Ledger, move_tasks
from ledger.errors import ClocksDisagree
from ledger.rules import instants, move_task
from ledger.rules.move_task import MoveTask
from ledger.rules.state import Record
from ledger.settings import Settings
from ledger.store.delta.model.where import Where
from ledger.store.delta.verbs.ages import MARK
from tests.clock import FrozenClock

HOUR, DAY = 3_600, 86_400
#: Between two rounds of upkeep, each a process of its own.
ROUND = HOUR


class Machine:
    """Several processes' wall clock, and the time that passes; `set` is what somebody does to the clock alone."""

    def __init__(self):
        self.clock, self.passed, self.boot = FrozenClock(), 1_000.0, "boot 1"

    def __call__(self):
        return self.clock()

    def passing(self):
        return self.Passing(self)

    class Passing:
        def __init__(self, machine):
            self.machine = machine

        def __call__(self):
            return self.machine.passed

        @property
        def boot(self):
            return self.machine.boot

    def advance(self, seconds):
        """Lets time pass."""
        self.clock.advance(seconds)
        self.passed += seconds

    def set(self, seconds):
        """Sets the clock so much ahead, or back."""
        self.clock.advance(seconds)

    def restart(self, name):
        self.boot, self.passed = name, 0.0


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def process(root, machine):
    """Opens the ledger as a new process of the machine does."""

    def one(owner="one", **settings):
        kept = Settings(**{"keep_deleted_receipts": 60, "open_segment_seconds": 60, **settings})
        return Ledger.open(root, clock=machine.clock, passing=machine.passing(), settings=kept, owner=owner)

    return one


@pytest.fixture
def ledger(process):
    return process()


@pytest.fixture
def queue(ledger):
    made = ledger.create_queue("jobs", {"Lanes": 1, "VisibilityTimeout": 30})
    made.send(["a", "b"])
    return made


def state(ledger):
    return [ledger.store.engine.version(table) for table in ("visibility", "messages", "queues", "tasks")]


@pytest.mark.parametrize("ahead", [5 * DAY, 31, -31, -5 * DAY])
def test_a_step_that_nothing_explains_is_refused_and_changes_nothing(ledger, queue, machine, ahead):
    (message,) = queue.receive(1).messages()
    before = state(ledger)
    machine.set(ahead)
    for verb in (
        queue.receive, lambda: queue.send("c"), lambda: queue.delete(message.receipt_handle), ledger.upkeep,
        lambda: queue.purge(), lambda: ledger.create_queue("new"), queue.counts,
    ):  # fmt: skip
        with pytest.raises(ClocksDisagree, match=r"2023-11-\d\dT.*should say 2023-11-14T.*NTP.*open the ledger anew"):
            verb()
    assert state(ledger) == before
    machine.set(-ahead)
    assert queue.receive(None).count == 1


@pytest.mark.parametrize("step", [30, -30, 0])
def test_a_step_within_the_skew_and_any_time_that_passes_are_no_error(queue, machine, step):
    machine.advance(3 * DAY)
    machine.set(step)
    assert queue.receive(None).count == 2


def test_a_clock_that_is_hurried_for_weeks_is_no_step(queue, machine):
    for _ in range(100):
        machine.advance(60)
        machine.set(5)
        assert queue.counts().stored == 2


def test_what_another_owner_commits_explains_a_step_forward(queue, process, machine):
    """The machine slept, or was set right: who has started since goes by the new time."""
    machine.set(DAY)
    with pytest.raises(ClocksDisagree):
        queue.send("c")
    process("two").queue("jobs").send("d")
    machine.advance(60)
    assert all(queue.send(["e"])) and queue.counts().stored == 4


def test_what_this_owner_commits_explains_nothing(queue, process, machine):
    machine.set(DAY)
    process("one").queue("jobs").send("d")
    with pytest.raises(ClocksDisagree):
        queue.send("c")


def test_a_ledger_that_was_idle_for_days_is_used_again_by_a_process_that_has_just_started(queue, process, machine):
    machine.advance(3 * DAY)
    machine.restart("boot 2")
    mine = process("two").queue("jobs")
    assert mine.receive(None).count == 2 and all(mine.send(["c"]))


def expired(process, machine):
    """Messages that are expired by right, and the ledger of another process."""
    process().create_queue("brief", {"MessageRetentionPeriod": HOUR, "Lanes": 1}).send(["old"])
    machine.advance(2 * HOUR)
    process().queue("brief").send(["young"])


def segments(process):
    return process().store.engine.files()[1].num_rows


def test_what_is_old_is_marked_in_one_round_and_dropped_in_a_later_one(process, machine):
    expired(process, machine)
    assert process().upkeep().segments_dropped == 0
    machine.advance(299)
    assert process().upkeep().segments_dropped == 0, "an interval later only"
    machine.advance(1)
    assert process().upkeep().segments_dropped == 1
    assert segments(process) == 1
    assert [one.body for one in process().queue("brief").receive(None)] == ["young"]


def test_a_process_that_has_been_open_for_long_needs_no_mark(process, machine):
    expired(process, machine)
    ledger = process()
    machine.advance(300)
    assert ledger.upkeep().segments_dropped == 1
    assert segments(process) == 1 and MARK not in ledger.store.engine.layout("tasks").properties


@pytest.mark.parametrize("confirmed_by_another", [False, True])
def test_a_process_that_stands_still_behind_its_only_look_at_the_clock_has_looked_once(
    process, machine, monkeypatch, confirmed_by_another
):
    """It has just started with a wrong clock, or made a step that another owner with the same wrong clock confirms."""
    process().create_queue("jobs", {"Lanes": 1, "MessageRetentionPeriod": DAY}).send(["a", "b"])
    ledger = process("old") if confirmed_by_another else None
    machine.set(5 * DAY)
    if confirmed_by_another:
        process("two").create_queue("more").send("c")
    ledger = ledger or process()
    right = ledger.store.engine.layout

    def layout(table):
        machine.advance(ROUND)
        return right(table)

    monkeypatch.setattr(ledger.store.engine, "layout", layout)
    ledger.upkeep()
    machine.set(-5 * DAY)
    assert process().queue("jobs").receive(None).count == 2


@pytest.mark.parametrize("reboots", [False, True])
def test_one_round_by_a_clock_that_is_days_ahead_destroys_nothing(process, machine, reboots):
    """Whenever it comes: before the first right round, between two, or after them."""
    queue = process().create_queue("jobs", {"Lanes": 1, "MessageRetentionPeriod": DAY})
    queue.send([f"{n}" for n in range(3)])
    done = queue.receive(1)
    receipt = done.receipt_id
    done.delete()
    for wrong in (True, False, False, True, False, True, False):
        if reboots:
            machine.restart(f"boot {machine.clock()}")
        machine.advance(60)
        if wrong:
            machine.set(5 * DAY)
        process(keep_deleted_receipts=DAY).upkeep()
        if wrong:
            machine.set(-5 * DAY)
        machine.advance(ROUND)
    mine = process().queue("jobs")
    assert mine.counts().stored == 2 and mine.restore(receipt) == 1
    assert mine.receive(None).count == 3


def test_a_clock_that_returns_makes_receivable_again_what_it_had_expired(process, machine):
    """That it looked expired is recorded nowhere."""
    process().create_queue("jobs", {"Lanes": 1}).send(["a"])
    machine.set(5 * DAY)
    ahead = process("two").queue("jobs")
    assert ahead.counts().expired == 1 and ahead.receive(None).count == 0
    machine.set(-5 * DAY)
    assert process().queue("jobs").receive(None).count == 1


def test_on_another_machine_what_was_old_at_the_mark_is_dropped_and_what_became_old_since_is_marked(process, machine):
    expired(process, machine)
    process().upkeep()
    for boot in ("boot 2", "boot 3"):
        machine.restart(boot)
        machine.advance(ROUND)
        process().upkeep()
        mark = json.loads(process().store.engine.layout("tasks").properties[MARK])
        assert mark["at"] == machine.clock() and mark["boot"] == boot
    assert segments(process) == 1, "the younger one has expired too, and by the mark it has not been so for long"
    machine.restart("boot 4")
    machine.advance(ROUND)
    process().upkeep()
    assert segments(process) == 0


def test_a_commit_from_before_the_mark_that_came_after_it_contradicts_it(process, machine):
    """By the clocks of others: on this machine the clock is ahead for hours, and was started anew in between."""
    expired(process, machine)
    machine.restart("boot 2")
    machine.set(5 * DAY)
    process().upkeep()
    machine.set(-5 * DAY)
    machine.advance(60)
    process("two").queue("brief").send("right")
    machine.restart("boot 3")
    machine.set(5 * DAY)
    machine.advance(ROUND / 2)
    process().upkeep()
    assert segments(process) == 3
    machine.set(-5 * DAY)
    assert process().queue("brief").receive(None).count == 2


def test_a_mark_that_is_not_understood_confirms_nothing(process, machine):
    expired(process, machine)
    ledger = process()
    ledger.store.engine.configure("tasks", {MARK: '{"later": 1}'}, {})
    ledger.upkeep()
    assert segments(process) == 2
    assert json.loads(ledger.store.engine.layout("tasks").properties[MARK])["at"] == machine.clock()


def test_a_storage_with_a_clock_of_its_own_is_the_second_look(root, process, machine):
    expired(process, machine)
    kept = Settings(keep_deleted_receipts=1, open_segment_seconds=60)
    right = FrozenClock(machine.clock())
    more = {"clock": machine.clock, "passing": machine.passing(), "storage_clock": right, "settings": kept}
    ledger = Ledger.open(root, **more)
    machine.set(DAY)
    with pytest.raises(ClocksDisagree):
        ledger.upkeep()
    right.advance(DAY)
    ledger.upkeep()
    machine.advance(10)
    right.advance(10)
    ledger.upkeep()
    assert segments(process) == 0


def test_files_that_look_old_are_not_removed_in_the_first_round(process, machine, monkeypatch):
    ledger, vacuumed = process(), []
    monkeypatch.setattr(ledger.store.engine, "vacuum", vacuumed.append)
    ledger.upkeep()
    assert vacuumed == []
    machine.advance(300)
    ledger.upkeep()
    assert "messages" in vacuumed


def test_which_commits_of_others_explain_a_step():
    minute, now = 60_000, 1_700_000_000_000
    assert instants.explains([now - minute], now, now - 60 * minute, 30)
    assert not instants.explains([now - 11 * minute], now, now - 60 * minute, 30), "too long ago"
    assert not instants.explains([now - minute], now, now - minute, 30), "as expected: it says nothing of now"
    assert not instants.explains([now + minute], now, now - 60 * minute, 30), "it is not of this time"
    assert not instants.explains([now], now, now + 60 * minute, 30), "back: it may be from before the step"


@pytest.fixture
def ahead(queue, process, machine):
    """The queue `jobs` of a right process, after one that had just started received there by a clock 2 days ahead."""
    machine.set(2 * DAY)
    process("two").queue("jobs").receive(1)
    machine.set(-2 * DAY)
    return queue


@pytest.mark.parametrize("name", ["jobs", "jobs.fifo"])
def test_a_send_is_refused_where_a_receive_is(ledger, process, machine, name):
    """Else it is answered, and has expired before anybody may receive it."""
    fifo = name.endswith(".fifo")
    group = {"message_group_id": "a"} if fifo else {}
    queue = ledger.create_queue(name, {"FifoQueue": True, "ContentBasedDeduplication": True} if fifo else {})
    queue.send(["a"], **group)
    machine.set(2 * DAY)
    process("two").queue(name).receive(1)
    machine.set(-2 * DAY)
    before = state(ledger)
    for sender in (process(), ledger):
        with pytest.raises(ClocksDisagree, match="repair --clock"):
            sender.queue(name).receive(1)
        with pytest.raises(ClocksDisagree, match="the last commit is ahead"):
            sender.queue(name).send(["b"], **group)
    assert state(ledger) == before


def test_a_process_that_only_sends_notices_within_a_minute(ahead, ledger, machine):
    assert all(ahead.send(["within the minute"]))
    machine.advance(61)
    with pytest.raises(ClocksDisagree):
        ahead.send(["c"])


def test_a_send_looks_at_the_lanes_once_a_minute_and_only_after_a_commit(queue, ledger, machine, monkeypatch):
    engine, loads = ledger.store.engine, []
    load = engine.load
    monkeypatch.setattr(engine, "load", lambda table, where: loads.append(table) or load(table, where))
    for seconds, commits, expected in ((0, 0, 0), (59, 0, 0), (61, 0, 0), (61, 1, 1), (1, 0, 0), (61, 0, 0)):
        machine.advance(seconds)
        if commits:
            queue.receive(1, visibility_timeout=0)
        loads.clear()
        queue.send("x")
        assert loads.count("visibility") == expected


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


def test_an_upkeep_by_a_clock_that_is_not_confirmed_moves_no_queues_time(ledger, queue, process, machine):
    """It removes rows about messages that are gone all the same, and a right clock is not refused afterwards."""
    queue.receive(None).delete()
    # As an upkeep that died between its two steps leaves it.
    ledger.store.engine.delete("messages", Where(queue.access.record().id).sql(), {})
    machine.set(2 * DAY)
    assert process("two").upkeep().rows_joined == 1
    machine.set(-2 * DAY)
    assert all(queue.send(["c"])) and queue.receive(None).count == 1 and ledger.repair_clock() == []


def test_a_right_process_that_has_been_open_for_long_removes_a_mark_of_the_future(process, machine):
    """Else the wrong clock, should it come back, would find its own mark, and be confirmed by it."""
    expired(process, machine)
    right = process()
    machine.advance(300)
    machine.set(5 * DAY)
    process("two").upkeep()
    machine.set(-5 * DAY)
    right.upkeep()
    machine.set(5 * DAY)
    machine.advance(ROUND / 2)
    process("two").upkeep()
    machine.set(-5 * DAY)
    assert [message.body for message in process().queue("brief").receive(None)] == ["young"]


def test_an_upkeep_by_a_clock_that_is_behind_drops_and_ends_nothing_and_says_so(process, machine, caplog):
    """What it drops it judges by an earlier instant than a right one would."""
    expired(process, machine)
    queue = process().create_queue("jobs", {"Lanes": 1, "VisibilityTimeout": 3 * HOUR})
    queue.send(["held", "done", "free"])
    held, done = queue.receive(1), queue.receive(1)
    done.delete()
    process().upkeep()
    machine.set(-2 * HOUR)
    behind = process("behind")
    caplog.clear()
    assert behind.upkeep().segments_dropped == 0
    assert "this machine's clock is 7200 s behind the clock of an earlier upkeep" in caplog.text
    assert behind.health().clocks.keys() == {"jobs"}, "its verbs are refused"
    with pytest.raises(ClocksDisagree):
        behind.queue("jobs").receive(1)
    machine.advance(300)
    behind.upkeep()
    machine.set(2 * HOUR)
    right = process()
    counts = right.queue("jobs").counts()
    assert (counts.visible, counts.in_flight, counts.deleted) == (1, 1, 1)
    assert right.queue("jobs").restore(done.receipt_id) == 1 and held.extend(60).messages == 1
    assert [message.body for message in right.queue("brief").receive(None)] == ["young"]
    machine.advance(300)
    assert right.upkeep().segments_dropped == 1, "which the other upkeep held up, and did not prevent"


def test_a_round_that_goes_by_a_mark_moves_no_queues_time_beyond_it(process, machine):
    expired(process, machine)
    process().upkeep()
    machine.restart("boot 2")
    machine.advance(ROUND)
    marked = machine.clock() - ROUND * 1_000
    machine.set(2 * DAY)
    ledger = process()
    assert ledger.upkeep().segments_dropped == 1, "what was old at the mark"
    where = Where(ledger.queue("brief").access.record().id)
    times = ledger.store.engine.load("visibility", where).rows["received_at"].drop_null().to_pylist()
    assert all(time.timestamp() * 1_000 <= marked for time in times)


@pytest.fixture
def lengthened_ahead(ledger, queue, process, machine):
    """The queue `jobs`, which keeps a message for a day, after a clock 10 days ahead has made that two."""
    queue.set_attributes({"MessageRetentionPeriod": DAY})
    machine.set(10 * DAY)
    process("two").queue("jobs").set_attributes({"MessageRetentionPeriod": 2 * DAY})
    machine.set(-10 * DAY)
    return queue


def test_nothing_is_sent_where_it_had_expired_by_a_clock_that_was_ahead(lengthened_ahead, ledger, process):
    """A clock notes, with a longer retention, what had expired until then: this one noted the next nine days."""
    (found,) = ledger.health().clocks.items()
    assert found[0] == "jobs" and "repair --clock" in found[1]
    before = state(ledger)
    for verb in (lambda q: q.send(["c"]), lambda q: q.receive(1), lambda q: q.counts(), lambda q: q.purge()):
        with pytest.raises(ClocksDisagree, match=r"changed by a clock that is ahead.*repair --clock"):
            verb(process().queue("jobs"))
    assert state(ledger) == before


def test_an_upkeep_drops_nothing_that_had_expired_by_a_clock_that_was_ahead(lengthened_ahead, process, machine):
    for boot in ("boot 2", "boot 3", "boot 4"):
        machine.restart(boot)
        machine.advance(ROUND)
        process().upkeep()
    process().repair_clock()
    assert process().queue("jobs").receive(None).count == 2


def test_a_repair_brings_back_what_had_expired_by_a_clock_that_was_ahead(lengthened_ahead, ledger, machine):
    (found,) = ledger.repair_clock(dry_run=True)
    assert (found.queue, found.changed_ahead, found.ahead, found.lanes) == ("jobs", True, 10 * DAY, 0)
    assert ledger.repair_clock() == [found] and ledger.repair_clock() == [] and not ledger.health().clocks
    assert all(lengthened_ahead.send(["c"])) and lengthened_ahead.receive(None, visibility_timeout=0).count == 3
    assert lengthened_ahead.attributes()["LastModifiedTimestamp"] == str(machine.clock() // 1_000)
    machine.advance(2 * DAY)
    assert lengthened_ahead.counts().stored == 0


def test_a_message_is_not_redriven_to_where_it_had_expired_by_a_clock_that_was_ahead(ledger, process, machine):
    dead = ledger.create_queue("dead", {"MessageRetentionPeriod": DAY})
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
    queue = ledger.create_queue("work", {"RedrivePolicy": policy})
    queue.send(["a"])
    queue.receive(1, visibility_timeout=0)
    machine.set(10 * DAY)
    process("two").queue("dead").set_attributes({"MessageRetentionPeriod": 2 * DAY})
    machine.set(-10 * DAY)
    with pytest.raises(ClocksDisagree):
        process().queue("work").receive(1)
    ledger.repair_clock()
    assert queue.receive(1).count == 0 and dead.counts().visible == 1


def test_a_shorter_retention_notes_nothing_and_what_had_expired_stays_expired(ledger, queue, machine):
    machine.advance(2 * DAY)
    queue.set_attributes({"MessageRetentionPeriod": DAY})
    assert queue.access.record().expired_before == -1 and queue.counts().expired == 2
    queue.set_attributes({"MessageRetentionPeriod": 4 * DAY})
    assert queue.counts().expired == 2


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


def test_an_upkeep_by_a_mark_drops_nothing_where_the_clock_ahead_has_committed_too(ledger, queue, process, machine):
    """Whose lanes' time is as wrong as what it has noted."""
    queue.set_attributes({"MessageRetentionPeriod": DAY})
    queue.receive(1).delete()
    queue.send(["c"])
    machine.advance(HOUR)
    process().upkeep()
    machine.set(10 * DAY)
    other = process("two").queue("jobs")
    other.set_attributes({"MessageRetentionPeriod": 2 * DAY})
    other.receive(1)
    machine.set(-10 * DAY)
    for boot in ("boot 2", "boot 3", "boot 4"):
        machine.restart(boot)
        machine.advance(HOUR)
        process().upkeep()
    process().repair_clock()
    assert process().queue("jobs").receive(None).count == 2


@pytest.mark.parametrize("verb", ["upkeep", "longer"])
def test_what_a_right_clock_notes_is_believed_whoever_made_the_queue(ledger, process, machine, verb):
    machine.set(10 * DAY)
    process("two").create_queue("jobs", {"Lanes": 1, "MessageRetentionPeriod": HOUR})
    machine.set(-10 * DAY)
    queue = process().queue("jobs")
    queue.send(["a"])
    machine.advance(2 * HOUR)
    queue.send(["b"])
    if verb == "upkeep":
        process().upkeep()
        machine.advance(2 * ROUND)
        queue.send(["c"])
        process().upkeep()
        assert queue.access.record().expired_before >= 0
    else:
        queue.set_attributes({"MessageRetentionPeriod": DAY})
    assert queue.receive(1).count == 1 and queue.send("d") and not process().health().clocks
    # Another attribute by a clock ahead has nothing to do with it either.
    machine.set(10 * DAY)
    process("two").queue("jobs").set_attributes({"DelaySeconds": 1})
    machine.set(-10 * DAY)
    assert queue.send("e") and not process().health().clocks


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


def test_a_name_that_a_clock_ahead_has_deleted_is_free(process, machine):
    process().create_queue("brief", {"Limits": "SQS"})
    machine.set(10 * DAY)
    process("two").delete_queue("brief")
    machine.set(-10 * DAY)
    assert process().create_queue("brief", {"Limits": "SQS"}).counts().stored == 0


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


def test_a_round_that_goes_by_a_mark_leaves_to_others_what_the_engines_judge_by_the_machines_clock(
    process, machine, monkeypatch
):
    ledger = process()
    ledger.create_queue("jobs", {"Lanes": 1})
    ledger.upkeep()
    machine.restart("boot 2")
    machine.advance(ROUND)
    machine.set(3 * DAY)
    late, vacuumed = process(), []
    monkeypatch.setattr(late.store.engine, "vacuum", vacuumed.append)
    late.upkeep()
    assert vacuumed == []


def test_one_queue_whose_time_is_ahead_stops_no_round_of_the_others(ledger, queue, process, machine, caplog):
    """Both have a receipt to forget."""
    other = ledger.create_queue("other", {"Lanes": 1})
    other.send(["a", "b"])
    for one in (queue, other):
        one.receive(1).delete()
    machine.set(2 * DAY)
    process("two").queue("jobs").receive(1)
    machine.set(-2 * DAY)
    machine.advance(ROUND)
    assert ledger.upkeep().rows_joined == 0
    (told,) = (one.getMessage() for one in caplog.records if "is not tidied" in one.getMessage())
    assert "the queue jobs is not tidied" in told and "repair --clock" in told
    rows = ledger.store.engine.load("visibility", Where(other.access.record().id)).rows
    assert rows["receipt_id"].to_pylist() == [None] * rows.num_rows, "the other one's was forgotten"


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


def test_a_clock_that_is_behind_makes_no_retention_longer(queue, process, machine):
    queue.set_attributes({"MessageRetentionPeriod": HOUR})
    machine.advance(4 * DAY)
    queue.send(["c"])
    queue.receive(1)
    machine.set(-4 * DAY)
    with pytest.raises(ClocksDisagree):
        process("two").queue("jobs").set_attributes({"MessageRetentionPeriod": 14 * DAY})
    machine.set(4 * DAY)
    assert queue.counts().expired == 2


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


@pytest.mark.parametrize(("days", "vacuums"), [(0.5, 5), (3, 0)])
def test_rounds_that_are_each_on_another_machine_vacuum_too(process, machine, monkeypatch, days, vacuums):
    """Where the clock is less than a day behind the mark; further on, it may be ahead."""
    process().create_queue("jobs", {"Lanes": 1})
    process().upkeep()
    machine.restart("boot 2")
    machine.advance(days * DAY)
    late, vacuumed = process(), []
    monkeypatch.setattr(late.store.engine, "vacuum", vacuumed.append)
    late.upkeep()
    assert len(vacuumed) == vacuums


def test_a_task_with_a_rate_goes_on_at_once_behind_a_repair():
    task = MoveTask("t", "dead", None, 1, 10 * DAY * 1_000, 10 * DAY * 1_000 + 900_000, 5_000, moved=900)
    right = move_task.put_back(task, DAY * 1_000)
    assert right.updated_at == DAY * 1_000 and move_task.allowance(right, DAY * 1_000) == 1
