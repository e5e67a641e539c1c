"""Upkeep that runs itself: when it looks and works, one process at a time, and what ends it."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue, StorageFailed, TableAltered
from ledger.rules.upkeep import AGE_DUE, COMMITS_DUE, COMMITS_OVERDUE, Round
from ledger.store.delta.commit.locks import TableLock
from ledger.store.delta.verbs.rounds import LOADED, OverdueNotice
from ledger.upkeep_daemon import (
    LEASE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    OLD_LEASE_SECONDS,
    Upkeeper,
    describe_round,
    parse_period,
)
from tests.sources import CHECKOUT

PERIOD = 300.0


@pytest.fixture
def ledger(open_ledger):
    return open_ledger()


@pytest.fixture
def queue(ledger):
    return ledger.create_queue("jobs", {"Lanes": 1})


def work(queue):
    """Three commits that upkeep has to go over: of `messages` one, and two of `visibility`."""
    queue.send("a")
    queue.receive(1).delete()


@pytest.fixture
def upkeeper(open_ledger, clock):
    """Makes one with a ledger of its own, as another process has it. Its passing time is that of the test's clock."""

    def one(**more) -> Upkeeper:
        opened = open_ledger()
        return Upkeeper(opened, PERIOD, passing=clock.passing, jitter=lambda: 0.5, **more)

    return one


def versions(ledger):
    return {table: ledger.store.engine.version(table) for table in LOADED}


# The record.


@pytest.mark.soak_variants("spark*")
def test_a_round_records_how_far_it_went_and_when_it_began(queue, open_ledger, clock, engine):
    work(queue)
    ledger = open_ledger(engine)
    assert ledger.rounds().look().last is None
    assert ledger.rounds().look().load(clock()) == (3, None)
    ledger.upkeep()
    look = ledger.rounds().look()
    assert look.last == Round(**versions(ledger), at=clock())
    assert (look.load(clock()), look.is_held) == ((0, 0.0), False)
    clock.advance(10)
    work(queue)
    assert ledger.rounds().look().load(clock()) == (3, 10.0)


def test_what_lands_while_a_round_runs_is_for_the_next_one(ledger, queue, open_ledger, clock):
    work(queue)
    others = open_ledger().queue("jobs")
    seen = []

    def beside(step):
        if not seen:
            seen.append(step)
            work(others)

    ledger.upkeep(report=beside)
    assert ledger.rounds().look().load(clock()).commits >= 3


def test_a_round_that_had_nothing_to_do_records_nothing_for_an_hour(ledger, queue, clock):
    work(queue)
    ledger.upkeep()
    version = ledger.store.engine.version("tasks")
    clock.advance(AGE_DUE - 1)
    ledger.upkeep()
    assert ledger.store.engine.version("tasks") == version
    clock.advance(1)
    ledger.upkeep()
    assert ledger.store.engine.version("tasks") == version + 1


def test_a_round_that_only_marked_what_is_old_is_not_recorded(queue, open_ledger, clock):
    work(queue)
    opened = open_ledger(mark_seconds=300)
    opened.upkeep()
    assert opened.rounds().look().last is None
    clock.advance(301)
    opened.upkeep()
    assert opened.rounds().look().last is not None


def test_a_look_at_an_idle_ledger_asks_for_three_versions_and_nothing_else(ledger, queue, clock, monkeypatch):
    work(queue)
    ledger.upkeep()
    rounds, engine, asked = ledger.rounds(), ledger.store.engine, []
    rounds.look()
    for name in ("transaction_version", "history", "layout", "version", "load"):
        monkeypatch.setattr(type(engine), name, lambda *_, name=name: asked.append(name))
    newest = engine.newest_versions
    monkeypatch.setattr(
        type(engine), "newest_versions", lambda self, tables: asked.extend(tables) or newest(tables), raising=False
    )
    assert rounds.look().load(clock()) == (0, 0.0)
    assert asked == ["messages", "visibility", "tasks"]


