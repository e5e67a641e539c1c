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


def test_jms_acknowledges_in_each_of_its_modes(tmp_path):
    saw, _ = play("jms", toolchains.build_java, tmp_path)
    assert saw["exists"] == [True, False]
    kinds = saw["kinds"]
    # Text, three properties, correlation id, where to reply, how often it was delivered, whether it came before.
    assert kinds["text"][:5] == ["a text, ü", "ü", 7, True, "an id"] and kinds["text"][6:] == [1, False]
    assert "replies" in kinds["text"][5] and kinds["same_id"]
    assert (kinds["bytes"], kinds["object"], kinds["left"]) == ([0, 1, 254], ["an", "object"], ["0", "0"])
    both = ["one", "two"]
    assert saw["acknowledged"] == {"first": both, "again": both, "redelivered": [True, True], "left": ["0", "0"]}
    assert saw["unordered"] == {"after_one": ["0", "1"]}
    heard = [[body, "a", f"id-of-{body}"] for body in ("1", "2", "3")]
    assert saw["in_order"] == {"heard": heard, "heard_all": True, "left": ["0", "0"]}
    assert saw["no_queue"] == "AWS.SimpleQueueService.NonExistentQueue"
