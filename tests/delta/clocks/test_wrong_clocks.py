"""A wall clock that is set while time passes as ever: what is refused, and that one wrong look destroys nothing."""

import json

import pytest

from ledger import Ledger
from ledger.errors import ClocksDisagree
from ledger.rules import instants
from ledger.settings import Settings
from ledger.store.delta.model.tables import Where
from ledger.store.delta.verbs.tidying import MARK
from tests.clock import FrozenClock
from tests.delta.clocks.machine import DAY, HOUR, ROUND, rounds_on_other_boots, state


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
    rounds_on_other_boots(process, machine)
    process().repair_clock()
    assert process().queue("jobs").receive(None).count == 2


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
    rounds_on_other_boots(process, machine)
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


def test_a_name_that_a_clock_ahead_has_deleted_is_free(process, machine):
    process().create_queue("brief", {"Limits": "SQS"})
    machine.set(10 * DAY)
    process("two").delete_queue("brief")
    machine.set(-10 * DAY)
    assert process().create_queue("brief", {"Limits": "SQS"}).counts().stored == 0


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
