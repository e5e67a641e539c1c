"""Forked processes: a child goes on with its parent's ledger, or is told at once that it cannot. Nothing hangs."""

import subprocess
import sys

import pytest

#: Every script opens a ledger first, as a module does that a server loads before it forks.
OPENED = """
import multiprocessing, os, sys, threading
from ledger import ForkedProcess, Ledger
root = sys.argv[1]
ledger = Ledger.open(root)
queue = ledger.create_queue("work", {"VisibilityTimeout": 60, "Lanes": 2})
queue.send([f"start {n}" for n in range(20)])
held = queue.receive(5)

def in_child(function):
    child = os.fork()
    if not child:
        try:
            function()
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(1)
        os._exit(0)
    return child

def ended_with(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
POOL = """
def produce(n):
    return [str(outcome) for outcome in queue.send([f"item {n} {k}" for k in range(5)]) if outcome]

with multiprocessing.get_context("fork").Pool(4) as pool:
    ids = sum(pool.map(produce, range(30), chunksize=1), [])
assert len(set(ids)) == 150
"""
VERBS = """
def verbs():
    assert queue.send(["of a child"])
    claim = queue.receive(3)
    assert len(claim.messages()) == 3
    with claim.heartbeat():
        claim.extend(120)
    claim.delete()
    assert held.release()
    assert queue.counts().visible == 18
    assert len(queue.receive(None).messages()) == 18
    assert ledger.store.transactions.owner.endswith(f":{os.getpid()}")
    assert ledger.create_queue("of_a_child").send(["one"])

assert ended_with(in_child(verbs)) == 0
assert queue.send(["of the parent"])
"""
LATER = """
from ledger.delta_log import replay
replay.LISTED_AFTER = -1

def many():
    for n in range(60):
        assert queue.send([f"late {n}"])
    assert len(queue.receive(None).messages()) == 75

assert ended_with(in_child(many)) == 0
"""
REFUSED = """
for function in (lambda: Ledger.open(root), ledger.upkeep, ledger.health, lambda: ledger.sql("SELECT * FROM messages"),
                 lambda: queue.send(["x"], attempt_id="run 7")):
    def refused():
        try:
            function()
        except ForkedProcess as error:
            assert "spawn" in str(error) and error.library == "delta-rs"
        else:
            raise AssertionError(f"{function} was not refused")
    assert ended_with(in_child(refused)) == 0
def produce(n):
    return Ledger.open(root)
with multiprocessing.get_context("fork").Pool(1) as pool:
    try:
        pool.apply_async(produce, (1,)).get(60)
    except ForkedProcess:
        print("refused")
"""
THREADS = """
stop = threading.Event()

def send_on():
    while not stop.is_set():
        queue.send(["of a thread"])
        queue.receive(1).delete()

threads = [threading.Thread(target=send_on) for _ in range(4)]
for thread in threads:
    thread.start()

def child_sends():
    for n in range(3):
        assert queue.send([f"child {n}"])
        assert queue.receive(1)

with held.heartbeat():
    children = [in_child(child_sends) for _ in range(25)]
    codes = [ended_with(child) for child in children]
stop.set()
for thread in threads:
    thread.join()
assert codes == [0] * 25, codes
"""
#: A call of another thread that is in Arrow's code for so many seconds, and one that waits for a lock.
BUSY = """
import time
from ledger.runtime import threads
begun, ended = threading.Event(), []

@threads.uses_arrow
def busy(seconds):
    begun.set()
    time.sleep(seconds)
    ended.append(seconds)

@threads.uses_arrow
def waits():
    with threads.waiting():
        begun.set()
        time.sleep(3_600)

def begin(function, *arguments):
    begun.clear()
    threading.Thread(target=function, args=arguments, daemon=True).start()
    begun.wait()
"""
WAITED_FOR = f"""{BUSY}
begin(waits)
begin(busy, 0.5)

def child():
    assert ended == [0.5], "the fork waited"
    assert queue.send(["of a child"]) and queue.receive(1)

assert ended_with(in_child(child)) == 0
os._exit(0)
"""
TOO_LONG = f"""{BUSY}
threads.FORK_SECONDS = 0.2
begin(busy, 2)

