"""How early a lease can be stolen by a clock that is ahead, what lanes notice of it, and what the storage's clock does.

Of clocks that are behind, see test_clocks.py.
"""

import pytest

from ledger import Ledger
from ledger.errors import ClocksDisagree
from ledger.settings import Settings
from ledger.store.delta.commit.clocks import INTERVAL, StorageClock, make_probe
from tests.clock import FrozenClock

SKEW = 30.0


@pytest.fixture
def driver(root, clock):
    """Opens the ledger as a driver does whose clock is so many seconds ahead; answers the ledger and its clock."""

    def open_one(ahead=0.0, **more):
        its = FrozenClock(clock.now)
        its.advance(ahead)
        settings = Settings(maximum_clock_skew=SKEW)
        return Ledger.open(root, engine="delta-rs", clock=its, settings=settings, **more), its

    return open_one


def state(ledger):
    engine = ledger.store.engine
    return engine.version("visibility"), engine.version("messages"), engine.version("queues")


@pytest.fixture
def queue(driver):
    made = driver()[0].create_queue("jobs", {"Lanes": 1})
    made.send(["a", "b"])
    return made


@pytest.mark.parametrize("ahead", [0.0, 1.0, SKEW / 2, SKEW])
def test_a_lease_is_stolen_early_by_no_more_than_the_clocks_are_apart(driver, queue, ahead):
    """Somebody `ahead` seconds ahead may have it at its 100 seconds by its own clock, which is that much too early."""
    assert queue.receive(None, 100).count == 2
    other, its = driver(ahead)
    truly = 100 - ahead
    its.advance(truly - 0.001)
    assert not other.queue("jobs").receive(None)
    its.advance(0.001)
    assert other.queue("jobs").receive(None).count == 2


def test_a_driver_that_is_behind_decides_by_the_last_commit_and_not_by_its_clock(driver, queue, clock):
    behind, its = driver(-SKEW)
    ahead = queue.receive(1, 100)
    claim = behind.queue("jobs").receive(1, 100)
    assert claim.deadline == ahead.deadline, "now never goes behind the last commit's time"
    its.advance(10)
    assert behind.queue("jobs").receive(1, 100).count == 0
    assert claim.extend(50).messages == 1
    assert (
        behind.queue("jobs").peek(claim.messages()[0].message_id).visible_at.timestamp() * 1_000 == clock.now + 50_000
    )


def test_lanes_alone_do_not_notice_a_driver_that_is_ahead_but_those_who_follow_it_do(driver, queue):
    far, _ = driver(1_000)
    assert queue.receive(None, 100).count == 2
    assert far.queue("jobs").receive(None, 100).count == 2, (
        "it steals the lease: nothing recorded tells that it is wrong"
    )
    with pytest.raises(ClocksDisagree):
        queue.receive(None)


def test_held_against_the_storage_a_driver_that_is_ahead_is_refused_at_opening(driver, clock):
    with pytest.raises(ClocksDisagree, match=r"the storage's clock says.*at most 15\.0 s"):
        driver(SKEW / 2 + 0.001, storage_clock=clock)
    with pytest.raises(ClocksDisagree):
        driver(-SKEW / 2 - 0.001, storage_clock=clock)
    for ahead in (SKEW / 2, -SKEW / 2):
        driver(ahead, storage_clock=clock)


@pytest.mark.parametrize("verb", ["receive", "send"])
def test_a_clock_that_goes_wrong_later_is_noticed_before_a_commit(driver, queue, clock, verb, monkeypatch):
    passed = [0.0]
    monkeypatch.setattr(StorageClock.__init__, "__defaults__", (lambda: passed[0],))
    ledger, its = driver(0.0, storage_clock=clock)
    jobs = ledger.queue("jobs")
    its.advance(SKEW)
    passed[0] = INTERVAL - 1
    jobs.send("not looked at yet")
    passed[0] = INTERVAL
    before = state(ledger)
    for _ in range(2):
        with pytest.raises(ClocksDisagree):
            jobs.receive(1) if verb == "receive" else jobs.send("c")
    assert state(ledger) == before
    its.now = clock.now
    assert jobs.receive(None).count == 2
    its.advance(SKEW)
    clock.advance(SKEW)
    assert jobs.receive(None).count == 3, "sent by a clock that was ahead, a message is there when others have its time"


def test_the_storage_is_asked_once_in_ten_minutes_and_again_after_a_refusal(clock):
    asked, passed, its = [], [0.0], FrozenClock(clock.now)

    def storage():
        asked.append(passed[0])
        return clock.now

    clocks = StorageClock(its, storage, SKEW, lambda: passed[0])
    for passed[0] in (0.0, 1.0, INTERVAL - 0.1, INTERVAL, INTERVAL + 1):
        clocks.check()
    assert asked == [0.0, INTERVAL]
    its.advance(SKEW)
    passed[0] = 3 * INTERVAL
    for _ in range(2):
        with pytest.raises(ClocksDisagree):
            clocks.check()
    assert asked[2:] == [3 * INTERVAL] * 2


def test_a_slow_storage_is_not_taken_for_a_wrong_clock(clock):
    its = FrozenClock(clock.now)

    def slow():
        told = its.now
        its.advance(10 * SKEW)
        return told

    StorageClock(its, slow, SKEW).check()


def test_a_local_path_tells_the_time_and_leaves_nothing_behind(tmp_path):
    from ledger.clock import system_clock

    before = system_clock()
    told = make_probe(tmp_path / "_locks")()
    # The kernel notes a file's time by a clock that ticks every few milliseconds.
    assert before - 1_000 <= told <= system_clock() + 1_000
    assert list((tmp_path / "_locks").iterdir()) == []


def test_the_machine_s_own_clock_is_held_against_a_local_path_and_a_test_s_is_not(root, monkeypatch):
    from ledger.store.delta import opening

    asked = []
    monkeypatch.setattr(opening, "make_probe", lambda folder: lambda: asked.append(folder) or 0)
    Ledger.open(root, engine="delta-rs", clock=FrozenClock())
    assert asked == []
    with pytest.raises(ClocksDisagree):
        Ledger.open(root, engine="delta-rs")
    assert [folder.name for folder in asked] == ["_locks"]
