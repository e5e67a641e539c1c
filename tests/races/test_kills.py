"""A worker killed in the middle of a verb: nothing is half done, nothing lost, and its retry finds its claim again."""

import signal

import pytest


def killed(race, verb, at):
    """A process that died in `verb` at the step `at`."""
    process = race.start("doomed", "doomed", verb=verb, at=at)
    _, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, err


def bodies(claim):
    return {message.body for message in claim}


def test_killed_before_its_receive_was_committed_it_holds_nothing(make_race):
    race = make_race(20, sends=2)
    killed(race, "receive", "chosen")
    assert (race.queue.counts().visible, race.queue.counts().in_flight) == (20, 0)
    assert race.queue.receive(None, 60, attempt_id="job").count == 20


def test_killed_before_its_receive_was_answered_the_retry_gets_the_same_claim(make_race):
    race = make_race(20, sends=2)
    killed(race, "receive", "committed")
    assert race.queue.counts().in_flight == 20 and not race.queue.receive(None)
    again = race.queue.receive(None, 60, attempt_id="job")
    assert again.count == 20 and {message.receive_count for message in again} == {1}
    assert again.delete().messages == 20


def test_killed_before_its_delete_was_committed_it_still_holds_everything(make_race):
    race = make_race(20, sends=2)
    killed(race, "delete", "chosen")
    assert (race.queue.counts().deleted, race.queue.counts().in_flight) == (0, 20)
    assert race.queue.receive(None, 60, attempt_id="job").delete().messages == 20


def test_killed_before_its_delete_was_answered_everything_is_deleted(make_race):
    race = make_race(20, sends=2)
    killed(race, "delete", "committed")
    assert race.queue.counts().deleted == 20
    assert not race.queue.receive(None, 60, attempt_id="job")


def test_killed_before_its_settlement_was_committed_none_of_it_happened(make_race):
    race = make_race(20, sends=2)
    killed(race, "settle", "chosen")
    assert (race.queue.counts().deleted, race.queue.counts().in_flight) == (0, 20)
    again = race.queue.receive(None, 60, attempt_id="job")
    assert again.count == 20 and {message.receive_count for message in again} == {1}


def test_killed_before_its_settlement_was_answered_all_of_it_happened(make_race):
    race = make_race(20, sends=2)
    killed(race, "settle", "committed")
    counts = race.queue.counts()
    assert (counts.deleted, counts.visible, counts.in_flight) == (10, 10, 0)
    retried = race.queue.receive(None, 60, attempt_id="job")
    assert retried.count == 10 and {message.receive_count for message in retried} == {2}


@pytest.mark.parametrize(("at", "there"), [("appending", 0), ("appended", 20)])
def test_a_killed_send_is_sent_once_by_its_retry(make_race, at, there):
    race = make_race(0, sends=1)
    killed(race, "send", at)
    assert race.queue.counts().stored == there
    wanted = [f"sent {n}" for n in range(20)]
    ids = race.queue.send(wanted, attempt_id="job")
    assert len(set(ids)) == 20 and race.queue.counts().stored == 20
    assert bodies(race.queue.receive(None)) == set(wanted)
    assert [race.queue.peek(i).body for i in ids] == wanted