def test_a_failure_to_record_fails_no_round(ledger, queue, monkeypatch, caplog):
    work(queue)

    def fails(*_):
        raise StorageFailed("tasks", "the disk is full")

    monkeypatch.setattr(type(ledger.store.engine), "mark", fails)
    with caplog.at_level(logging.WARNING, "ledger.upkeep"):
        assert ledger.upkeep().receipts_filled == 2
    assert "could not be recorded" in caplog.text and "the disk is full" in caplog.text


# One process at a time.


def test_a_round_runs_when_it_is_due_and_not_before(queue, upkeeper, clock):
    work(queue)
    one = upkeeper()
    assert one.run_if_due().receipts_filled == 2
    work(queue)
    assert one.run_if_due() is None
    clock.advance(AGE_DUE)
    assert one.run_if_due().receipts_filled == 2


def test_of_two_on_one_ledger_only_one_works_at_a_time(queue, open_ledger, upkeeper, clock):
    work(queue)
    first, second, found = upkeeper(), upkeeper(), []

    def step():
        found.append(second.run_if_due())
        return False

    assert first.run_if_due(step) is not None
    assert len(found) > 3 and not any(found)
    clock.advance(AGE_DUE)
    work(queue)
    assert second.run_if_due() is not None
    assert first.run_if_due() is None


def test_of_two_that_want_the_lease_at_once_one_gets_it(queue, open_ledger, clock, engine):
    work(queue)
    first, second = open_ledger(engine).rounds(), open_ledger().rounds()
    looks = first.look(), second.look()
    assert [first.take(looks[0], clock()), second.take(looks[1], clock())] == [True, False]
    first.give_back(clock())
    look = second.look()
    assert (look.lease, look.is_held, look.last) == (1, False, None)
    assert second.take(look, clock())


def test_the_lease_of_a_holder_that_died_passes_and_another_takes_over(queue, open_ledger, upkeeper, clock, caplog):
    work(queue)
    dead = open_ledger().rounds()
    assert dead.take(dead.look(), clock())
    one = upkeeper()
    assert one.run_if_due() is None
    clock.advance(LEASE_SECONDS - 1)
    assert one.run_if_due() is None
    clock.advance(1)
    with caplog.at_level(logging.WARNING, "ledger.upkeep"):
        assert one.run_if_due() is not None
    assert "has not ended its round" in caplog.text
    assert open_ledger().rounds().look().is_held is False


def test_a_process_that_looks_once_takes_over_from_a_holder_that_died_long_ago(queue, open_ledger, upkeeper, clock):
    """Nobody but cron looks here: each look is a new process's first one, and no round ever ran again."""
    work(queue)
    dead = open_ledger().rounds()
    assert dead.take(dead.look(), clock())
    clock.advance(OLD_LEASE_SECONDS)
    assert upkeeper().run_if_due() is None
    clock.advance(1)
    assert upkeeper().run_if_due(once=False) is None, "a process that looks again goes by the time that passes"
    assert upkeeper().run_if_due() is not None and open_ledger().rounds().look().is_held is False


def test_a_lease_that_others_took_meanwhile_is_awaited_anew(queue, open_ledger, upkeeper, clock):
    work(queue)
    others = open_ledger().rounds()
    others.take(others.look(), clock())
    one = upkeeper()
    assert one.run_if_due() is None
    clock.advance(LEASE_SECONDS - 1)
    others.give_back(clock())
    others.take(others.look(), clock())
    clock.advance(2)
    assert one.run_if_due() is None


def test_a_slow_holder_frees_no_lease_but_its_own(ledger, queue, open_ledger, clock):
    work(queue)
    slow, quick = ledger.rounds(), open_ledger().rounds()
    slow.take(slow.look(), clock())
    assert quick.take(quick.look(), clock())
    slow.give_back(clock())
    assert quick.look().is_held
    quick.give_back(clock())
    assert not quick.look().is_held


def test_a_round_that_is_recorded_for_the_future_keeps_no_later_one_away(queue, upkeeper, open_ledger, clock):
    work(queue)
    rounds = open_ledger().rounds()
    rounds.record(rounds.look(), clock() + 365 * 86_400_000)
    assert upkeeper().run_if_due() is not None
    assert open_ledger().rounds().look().last.at == clock()


