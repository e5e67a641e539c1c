"""`ledger repair`: of a wrong clock; of a damaged log see tests/delta/test_damaged_ledgers.py."""

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
    refused = cli("repair", "--clock")
    assert refused.code == 2 and "up to 172," in refused.err and "--yes" in refused.err
    shown = cli("repair", "--clock", "--dry-run")
    assert shown.code == 0 and "would be put right" in shown.out
    done = cli("repair", "--clock", "--yes", "--json")
    (document,) = map(json.loads, done.out.splitlines())
    assert done.code == 0 and (document["queue"], document["lanes"]) == ("work", 1)
    assert queue.receive(None).count == 1
    again = cli("repair", "--clock")
    assert again.code == 0 and "no queue's time is ahead" in again.out


def test_a_ledger_without_damage_is_left_as_it_is(cli, queue):
    answer = cli("repair")
    assert answer.code == 0 and "Nothing is damaged" in answer.out
