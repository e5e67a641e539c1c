"""Processes of one machine, whose clock is set; and queues that a clock ahead has left."""

import pytest

from ledger import Ledger
from ledger.settings import Settings
from tests.delta.clocks.machine import DAY, Machine


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


@pytest.fixture
def ahead(queue, process, machine):
    """The queue `jobs` of a right process, after one that had just started received there by a clock 2 days ahead."""
    machine.set(2 * DAY)
    process("two").queue("jobs").receive(1)
    machine.set(-2 * DAY)
    return queue


@pytest.fixture
def lengthened_ahead(ledger, queue, process, machine):
    """The queue `jobs`, which keeps a message for a day, after a clock 10 days ahead has made that two."""
    queue.set_attributes({"MessageRetentionPeriod": DAY})
    machine.set(10 * DAY)
    process("two").queue("jobs").set_attributes({"MessageRetentionPeriod": 2 * DAY})
    machine.set(-10 * DAY)
    return queue
