"""`ledger repair`: of a wrong clock; of a damaged log see tests/delta/verbs/test_damaged_ledgers.py."""

import json
import time

import pytest

from ledger import Ledger
from ledger.errors import ClocksDisagree

DAY = 86_400_000


@pytest.fixture
def ahead(root, queue):
    """A process whose clock is two days ahead has received from the queue `work`."""
    queue.send(["a", "b"])
    Ledger.open(root, clock=lambda: time.time_ns() // 1_000_000 + 2 * DAY).queue("work").receive(1)


def test_a_queue_whose_time_is_ahead_is_put_right(cli, ahead, queue):
    with pytest.raises(ClocksDisagree):
        queue.receive(1)
    told = cli("doctor", "--json")
    (finding,) = (one for one in told.documents[0]["findings"] if one["subject"] == "clocks")
    assert told.code == 1 and finding["outcome"] == "FAIL" and "(work): This machine's clock says" in finding["found"]
    refused = cli("repair", "--clock")
    assert refused.code == 2 and "up to 172," in refused.err and "--yes" in refused.err
    shown = cli("repair", "--clock", "--dry-run")
    assert shown.code == 0 and "work: its latest wrong time is 172," in shown.out
    assert "work: the repair would set back the time of 1 lane, with the records of 1 message\n" in shown.out
    done = cli("repair", "--clock", "--yes", "--json")
    (document,) = map(json.loads, done.out.splitlines())
    assert done.code == 0 and (document["queue"], document["lanes"]) == ("work", 1)
    assert queue.receive(None).count == 1
    assert cli("doctor").code == 0
    again = cli("repair", "--clock")
    assert again.code == 0 and "no queue's time is ahead" in again.out


def test_the_doctor_names_a_fifo_queue_to_which_a_clock_that_was_ahead_has_sent(cli, root, ledger):
    queue = ledger.create_queue("orders.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    ahead = Ledger.open(root, clock=lambda: time.time_ns() // 1_000_000 + 2 * DAY).queue("orders.fifo")
    ahead.send("a", message_group_id="g")
    with pytest.raises(ClocksDisagree):
        queue.send("b", message_group_id="g")
    told = cli("doctor")
    assert told.code == 1 and "raise ClocksDisagree (orders.fifo)" in told.out


def test_the_time_of_a_queue_is_not_said_to_be_that_of_its_last_send(cli, root, ledger):
    """The queue is changed a day further ahead than its last send."""
    queue = ledger.create_queue("orders.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    for days in (2, 3):
        ahead = Ledger.open(root, clock=lambda days=days: time.time_ns() // 1_000_000 + days * DAY).queue("orders.fifo")
        if days == 2:
            ahead.send("a", message_group_id="g")
        else:
            ahead.set_attributes({"MessageRetentionPeriod": 3_600})
    shown = cli("repair", "--clock", "--dry-run").out
    assert shown.count(" s ahead") == 1 and "orders.fifo: its latest wrong time is 259," in shown
    assert "orders.fifo: sends were refused after a send by a clock that was ahead; they would go on\n" in shown
    assert cli("repair", "--clock", "--yes").code == 0
    assert queue.send("b", message_group_id="g")


def test_a_queue_that_a_clock_ahead_has_changed_is_named_and_put_right(cli, root, queue):
    queue.set_attributes({"MessageRetentionPeriod": 60})
    ahead = Ledger.open(root, clock=lambda: time.time_ns() // 1_000_000 + 2 * DAY).queue("work")
    ahead.set_attributes({"MessageRetentionPeriod": 3_600})
    assert "raise ClocksDisagree (work)" in cli("doctor").out
    told = cli("repair", "--clock", "--yes")
    assert told.code == 0 and "work: its latest wrong time was 172," in told.out
    assert (
        "work: a clock that was ahead made or changed the queue, or noted what has expired; the repair has set"
        in told.out
    )
    assert cli("doctor").code == 0 and queue.send("a")


def test_a_ledger_without_damage_is_left_as_it_is(cli, queue):
    answer = cli("repair")
    assert answer.code == 0 and "Nothing is damaged" in answer.out


def test_queues_whose_time_is_right_are_listed_beside_one_whose_is_not(cli, ahead, ledger):
    ledger.create_queue("right").send("a")
    shown = cli("queues", "list", "--json")
    rows = {row["queue"]: row["visible"] for row in shown.documents}
    assert shown.code == 1 and rows == {"right": 1, "work": None}
    assert "work: This machine's clock says" in shown.err and "repair --clock" in shown.err
    assert "right" in cli("queues", "list").out
