"""Libraries that consume queues for their users, unmodified, each against a `ledger serve` with signatures."""

from __future__ import annotations

import pytest

from tests.clients import toolchains
from tests.clients.test_sdks import play

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2_000)]


def test_sqs_consumer_gives_back_what_failed_and_keeps_what_is_at_work(tmp_path):
    saw, _ = play("sqs_consumer", toolchains.build_javascript, tmp_path)
    assert saw["one_by_one"] == {
        "handled": [["bad", "1"], ["bad", "2"], ["good", "1"]],
        "failures": ["Unexpected message handler failure: not yet"],
        "left": ["0", "0"],
    }
    bodies = [f"m{number}" for number in range(5)]
    assert saw["batches"] == {"handled": bodies, "failures": [], "stolen": 0, "left": ["0", "0"]}
    assert saw["in_order"] == {"handled": ["1", "2", "3", "4"], "failures": [], "left": ["0", "0"]}
    assert saw["no_queue"] == {"name": "SQSError", "code": "QueueDoesNotExist"}
    assert saw["wrong_secret"] == {"name": "SQSError", "code": "SignatureDoesNotMatch"}
