"""The receipts ledger: an entry for everything a verb did, filled from the commits exactly once."""

import threading

import pytest

from ledger.store.delta.model.tables import Where
from ledger.store.delta.state import snapshot


@pytest.fixture
def ledger(open_ledger):
    return open_ledger()


@pytest.fixture
def queue(ledger):
    """One lane, so that the messages of a send stay together."""
    return ledger.create_queue("jobs", {"Lanes": 1})


@pytest.fixture
def entries(ledger):
    """Fills and reads the receipts: chosen columns of every entry, in the order of the commits."""

    def read(*names, fill=True):
        if fill:
            ledger.fill_receipts()
        rows = ledger.store.engine.load("receipts", Where()).rows.sort_by("version").to_pylist()
        return [tuple(row[name] for name in names) if len(names) > 1 else row[names[0]] for row in rows]

    return read


def test_every_verb_leaves_its_entry(queue, entries, clock):
    ids = queue.send(["a", "b", "c", "d"])
    claim = queue.receive(3)
    claim.extend(60)
    handles = [message.receipt_handle for message in claim]
    queue.delete(handles[0])
    queue.change_visibility(handles[1], 0)
    claim.release()
    again = queue.receive(2)
    clock.advance(31)
    last = queue.receive(3)
    last.delete()
    queue.send("e")
    queue.lock(queue.send("f")[0], 10)
    queue.purge()
    assert len(ids) == 4
    assert entries("event", "messages", "receipt_id") == [
        ("granted", 3, claim.receipt_id),
        ("extended", 3, claim.receipt_id),
        ("deleted", 1, claim.receipt_id),
        ("released", 1, claim.receipt_id),
        ("released", 1, claim.receipt_id),
        ("granted", 2, again.receipt_id),
        ("expired", 2, again.receipt_id),
        ("granted", 3, last.receipt_id),
        ("deleted", 3, last.receipt_id),
        ("locked", 1, None),
        ("purged", 2, None),
    ]


def test_an_entry_says_who_when_until_when_and_in_which_commit(queue, entries, clock):
    queue.send(["a"])
    claim = queue.receive(visibility_timeout=90, attempt_id="run-7")
    names = ("queue", "version", "receipt_id", "attempt_id", "owner", "visible_at")
    assert entries(*names) == [(queue.id, claim.version, claim.receipt_id, "run-7", "tester", claim.deadline)]
    ((at, day),) = entries("at", "day")
    assert at.timestamp() * 1_000 == clock()
    assert day == at.date()


def test_of_many_receipts_that_ran_out_at_once_the_largest_are_named_and_all_messages_counted(
    queue, entries, clock, monkeypatch
):
    monkeypatch.setattr(snapshot, "MOST_EXPIRED", 2)
    queue.send([f"{n}" for n in range(12)])
    sizes = [queue.receive(size) for size in (1, 4, 2, 5)]
    clock.advance(31)
    queue.receive(None)
    expired = [one for one in entries("event", "queue", "receipt_id", "messages") if one[0] == "expired"]
    assert expired == [
        ("expired", queue.id, sizes[1].receipt_id, 4),
        ("expired", queue.id, sizes[3].receipt_id, 5),
        ("expired", queue.id, None, 3),
    ]


def test_a_retried_receive_is_granted_again_under_the_same_receipt(queue, entries, clock):
    queue.send(["a", "b"])
    claim = queue.receive(2, attempt_id="run-1")
    clock.advance(10)
    queue.receive(2, attempt_id="run-1")
    assert entries("event", "messages", "receipt_id", "attempt_id") == [
        ("granted", 2, claim.receipt_id, "run-1"),
        ("granted again", 2, claim.receipt_id, "run-1"),
    ]


def test_one_call_that_settles_in_three_ways_leaves_three_entries_of_one_commit(queue, entries):
    queue.send(["a", "b", "c"])
    one, two, three = (message.receipt_handle for message in queue.receive(3))
    queue.settle(delete=[one], release=[two], extend=[three], visibility_timeout=60)
    settled = entries("event", "version")[1:]
    assert sorted(event for event, _ in settled) == ["deleted", "extended", "released"]
    assert len({version for _, version in settled}) == 1


def test_what_changed_nothing_leaves_no_entry(queue, entries):
    queue.send(["a"])
    claim = queue.receive()
    handle = claim.messages()[0].receipt_handle
    queue.delete(handle)
    before = entries("event")
    queue.delete(handle)
    queue.receive()
    queue.purge()
    assert entries("event") == before == ["granted", "deleted"]


def test_filling_twice_adds_nothing_the_second_time(ledger, queue, entries):
    queue.send(["a", "b"])
    queue.receive(1)
    queue.receive(1)
    assert [ledger.fill_receipts(), ledger.fill_receipts()] == [2, 0]
    queue.receive(1, visibility_timeout=0)
    assert ledger.fill_receipts() == 0, "nothing was visible, nothing was granted"
    queue.purge()
    assert [ledger.fill_receipts(), ledger.fill_receipts()] == [1, 0]
    assert entries("event", fill=False) == ["granted", "granted", "purged"]


def at_once(*calls):
    """Runs all calls in threads that start together; answers what each answered."""
    barrier, answers = threading.Barrier(len(calls)), [None] * len(calls)

    def run(number, call):
        barrier.wait()
        answers[number] = call()

    threads = [threading.Thread(target=run, args=case) for case in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def grant(queue, count):
    queue.send(["message"] * count)
    return sorted(queue.receive(1).version for _ in range(count))


def test_two_threads_that_fill_at_once_fill_once(ledger, queue, entries):
    versions = []
    for count in range(1, 6):
        versions += grant(queue, count)
        filled = at_once(*[ledger.fill_receipts] * 2)
        assert sum(filled) == count
    assert entries("version", fill=False) == versions


def test_two_ledgers_that_fill_at_once_fill_once(ledger, queue, open_ledger, entries):
    other = open_ledger()
    versions = []
    for count in range(1, 6):
        versions += grant(queue, count)
        assert sum(at_once(ledger.fill_receipts, other.fill_receipts, other.fill_receipts)) == count
    assert entries("version", fill=False) == versions


def test_two_engines_that_fill_at_once_fill_once(ledger, queue, open_ledger, entries):
    other = open_ledger("spark")
    versions = []
    for count in (1, 2, 3):
        versions += grant(queue, count)
        assert sum(at_once(ledger.fill_receipts, other.fill_receipts)) == count
    versions += grant(queue, 1)
    assert [other.fill_receipts(), ledger.fill_receipts()] == [1, 0]
    assert entries("version", fill=False) == versions


def test_what_spark_did_is_entered_as_well(ledger, queue, open_ledger, entries):
    other = open_ledger("spark").queue("jobs")
    queue.send(["a", "b"])
    claim = other.receive(2)
    claim.delete()
    assert entries("event", "messages", "receipt_id", "owner") == [
        ("granted", 2, claim.receipt_id, "tester"),
        ("deleted", 2, claim.receipt_id, "tester"),
    ]


def test_receipts_of_one_commit_have_an_entry_each(queue, entries):
    queue.send(["a", "b", "c"])
    held = queue.receive(1, attempt_id="one")
    again, other, none = queue.receive_many([(1, None, "one"), (9,), (1,)])
    assert not none and again.receipt_id == held.receipt_id
    found = entries("event", "messages", "receipt_id", "version")
    assert found[0] == ("granted", 1, held.receipt_id, held.version)
    assert sorted(found[1:]) == [
        ("granted", 2, other.receipt_id, other.version),
        ("granted again", 1, held.receipt_id, other.version),
    ]
