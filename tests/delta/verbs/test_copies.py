"""Copies beside others, and of processes that die: each message once, whatever happens between two parts."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from ledger import Ledger
from ledger.errors import InvalidParameterValue
from tests.simulation.engine import RULES
from tests.simulation.log import Storage
from tests.simulation.worlds import open_ledger as open_simulated
from tests.sources import CHECKOUT

BODIES = [f"m{number:03}" for number in range(250)]
KINDS = {"work": {"Lanes": 2}, "work.fifo": {"FifoQueue": True, "ContentBasedDeduplication": True, "Lanes": 2}}


@pytest.fixture(params=KINDS)
def name(request):
    return request.param


def filled(ledger, name):
    queue = ledger.create_queue(name, KINDS[name])
    queue.send([{"MessageBody": body, "MessageGroupId": f"g{body[-1]}"} for body in BODIES])
    return queue


@pytest.fixture
def source(name, clock):
    return filled(Ledger.in_memory(clock), name)


@pytest.fixture(params=RULES)
def two(request, clock, name):
    """Two processes of one ledger, which has the target."""
    storage = Storage(clock)
    one, other = (open_simulated(storage, request.param, clock) for _ in range(2))
    one.create_queue(name, KINDS[name])
    return one, other


def bodies(ledger, name):
    return sorted(message.body for message in ledger.queue(name).receive(None, 600).messages())


@pytest.mark.parametrize("at", range(3))
def test_a_part_that_another_process_was_first_with_is_not_sent_again(two, source, name, at):
    """The other one copies all, when a part of the first one is decided and about to be committed."""
    one, other = two
    left, whole = [None] * at, []

    def step(name_of_step):
        if name_of_step == "chosen" and not left and not whole:
            whole.append(source.copy_to(other.queue(name)))
        elif name_of_step == "chosen" and left:
            left.pop()

    one.store.transactions.on_step = step
    mine = source.copy_to(one.queue(name))
    assert (mine.messages, whole[0].messages) == (100 * at, 250 - 100 * at)
    assert bodies(other, name) == BODIES


@pytest.mark.parametrize("step", ["chosen", "committed"])
@pytest.mark.parametrize("at", range(3))
def test_a_copy_that_is_interrupted_anywhere_goes_on_where_it_was(two, source, name, step, at):
    one, other = two
    left = [None] * at

    def interrupt(name_of_step):
        if name_of_step == step:
            if not left:
                raise KeyboardInterrupt
            left.pop()

    one.store.transactions.on_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        source.copy_to(one.queue(name))
    there = min(100 * (at + (step == "committed")), 250)
    done = source.copy_to(other.queue(name))
    assert (done.messages, done.before) == (250 - there, there)
    assert bodies(other, name) == BODIES


def test_several_processes_that_copy_at_once_send_each_message_once(tmp_path, name):
    roots = [str(tmp_path / "source"), str(tmp_path / "target")]
    filled(Ledger.open(roots[0]), name)
    Ledger.open(roots[1]).create_queue(name, KINDS[name])

    def copy(_):
        source, target = (Ledger.open(root, create=False).queue(name) for root in roots)
        return source.copy_to(target).messages

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(copy, range(4))) == 250
    assert bodies(Ledger.open(roots[1]), name) == BODIES


KILLED = """
import os, signal, sys
from ledger import Ledger
source, target, name, parts = *sys.argv[1:4], int(sys.argv[4])
there, left = Ledger.open(target, create=False), [None] * parts
def step(name_of_step):
    if name_of_step == "committed":
        left.pop()
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
there.store.transactions.on_step = step
Ledger.open(source, create=False, read_only=True).queue(name).copy_to(there.queue(name))
"""


@pytest.mark.soak_variants("work-1", "work.fifo-2")
@pytest.mark.parametrize("parts", [1, 2])
def test_a_process_that_is_killed_between_two_parts_has_sent_nothing_twice(tmp_path, name, parts):
    roots = [str(tmp_path / "source"), str(tmp_path / "target")]
    source = filled(Ledger.open(roots[0]), name)
    target = Ledger.open(roots[1]).create_queue(name, KINDS[name])
    killed = subprocess.run([sys.executable, "-c", KILLED, *roots, name, str(parts)], cwd=CHECKOUT)
    assert killed.returncode == -signal.SIGKILL
    there = {1: 100, 2: 250}[parts]
    assert target.counts().visible == there
    assert (source.copy_to(target).messages, bodies(Ledger.open(roots[1]), name)) == (250 - there, BODIES)


def test_a_copy_from_a_read_only_ledger_of_what_was_compacted_and_partly_dropped(tmp_path, clock):
    root = str(tmp_path / "source")
    ledger = Ledger.open(root, clock=clock)
    queue = ledger.create_queue("work", {"Lanes": 1})
    for body in BODIES:
        queue.send(body)
    queue.send(pa.table({"body": [f"bulk {n}" for n in range(50)]}))
    claim = queue.receive(120)
    done = {message.body for message in claim.messages()[:60]}
    queue.delete([message.receipt_handle for message in claim.messages()[:60]])
    clock.advance(10_000)
    ledger.upkeep()
    clock.advance(10_000)
    ledger.upkeep()
    target = Ledger.in_memory(clock).create_queue("there")
    seen = Ledger.open(root, clock=clock, read_only=True).queue("work")
    assert seen.copy_to(target).messages == 240
    copied = [message.body for message in target.receive(None).messages()]
    assert sorted(copied) == sorted({*BODIES, *(f"bulk {n}" for n in range(50))} - done)


def test_a_queue_is_not_copied_to_itself_through_a_ledger_that_was_opened_again(tmp_path, monkeypatch):
    """All of its messages were there twice."""
    queue = filled(Ledger.open(tmp_path / "ledger"), "work")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "ledger")
    for root in (tmp_path / "ledger", "./ledger", "./link"):
        with pytest.raises(InvalidParameterValue, match="the queue itself"):
            queue.copy_to(Ledger.open(root).queue("work"))
    assert queue.counts().visible == len(BODIES)
