"""A listing is of one version, also where the log does not tell enough and messages are read later than it was made."""

import pyarrow as pa
import pytest

from ledger.store.delta.model.tables import Where
from ledger.store.delta.state.listing import Listing


@pytest.fixture
def ledger(open_ledger):
    return open_ledger(keep_deleted_receipts=1, open_segment_seconds=1)


@pytest.fixture
def queue(ledger):
    """A queue with a file of messages of which one is delayed: to tell which, it has to be read."""
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send([{"MessageBody": "now"}, {"MessageBody": "later", "DelaySeconds": 2}])
    return queue


def ordinals(files):
    return sorted(zip(files.first_seq.tolist(), files.last_seq.tolist()))


def messages(files):
    """Every ordinal with when it is available."""
    runs = zip(files.first_seq.tolist(), files.last_seq.tolist(), files.available_at.tolist())
    return sorted((seq, at) for first, last, at in runs for seq in range(first, last + 1))


def test_segments_that_upkeep_dropped_since_the_listing_was_made_have_no_messages(ledger, queue, open_ledger, clock):
    store, now = ledger.store, clock()
    listing, other = store.listings.newest(), open_ledger(keep_deleted_receipts=1, open_segment_seconds=1)
    other.queue("jobs").purge()
    clock.advance(2.5)
    assert other.upkeep().segments_dropped == 1
    assert ordinals(listing.of(queue.id, now, -1)) == []


def test_a_receive_whose_listing_upkeep_overtook_finds_nothing(ledger, queue, open_ledger, clock, monkeypatch):
    listings, other = ledger.store.listings, open_ledger(keep_deleted_receipts=1, open_segment_seconds=1)
    made, left = listings.newest, [True]

    def overtaken():
        listing = made()
        if left:
            left.pop()
            other.queue("jobs").purge()
            clock.advance(1.5)
            other.upkeep()
        return listing

    monkeypatch.setattr(listings, "newest", overtaken)
    assert queue.receive(None).count == 0 and not left


def test_messages_appended_to_an_open_segment_since_are_not_in_the_listing(ledger, queue, clock):
    store, now = ledger.store, clock()
    listing = store.listings.newest()
    queue.send(["one", "two"])
    rows = store.engine.messages(Where(queue.id), ["segment", "seq"])
    assert rows["segment"].unique().to_pylist() == [rows["segment"][0].as_py()] and rows.num_rows == 4
    assert ordinals(listing.of(queue.id, now, -1)) == [(0, 0), (1, 1)]
    assert ordinals(store.listings.newest().of(queue.id, now, -1)) == [(0, 0), (1, 1), (2, 3)]


@pytest.mark.parametrize("unsaid", [("first_seq",), ("messages",), ("last_sent_at",), ("first_available_at",), ()])
def test_a_file_of_which_the_log_does_not_tell_everything_is_read(ledger, queue, clock, unsaid):
    queue.send(["one", "two"])
    version, files = ledger.store.engine.files()
    told = Listing(ledger.store.engine, version, files).of(queue.id, clock(), -1)
    for name in unsaid:
        field = files.schema.field(name)
        files = files.set_column(files.schema.get_field_index(name), field, pa.nulls(files.num_rows, field.type))
    found = Listing(ledger.store.engine, version, files).of(queue.id, clock(), -1)
    assert messages(found) == messages(told) and len(messages(told)) == 4
