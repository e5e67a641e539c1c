"""The free prefix of every group: the set-based twin of rules.fifo.receivable; and what was read before stays right."""

import random
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.rules import fifo
from ledger.rules.fifo import Member
from ledger.rules.visibility import Status
from ledger.store.delta.state import fifo_groups
from ledger.store.delta.state.fifo_groups import ORDER_SHIFT, Groups, _free_prefix, _number_turns
from ledger.store.delta.state.listing import INDEX
from ledger.store.delta.state.snapshot import load

FIFO = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "Lanes": 3}
INSTANTS = st.integers(0, 12)
#: (group, status, since, end of the last hold)
MEMBERS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(Status), INSTANTS, st.one_of(st.none(), INSTANTS)), max_size=40
)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(members=MEMBERS)
def test_f2_arrays_say_what_the_rule_says(members):
    """Who is free, and in which order, at the instant 10."""
    group, since, ended = (np.array([one[n] for one in members], dtype=object) for n in (0, 2, 3))
    group, since = group.astype(np.int64), since.astype(np.int64)
    free = _free_prefix(group, 5, np.array([INDEX[state] for _, state, *_ in members], dtype=np.int64))
    last = np.full(5, -1)
    for number, hold in zip(group.tolist(), ended.tolist()):
        last[number] = max(last[number], hold if hold is not None and hold <= 10 else -1)
    turns = _number_turns(group[free], since[free], last)
    expected = fifo.select_receivable([Member(place, *one) for place, one in enumerate(members)], 10)
    assert free[np.argsort(turns)].tolist() == expected
    assert len(set(turns.tolist())) == len(turns)
    assert {(g, t >> ORDER_SHIFT) for g, t in zip(group[free].tolist(), turns.tolist())} == {
        (g, (turns[group[free] == g] >> ORDER_SHIFT).min()) for g in set(group[free].tolist())
    }, "what is above the shift is the group's own"


def test_of_no_messages_nothing_is_free():
    nothing = np.empty(0, dtype=np.int64)
    assert _free_prefix(nothing, 0, nothing).tolist() == [] == _number_turns(nothing, nothing, nothing).tolist()


def bodies(claim):
    return [message.body for message in claim]


def by_group(claim):
    found = {}
    for message in claim:
        found.setdefault(message.message_group_id, []).append(message.body)
    return found


def test_what_was_read_before_is_joined_by_what_others_sent_since(open_ledger, clock):
    """Some sends share an instant, some a segment; readers that read after each of them, or only now, see the same."""
    ledgers, dice = [open_ledger() for _ in range(3)], random.Random(3)
    ledgers[0].create_queue("jobs.fifo", FIFO)
    senders, sent = [ledger.queue("jobs.fifo") for ledger in ledgers], {}
    for n in range(24):
        group = dice.choice("abcde")
        dice.choice(senders[:2]).send(str(n), message_group_id=group)
        sent.setdefault(group, []).append(str(n))
        if n % 3 == 0:
            clock.advance(dice.choice([0.001, 1]))
        claim = senders[2].receive(None, visibility_timeout=60)
        assert by_group(claim) == sent
        claim.release()
    assert by_group(open_ledger().queue("jobs.fifo").receive(None)) == sent


def test_after_upkeep_dropped_and_compacted_what_is_left_comes_in_order(open_ledger, clock):
    reader, other = (open_ledger(keep_deleted_receipts=1, open_segment_seconds=1) for _ in range(2))
    queue = reader.create_queue("jobs.fifo", FIFO)
    beside = other.queue("jobs.fifo")
    for n in range(6):
        beside.send(f"old {n}", message_group_id=str(n % 2))
    queue.receive(None).delete()
    clock.advance(400)
    for n in range(12):
        beside.send(f"new {n}", message_group_id=str(n % 2))
        clock.advance(0.5)
    assert other.upkeep().segments_dropped > 0
    claim = queue.receive(None)
    expected = {g: [f"new {n}" for n in range(12) if n % 2 == int(g)] for g in "01"}
    assert by_group(claim) == expected
    claim.release()
    beside.send("last", message_group_id="0")
    assert by_group(queue.receive(None)) == {**expected, "0": [*expected["0"], "last"]}