def child():
    for function in (lambda: queue.send(["x"]), lambda: queue.receive(1), held.delete, held.messages, queue.counts):
        try:
            function()
        except ForkedProcess as error:
            assert "Arrow" in str(error)
        else:
            raise AssertionError(f"{{function}} was not refused")

assert ended_with(in_child(child)) == 0 and not ended
assert queue.send(["of the parent"]) and held.delete().messages == 5
"""
#: A call that does not end, such as one on a network file system that does not answer.
STUCK = f"""{BUSY}
threads.FORK_SECONDS = 0.5
begin(busy, 3_600)
assert ended_with(in_child(lambda: None)) == 0
threads.FORK_SECONDS = 3_600
for _ in range(3):
    assert ended_with(in_child(lambda: None)) == 0, "a fork waits for one call only once"
begin(busy, 3_600)
threading.Thread(target=in_child, args=[lambda: None], daemon=True).start()
for _ in range(20):
    time.sleep(0.05)
    assert queue.send(["beside a fork that waits"])
os._exit(0)
"""
STUCK_AND_SHORT = f"""{BUSY}
threads.FORK_SECONDS = 0.5
begin(busy, 3_600)
assert ended_with(in_child(lambda: None)) == 0
threads.FORK_SECONDS = 3_600
begin(busy, 0.5)
assert ended_with(in_child(lambda: None)) == 0, "a fork waits for the new call alone"
assert ended == [0.5]
os._exit(0)
"""
#: Signals that come while a fork waits: a handler's call is made, and Ctrl-C and SIGTERM are not lost.
SIGNALLED = f"""{BUSY}
import signal
from ledger.runtime.termination import ended_by_sigterm

def send(number, frame):
    assert queue.send(["of the handler"])
    ended.append("handler")

signal.signal(signal.SIGALRM, send)
begin(busy, 0.6)
signal.setitimer(signal.ITIMER_REAL, 0.1)
assert ended_with(in_child(lambda: queue.send(["of a child"]))) == 0
assert "handler" in ended
for number, kind in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)):
    begin(busy, 0.6)
    threading.Timer(0.1, os.kill, [os.getpid(), number]).start()
    try:
        with ended_by_sigterm():
            child = in_child(lambda: queue.send(["of a child"]))
            assert ended_with(child) == 0
            time.sleep(30)
    except kind:
        continue
    raise AssertionError(f"{{number}} was lost")
assert queue.send(["of the parent"])
"""
ALONE = """
import os, sys
from ledger import Ledger
child = os.fork()
if not child:
    queue = Ledger.open(sys.argv[1]).create_queue("work")
    queue.send("of a child")
    os._exit(0 if queue.receive().messages() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert Ledger.open(sys.argv[1]).upkeep() is not None
"""
AFTERWARDS = """
import sys
from ledger import Ledger
ledger = Ledger.open(sys.argv[1])
ledger.upkeep()
bodies = [message.body for message in ledger.queue("work").receive(None).messages()]
print(len(bodies), len(set(bodies)))
"""


def run(script, root):
    found = subprocess.run([sys.executable, "-c", script, root], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout[-2_000:] + found.stderr[-2_000:]
    assert "panicked" not in found.stderr
    return found.stdout


@pytest.mark.parametrize(
    "script",
    [POOL, VERBS, LATER, THREADS, WAITED_FOR, STUCK, STUCK_AND_SHORT, SIGNALLED],
    ids=[
        *("a pool", "all verbs", "after a minute", "beside threads", "beside a call"),
        *("beside a stuck call", "beside a stuck and a short call", "signals"),
    ],
)
def test_a_forked_child_goes_on_with_its_parents_ledger(root, script):
    run(OPENED + script, root)


def test_after_a_pool_and_an_upkeep_every_message_is_there_once(root, open_ledger):
    run(OPENED + POOL, root)
    assert run(AFTERWARDS, root).split() == ["165", "165"]


def test_what_needs_delta_rs_is_refused_in_a_forked_child_at_once(root):
    assert run(OPENED + REFUSED, root) == "refused\n"


def test_a_child_is_refused_at_once_if_a_thread_of_its_parent_used_arrow_for_too_long(root):
    """Locks of Arrow may be taken for ever in the child: in one of thousands of forks its next call hung."""
    run(OPENED + TOO_LONG, root)


def test_a_child_whose_parent_has_opened_nothing_opens_its_own(root):
    run(ALONE, root)
