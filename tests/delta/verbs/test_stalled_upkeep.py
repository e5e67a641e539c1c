"""Upkeep stopped between any two of its steps, for minutes, while others go on: it drops nothing that counts."""

import shutil
import threading

import pytest

from ledger import Ledger
from ledger.errors import LedgerError, QueueDoesNotExist
from ledger.settings import Settings
from ledger.store.delta.verbs import sharing
from ledger.store.delta.verbs import upkeep as upkeep_module
from tests.clock import FrozenClock

KEPT = OPEN = 60
SETTINGS = Settings(keep_deleted_receipts=KEPT, open_segment_seconds=OPEN, mark_seconds=0)
#: What upkeep asks of its engine; before each it is stopped.
STEPS = ("load", "files", "delete")
POLICY = {"deadLetterTargetArn": "dead", "maxReceiveCount": 1}


def open_one(root, clock):
    return Ledger.open(str(root), clock=clock, settings=SETTINGS)


@pytest.fixture(scope="module")
def template(empty_ledger, tmp_path_factory):
    """A ledger with something of everything to be dropped, the instant it was left at, and an old receipt."""
    clock, root = FrozenClock(), tmp_path_factory.mktemp("stalled") / "ledger"
    ledger = open_one(shutil.copytree(empty_ledger, root), clock)
    dead = ledger.create_queue("dead", {"Lanes": 1})
    jobs = ledger.create_queue("jobs", {"Lanes": 1, "RedrivePolicy": POLICY, "VisibilityTimeout": 0})
    jobs.send(["dies 1"], attempt_id="1")
    jobs.send(["dies 2"], attempt_id="2")
    for _ in range(2):
        jobs.receive(None)
    assert dead.counts().visible == 2
    jobs.send(["tried"], attempt_id="3")
    jobs.receive(None)
    ledger.create_queue("anew", {"Lanes": 1}).send(["never received"], attempt_id="4")
    short = ledger.create_queue("short", {"Lanes": 1, "MessageRetentionPeriod": 600})
    short.send(["old"], attempt_id="5")
    done = ledger.create_queue("done", {"Lanes": 1})
    done.send(["done"], attempt_id="7")
    claim = done.receive()
    claim.delete()
    clock.advance(660)
    return root, clock.now, claim.receipt_id


class World:
    """A copy of the template, with `others` beside an upkeep that is to come."""

    def __init__(self, template, folder):
        root, now, self.receipt = template
        self.root, self.clock, self.steps = shutil.copytree(root, folder), FrozenClock(now), 0
        self.others, self.upkeeper = (open_one(self.root, self.clock) for _ in range(2))

    def upkeep(self, meanwhile, at):
        """Runs an upkeep that is stopped before its step number `at` while `meanwhile` happens."""

        def stopping(call):
            def stopped(*arguments, **named):
                self.steps += 1
                if self.steps == at + 1:
                    meanwhile(self)
                return call(*arguments, **named)

            return stopped

        engine = self.upkeeper.store.engine
        for name in STEPS:
            setattr(engine, name, stopping(getattr(engine, name)))
        self.upkeeper.upkeep(vacuum=False)


@pytest.fixture
def world(template, tmp_path):
    return World(template, tmp_path / "ledger")


@pytest.fixture
def at_every_step(template, tmp_path):
    """Checks a world in which something happened meanwhile, for every step (or every one of so many) that upkeep can be
    stopped before."""

    def run(meanwhile, check, prepare=lambda world: None, stride=1):
        at = 0
        while True:
            one = World(template, tmp_path / f"{at}")
            prepare(one)
            one.upkeep(meanwhile, at)
            if one.steps <= at:
                meanwhile(one)
                break
            check(one)
            at += stride
        assert at > 15, "upkeep has that many steps"

    return run


def bodies(queue):
    """What a queue says it has, and what can be read of it."""
    counts, read = queue.counts(), sorted(message.body for message in queue.receive(None))
    assert counts.visible == len(read), "what counts can be read"
    return read


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_upkeep_drops_nothing_that_counts_whatever_happens_between_two_of_its_steps(at_every_step, stride, monkeypatch):
    """All of it at once, for minutes:

    - messages move to a queue that is in no list which upkeep took;
    - a queue is deleted and made anew, and messages move to its namesake;
    - a retention is raised: what had not expired then lives on, even if by the old period it has expired since;
    - what was deleted long ago is restored, if it still can be;
    - a sender that stood still appends to its open segment: its ordinals were given out before others of the segment,
      which were received and deleted long ago.
    """
    restored = []
    # Two sends that do not wait for each other, as those that are too large to share a commit.
    monkeypatch.setattr(sharing, "MOST_MESSAGES", 1)

    def prepare(world):
        sender, taken, world.go = open_one(world.root, world.clock), threading.Event(), threading.Event()
        queue = sender.create_queue("open", {"Lanes": 1})

        def wait(step):
            if threading.current_thread() is world.late and step == "chosen":
                taken.set()
                assert world.go.wait(60)

        world.late = threading.Thread(target=queue.send, args=(["late 1", "late 2"],))
        sender.store.transactions.on_step = wait
        world.late.start()
        assert taken.wait(60)
        queue.send(["early 1", "early 2"])
        assert queue.receive(None).delete().messages == 2
        world.clock.advance(max(KEPT, OPEN) + 1)
        world.others.queue("short").send(["youngest"], attempt_id="8")

    def meanwhile(world):
        one = world.others
        one.create_queue("new")
        assert one.queue("dead").redrive(destination="new", max_messages=1) == 1
        one.delete_queue("anew")
        one.create_queue("anew").send("sent")
        assert one.queue("dead").redrive(destination="anew") == 1
        assert one.queue("jobs").receive(None).count == 0, "the one that was tried dies now"
        restored.append(one.queue("done").restore(world.receipt))
        world.clock.advance(599)
        one.queue("short").set_attributes({"MessageRetentionPeriod": 6_000})
        world.go.set()
        world.late.join()
        world.clock.advance(600)

    def check(world):
        queue = world.others.queue
        assert sorted(bodies(queue("new")) + bodies(queue("anew"))) == ["dies 1", "dies 2", "sent"]
        assert bodies(queue("dead")) == ["tried"]
        assert bodies(queue("short")) == ["youngest"]
        assert bodies(queue("done")) == ["done"] * restored[-1]
        assert bodies(queue("open")) == ["late 1", "late 2"]

    at_every_step(meanwhile, check, prepare, stride)
    assert set(restored) == {0, 1}


