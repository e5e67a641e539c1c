"""`ledger repair --clock`."""

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
    assert refused.code == 2 and "172,79" in refused.err and "--yes" in refused.err
    done = cli("repair", "--clock", "--yes", "--json")
    (document,) = map(json.loads, done.out.splitlines())
    assert done.code == 0 and (document["queue"], document["lanes"]) == ("work", 1)
    assert queue.receive(None).count == 1
    again = cli("repair", "--clock")
    assert again.code == 0 and "no queue's time is ahead" in again.out


def test_what_is_to_be_repaired_has_to_be_said(cli):
    answer = cli("repair")
    assert answer.code == 2 and "--clock" in answer.err
