"""With keys that may only read, a ledger on S3 is opened to be looked at: nothing is put, tried out or removed."""

import pytest

from ledger import Ledger, LedgerIsReadOnly


def test_looking_at_a_ledger_asks_for_nothing_but_to_read(place, s3):
    queue = Ledger.open(place, storage_options=s3.options).create_queue("work")
    queue.send(["a", "b"])
    claim = queue.receive()
    before = len(s3.requests())
    ledger = Ledger.open(place, read_only=True, storage_options=s3.options)
    (seen,) = ledger.list_queues()
    assert (seen.counts().visible, seen.counts().in_flight) == (1, 1)
    assert [message.body for message in seen.claim(claim.receipt_id)] == ["a"]
    health = ledger.health()
    assert health.tables["messages"].files == 1
    disk = health.vitals.disk
    assert disk.free is None and disk.files > disk.log_files > 5 and disk.bytes > disk.log_bytes > 0
    assert disk.written_a_day == 24 * disk.bytes, "an hour at least is what is measured"
    with pytest.raises(LedgerIsReadOnly):
        seen.receive()
    asked = s3.requests()[before:]
    assert asked and {request.method for request in asked} <= {"GET", "HEAD"}