@pytest.mark.parametrize("delay", [0, 5])
def test_a_dead_letter_queue_knows_the_groups_of_what_came_to_it_since_it_was_read(open_ledger, clock, delay):
    ledger = open_ledger()
    dead = ledger.create_queue("dead.fifo", FIFO)
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}
    queue = ledger.create_queue("jobs.fifo", {**FIFO, "RedrivePolicy": policy, "DelaySeconds": delay})
    dead.send("own", message_group_id="a")
    expected = ["own"]
    for n in range(3):
        clock.advance(1)
        queue.send([f"{n} first", f"{n} second"], message_group_id="a")
        clock.advance(delay)
        queue.receive(None, visibility_timeout=0)
        assert not queue.receive()
        expected += [f"{n} first", f"{n} second"]
        claim = dead.receive(None)
        assert bodies(claim) == expected
        claim.release()


@pytest.mark.parametrize(("then", "known"), [("newer", 2), ("newest", 3)])
def test_one_that_decides_on_an_older_listing_takes_nothing_from_what_the_others_know(open_ledger, clock, then, known):
    """Threads share what was read. One whose listing is from before "passed over" was sent is the second; the third
    comes with the first one's listing, or with that after "last", whose segment the older listing has."""
    ledger = open_ledger()
    queue = ledger.create_queue("jobs.fifo", {**FIFO, "Lanes": 1})
    one, other = (open_ledger().queue("jobs.fifo") for _ in range(2))
    store, record = ledger.store, queue.access.record()
    groups = Groups(store.engine, store.queues)

    def receivable(listing):
        loaded = load(store.engine, store.settings, record, clock)
        seen = loaded.classify(types.SimpleNamespace(newest=lambda: listing))
        return len(groups.find_receivable(loaded, seen).first)

    listings = {}
    for listing, sender, body in (("older", one, "first"), ("newer", other, "passed over"), ("newest", one, "last")):
        sender.send(body, message_group_id="g")
        listings[listing] = store.listings.newest()
    assert len(listings["newest"].segments()) == 2, '"first" and "last" share one'
    assert [receivable(listings[name]) for name in ("newer", "older", then)] == [2, 1, known]


@pytest.mark.parametrize("seed", range(3))
def test_f2_the_first_of_some_groups_are_the_first_of_all(open_ledger, clock, seed, monkeypatch):
    """Whatever has happened to some of the groups, and however much was sent since the index of them was made."""
    dice = random.Random(seed)
    monkeypatch.setattr(fifo_groups, "MOST_BEHIND", 5)
    ledger = open_ledger(keep_deleted_receipts=1, open_segment_seconds=1)
    attributes = {**FIFO, "Lanes": 2, "VisibilityTimeout": 30, "MessageRetentionPeriod": 1_000}
    queue = ledger.create_queue("jobs.fifo", {**attributes, "DelaySeconds": dice.choice([0, 20])})
    store, looked_at = ledger.store, set()
    groups = Groups(store.engine, store.queues)
    for step in range(40):
        deed = dice.choice(["send"] * 4 + ["receive"] * 2 + ["delete", "release", "wait", "upkeep"]) if step else "send"
        if deed == "send":
            count = dice.choice([1, 1, 25]) if step else 40
            group = [f"g{dice.randrange(60)}" for _ in range(count)]
            queue.send([{"MessageBody": f"{step}/{n}", "MessageGroupId": one} for n, one in enumerate(group)])
        elif deed == "upkeep" and step % 3 == 0:
            ledger.upkeep(vacuum=False)
        elif deed == "wait":
            clock.advance(dice.choice([1, 25, 400]))
        elif deed in ("receive", "delete", "release"):
            claim = queue.receive(dice.choice([1, 3, 10]))
            if claim and deed != "receive":
                claim.delete() if deed == "delete" else claim.release()
        loaded = load(store.engine, store.settings, queue.access.record(), clock)
        seen = loaded.classify(store.listings)
        everything = groups.find_receivable(loaded, seen)
        expected = everything.first[np.argsort(everything.order)].tolist()
        for most in (1, 2, 5):
            few = groups.find_receivable(loaded, seen, most)
            assert few.first[np.argsort(few.order)].tolist()[:most] == expected[:most]
            looked_at.add(len(few) < len(everything))
    assert True in looked_at, "some receives need not look at all groups"


def test_of_queues_that_were_deleted_nothing_is_kept(open_ledger):
    ledger = open_ledger()
    store = ledger.store
    groups = Groups(store.engine, store.queues)
    for n in range(4):
        queue = ledger.create_queue(f"{n}.fifo", FIFO)
        queue.send("body", message_group_id="g")
        loaded = load(store.engine, store.settings, queue.access.record(), None)
        groups.find_receivable(loaded, loaded.classify(store.listings))
        if n < 3:
            ledger.delete_queue(f"{n}.fifo")
    assert set(groups._own) == set(groups._kept) == {(queue.access.record().id, 0)}