# The loop.


class Waits:
    """Waits without waiting: the clock moves on instead. Ends the loop after so many waits."""

    def __init__(self, clock, most):
        self.clock, self.most, self.pauses = clock, most, []

    def __call__(self, seconds):
        self.pauses.append(seconds)
        self.clock.advance(seconds)
        return len(self.pauses) > self.most


def test_the_loop_looks_each_period_and_reports_what_it_did(queue, upkeeper, clock):
    work(queue)
    did = []
    waits = Waits(clock, 14)
    upkeeper(report=lambda done: did.append(describe_round(done))).run(waits, lambda: False, first=7.0)
    assert waits.pauses == [7.0, *[PERIOD] * 14]
    # The second round, an hour later, has the first one's own row to join.
    assert did[0] == "2 receipts filled"


def test_pauses_differ_by_a_tenth_at_most_so_that_processes_part(ledger):
    found = [Upkeeper(ledger, 100.0, jitter=lambda at=at: at).look() for at in (0.0, 0.5, 1.0)]
    assert found == pytest.approx([90.0, 100.0, 110.0])


def test_a_failure_is_logged_and_tried_again_after_longer_pauses(queue, upkeeper, clock, monkeypatch, caplog):
    work(queue)
    one, upkeep = upkeeper(), Ledger.upkeep

    def fails(*_):
        raise StorageFailed("messages", "the disk is full")

    monkeypatch.setattr(Ledger, "upkeep", fails)
    with caplog.at_level(logging.WARNING, "ledger.upkeep"):
        assert [one.look() for _ in range(5)] == [600.0, 1_200.0, 2_400.0, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 5
    assert "the disk is full" in caplog.text and "tried again in 600 s" in caplog.text
    monkeypatch.setattr(Ledger, "upkeep", upkeep)
    assert one.look() == PERIOD and one.run_if_due() is None


def test_what_no_retry_mends_is_logged_as_an_error_each_time_and_ends_nothing(queue, upkeeper, monkeypatch, caplog):
    work(queue)

    def fails(*_):
        raise TableAltered("visibility", "it has deletion vectors", "DROP FEATURE")

    monkeypatch.setattr(Ledger, "upkeep", fails)
    one = upkeeper()
    with caplog.at_level(logging.WARNING, "ledger.upkeep"):
        one.look()
        one.look()
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    assert "no retry mends" in caplog.text and "deletion vectors" in caplog.text


def test_an_error_of_ours_ends_nothing_either(queue, upkeeper, monkeypatch, caplog):
    work(queue)
    monkeypatch.setattr(Ledger, "upkeep", lambda *_: 1 / 0)
    with caplog.at_level(logging.WARNING, "ledger.upkeep"):
        assert upkeeper().look() == 2 * PERIOD
    assert "ZeroDivisionError" in caplog.text


def test_one_that_is_told_to_end_ends_between_two_steps_and_gives_the_lease_back(queue, upkeeper, open_ledger, clock):
    work(queue)
    asked = []

    def is_ended():
        asked.append(open_ledger().rounds().look().is_held)
        return len(asked) == 3

    waits = Waits(clock, 1)
    upkeeper().run(waits, is_ended)
    assert asked == [True, True, True]
    look = open_ledger().rounds().look()
    assert (look.is_held, look.last) == (False, None)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5_400), ("24h", 86_400)])