def test_two_upkeeps_at_once_drop_what_one_would(at_every_step):
    def check(world):
        assert bodies(world.others.queue("dead")) == ["dies 1", "dies 2"]
        assert bodies(world.others.queue("anew")) == ["never received"]
        assert [vars(world.others.queue(name).counts()) for name in ("done", "short")] == [vars(nothing)] * 2

    nothing = Ledger.in_memory().create_queue("nothing").counts()
    at_every_step(lambda world: world.others.upkeep(vacuum=False), check, stride=4)


def stopped_at(ledger, step, meanwhile):
    """Has something done once, when a verb of this ledger has come so far."""
    left = [meanwhile]
    ledger.store.transactions.on_step = lambda name: left.pop()() if name == step and left else None


@pytest.mark.parametrize("name", ["dead", "anew"])
def test_a_redrive_that_stood_still_while_its_queue_was_deleted_and_dropped_moves_nothing(world, name):
    """Also one out of a queue about which nothing was recorded yet: there is no row that it could trip over."""
    slow = open_one(world.root, world.clock)
    target = world.others.create_queue("target")
    stopped_at(slow, "chosen", lambda: (world.others.delete_queue(name), world.others.upkeep(vacuum=False)))
    with pytest.raises(QueueDoesNotExist):
        slow.queue(name).redrive(destination="target")
    assert bodies(target) == []


def test_a_receive_that_stood_still_while_its_queue_was_deleted_and_dropped_is_granted_nothing(world):
    slow = open_one(world.root, world.clock)
    stopped_at(slow, "chosen", lambda: (world.others.delete_queue("anew"), world.others.upkeep(vacuum=False)))
    with pytest.raises(QueueDoesNotExist):
        slow.queue("anew").receive(None)


def test_a_move_that_stood_still_until_its_messages_expired_loses_none(world):
    """A redrive would make them young again: it moves them before upkeep drops them, or finds them gone."""
    slow, target = open_one(world.root, world.clock), world.others.create_queue("target")
    world.others.queue("short").send(["youngest"], attempt_id="8")

    def meanwhile():
        world.clock.advance(700)
        assert world.others.upkeep(vacuum=False).segments_dropped >= 2

    stopped_at(slow, "chosen", meanwhile)
    assert slow.queue("short").redrive(destination="target") == len(bodies(target)) == 0


def test_a_change_of_the_retention_that_stood_still_saves_nothing_that_was_dropped(world):
    """It read its clock before the message expired, and commits when upkeep has dropped it."""
    slow = open_one(world.root, world.clock)
    short = world.others.queue("short")
    (message,) = short.send(["youngest"], attempt_id="8")
    seen = []

    def meanwhile():
        world.clock.advance(700)
        # The message is held, and so it is not dropped as yet; that it has expired is noted.
        world.others.upkeep(vacuum=False)
        seen.append(short.counts())

    short.send(["held"], attempt_id="9")
    assert short.receive(1, visibility_timeout=40_000).count == 1
    stopped_at(slow, "chosen", meanwhile)
    slow.queue("short").set_attributes({"MessageRetentionPeriod": 60_000})
    assert (seen[0].visible, seen[0].in_flight) == (0, 0)
    assert short.counts() == seen[0], "what has expired stays expired"
    with pytest.raises(LedgerError):
        open_one(world.root, world.clock).queue("short").lock(message, 5)


def test_an_expired_message_that_is_held_is_left_to_its_holder(world):
    """Until the deadline that the holder keeps: nothing is dropped from under it."""
    short = world.others.queue("short")
    short.send(["held"], attempt_id="8")
    claim = short.receive(visibility_timeout=2_000)
    world.clock.advance(1_000)
    assert world.others.upkeep(vacuum=False).segments_dropped == 2, "the old one, and that in the queue done"
    assert [message.body for message in claim] == ["held"] and claim.delete().messages == 1


def test_many_finished_segments_are_dropped_by_predicates_of_bounded_size(world, monkeypatch):
    """One that names thousands overflows delta-rs's stack."""
    monkeypatch.setattr(upkeep_module, "MOST_AT_ONCE", 3)
    queue = world.others.create_queue("many", {"Lanes": 2})
    for n in range(7):
        queue.send([f"{n}"], attempt_id=f"many {n}")
        open_one(world.root, world.clock).queue("many").send([f"open {n}"])
    assert queue.purge() == 14
    world.clock.advance(max(KEPT, OPEN) + 1)
    engine, predicates = world.others.store.engine, []
    delete = engine.delete
    monkeypatch.setattr(engine, "delete", lambda *arguments: predicates.append(arguments[1]) or delete(*arguments))
    world.others.upkeep(vacuum=False)
    mine = [predicate for predicate in predicates if "many" in predicate]
    assert len(mine) == 6 and {predicate.count("segment = ") for predicate in mine} == {3, 1}
    assert "many" not in " ".join(engine.files()[1]["queue"].to_pylist()) and queue.counts().deleted == 0