def test_periods_are_read(text, seconds):
    assert parse_period("every", text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0.5", "25h", "5 m", "m", "-5", "5d", "1e3"])
def test_other_periods_are_refused(text):
    with pytest.raises(InvalidParameterValue, match="every"):
        parse_period("every", text)


# Workers and senders.


def test_a_process_says_once_that_upkeep_is_overdue(ledger, queue, clock, caplog):
    work(queue)
    ledger.upkeep()
    look, asked = ledger.rounds().look(), []

    def looked():
        asked.append(1)
        return look

    notice = OverdueNotice(looked, lambda: 86_400)
    with caplog.at_level(logging.WARNING, "ledger.upkeep"):
        notice.committed("visibility", COMMITS_OVERDUE - 1, clock())
        notice.committed("receipts", COMMITS_OVERDUE, clock())
        assert not asked
        # Others ran upkeep: there is nothing to say, and nothing is asked again before it could be due.
        notice.committed("visibility", COMMITS_OVERDUE, clock())
        notice.committed("visibility", COMMITS_OVERDUE + COMMITS_DUE - 1, clock())
        assert len(asked) == 1 and not caplog.records
        look.versions["visibility"] += COMMITS_OVERDUE
        notice.committed("visibility", COMMITS_OVERDUE + COMMITS_DUE, clock())
        notice.committed("visibility", 9 * COMMITS_OVERDUE, clock())
    assert len(asked) == 2
    (record,) = caplog.records
    assert "upkeep is overdue: 20,000 commits" in record.message and "`ledger upkeep`" in record.message


def test_a_verb_succeeds_where_nobody_knows_whether_upkeep_is_overdue(clock, caplog):
    def fails():
        raise StorageFailed("tasks", "gone")

    notice = OverdueNotice(fails, lambda: 86_400)
    with caplog.at_level(logging.WARNING, "ledger.upkeep"):
        notice.committed("messages", COMMITS_OVERDUE, clock())
    assert not caplog.records


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_senders_and_workers_say_it(ledger, queue, monkeypatch, caplog, verb):
    monkeypatch.setattr("ledger.store.delta.verbs.rounds.COMMITS_OVERDUE", 1)
    monkeypatch.setattr("ledger.rules.upkeep.COMMITS_OVERDUE", 1)
    queue.send("a")
    noticed = Ledger.open(ledger.store.engine.place("queues").removesuffix("/queues"), clock=ledger.clock).queue("jobs")
    with caplog.at_level(logging.WARNING, "ledger.upkeep"):
        getattr(noticed, verb)(*["b"] * (verb == "send"))
        noticed.send("c")
    assert [record.message.partition(":")[0] for record in caplog.records] == ["upkeep is overdue"]


# Real processes.


class Daemon:
    """`ledger upkeep --every`, in a process."""

    def __init__(self, root, every="1s"):
        command = [sys.executable, "-m", "ledger.cli", "upkeep", "--every", every, "--root", root]
        environment = {**os.environ, "LEDGER_LOG": "info"}
        self.process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stderr=subprocess.PIPE, text=True)
        self.said = ""

    def until(self, text):
        while text not in self.said:
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line

    def end(self, number):
        self.process.send_signal(number)
        self.said += self.process.communicate(timeout=60)[1]
        return self.process.returncode


@pytest.fixture
def real(root):
    """The test's ledger by the machine's clock, for processes."""
    queue = Ledger.open(root).create_queue("jobs", {"Lanes": 1})
    work(queue)
    return queue


@pytest.mark.soak_variants("2")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_ends_well_when_it_is_told_to(root, real, number):
    daemon = Daemon(root, "5400")
    daemon.until("2 receipts filled")
    assert "looks every 90m whether upkeep of" in daemon.said
    assert daemon.end(number) == 0
    assert "ended, as it was told to" in daemon.said and "Traceback" not in daemon.said
    assert Ledger.open(root).rounds().look().is_held is False


def test_another_takes_over_from_a_process_that_was_killed_in_its_round(root, real, upkeeper, clock):
    rounds = Ledger.open(root).rounds()
    # Its round waits for this lock.
    with TableLock(Path(root) / "_locks", "receipts").exclusive():
        daemon = Daemon(root)
        daemon.until("a round of upkeep begins")
        assert daemon.end(signal.SIGKILL) == -signal.SIGKILL
    assert rounds.look().is_held
    passed = [0.0]
    one = Upkeeper(Ledger.open(root), PERIOD, passing=lambda: passed[0])
    assert one.run_if_due() is None
    passed[0] = LEASE_SECONDS
    assert one.run_if_due() is not None
    assert not rounds.look().is_held
