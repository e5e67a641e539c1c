"""Bulk sends between staging and publishing: staged here by hand, without Spark, as it would stand on the disk."""

from functools import partial

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ledger.delta_log import by_delta_rs
from ledger.errors import StorageFailed
from ledger.rules import message_id as ids
from ledger.rules import staging
from ledger.store.delta.dataframes.placed_rows import IN_FILES, Placed, absent_columns
from ledger.store.delta.dataframes.staging import ORDINAL, list_staged_files
from ledger.store.delta.verbs.staged_sends import Publisher, open_staged_folders, remove_folder_log

ROWS = 3


class Staged:
    """A send of a few messages that has written its files, and stands still before it publishes them."""

    def __init__(self, ledger, queue, clock, absent=()):
        self.store, self.queue, self.folder = ledger.store, queue, staging.new_folder(clock())
        self.folders = open_staged_folders(self.store)
        placed = Placed(None, self.store.queue(queue.name), ids.new_send_key(), clock(), first_lane=1)
        known = {"ordinal": 0, "sent_at": clock() * 1_000, "available_at": clock() * 1_000}
        rows = [{**known, "seq": seq, "body": f"staged {seq}"} for seq in range(ROWS)]
        schema = pa.schema([ORDINAL, *(field for field in IN_FILES if field.name not in absent)])
        place = self.store.engine.publishing().stage("messages", f"{staging.FOLDER}/{self.folder}", schema, [], 0)
        write_deltalake(place, pa.Table.from_pylist(rows, schema), mode="append")
        self.files = list_staged_files(placed, self.folder, self.folders)
        self.metadata = self.store.transactions.metadata(placed.key, "send", placed.queue.id, placed.at, [])

    def publish(self, transaction=None):
        publisher = Publisher(self.store.transactions, self.store.engine.publishing(), self.folder, self.files)
        turn = partial(self.store.transactions.turn, "messages", None)
        return publisher.publish(self.metadata, transaction, turn, self.store.transactions.attempts("send"))

    @property
    def is_there(self):
        return self.folder in self.folders.names()


@pytest.fixture
def ledger(open_ledger):
    return open_ledger()


@pytest.fixture
def queue(ledger):
    return ledger.create_queue("jobs", {"Lanes": 2})


@pytest.fixture(params=[True, False], ids=["all columns", "those that say something"])
def staged(request, ledger, queue, clock):
    return Staged(ledger, queue, clock, () if request.param else absent_columns(queue_record(ledger), ["body"], None))


def queue_record(ledger):
    return ledger.store.queue("jobs")


def bodies(queue):
    return sorted(message.body for message in queue.receive(None, visibility_timeout=0))


def test_what_is_staged_is_in_the_queue_once_it_is_published_and_stays_when_it_is_compacted(ledger, queue, staged):
    assert queue.counts().stored == 0
    assert staged.publish() and staged.publish(), "the second one finds the first"
    assert bodies(queue) == ["staged 0", "staged 1", "staged 2"]
    version, files = ledger.store.engine.files()
    row = {"messages": ROWS, "first_seq": 0, "last_seq": ROWS - 1, "lane": 1}
    assert version == 1 and files.select(list(row)).to_pylist() == [row]
    remove_folder_log(staged.folders, staged.folder)
    root = ledger.store.engine.place("messages")
    table = DeltaTable(root)
    table.delete("seq = 1")
    assert DeltaTable(root).vacuum(0, dry_run=False, enforce_retention_duration=False) == [staged.files[0].path]
    assert bodies(queue) == ["staged 0", "staged 2"]
    assert not staged.folders.has_files(staged.folder)


def test_columns_that_say_nothing_are_read_as_nothing_also_from_files_that_were_joined(ledger, queue, staged, clock):
    others = [Staged(ledger, queue, clock) for _ in range(2)]
    for one in (staged, *others):
        assert one.publish()
    for _ in range(2):
        found = queue.receive(None, visibility_timeout=0).messages()
        assert {(m.body, m.message_group_id, m.aws_trace_header, len(m.message_attributes)) for m in found} == {
            (f"staged {seq}", None, None, 0) for seq in range(ROWS)
        }
        DeltaTable(ledger.store.engine.place("messages")).optimize.z_order(["seq"])


def test_upkeep_removes_what_is_long_abandoned_and_nothing_younger(ledger, queue, staged, clock, open_ledger):
    clock.advance(staging.ABANDONED)
    published = Staged(ledger, queue, clock)
    assert published.publish()
    upkeep = open_ledger().upkeep
    upkeep()
    assert staged.is_there
    clock.advance(1)
    upkeep()
    assert not staged.is_there and published.is_there
    assert not staged.publish(), "its files are gone"
    clock.advance(staging.ABANDONED)
    upkeep()
    assert bodies(queue) == ["staged 0", "staged 1", "staged 2"], "what was published is never removed"
    assert published.folders.read(f"{published.folder}/_delta_log/{1:020d}.json") is None
    claim = queue.receive(None)
    claim.delete()
    clock.advance(3_600 * 24)
    upkeep()
    assert queue.counts().stored == 0 and published.is_there, "past versions have it yet"
    DeltaTable(ledger.store.engine.place("messages")).vacuum(0, dry_run=False, enforce_retention_duration=False)
    upkeep()
    assert not published.is_there


@pytest.mark.soak
@pytest.mark.parametrize("staged", [False], indirect=True)
def test_upkeep_through_spark_gives_them_up_too(staged, clock, open_ledger):
    clock.advance(staging.ABANDONED + 1)
    open_ledger("spark").upkeep()
    assert not staged.is_there and not staged.publish()


@pytest.mark.parametrize("when", ["before it looks", "behind its look"])
def test_a_sender_that_stood_still_until_upkeep_gave_its_files_up_publishes_nothing(
    ledger, open_ledger, staged, clock, monkeypatch, when
):
    clock.advance(staging.ABANDONED + 1)
    transactions, publish, upkeep = ledger.store.transactions, by_delta_rs.commit_files, open_ledger().upkeep

    def late(*arguments, **named):
        monkeypatch.setattr(by_delta_rs, "commit_files", publish)
        upkeep()
        return publish(*arguments, **named)

    if when == "before it looks":
        transactions.on_step = lambda step: step == "chosen" and upkeep()
    else:
        monkeypatch.setattr(by_delta_rs, "commit_files", late)
    assert not staged.publish()
    assert not staged.is_there and ledger.queue("jobs").counts().stored == 0
    assert ledger.store.engine.transaction_version("messages", staging.application(staged.folder)) == staging.FENCED


def test_upkeep_that_stood_still_until_the_files_were_published_removes_nothing(
    ledger, open_ledger, queue, staged, clock
):
    clock.advance(staging.ABANDONED + 1)
    upkeeper = open_ledger()
    engine, mark = upkeeper.store.engine, upkeeper.store.engine.mark

    def late(*arguments):
        assert staged.publish()
        return mark(*arguments)

    engine.mark = late
    upkeeper.upkeep()
    assert staged.is_there and bodies(queue) == ["staged 0", "staged 1", "staged 2"]


def test_of_two_sends_under_one_transaction_one_is_published(ledger, queue, staged, clock):
    other = Staged(ledger, queue, clock)
    assert staged.publish(("attempt/x", 8))
    assert not other.publish(("attempt/x", 8))
    assert queue.counts().stored == ROWS


def test_files_that_somebody_removed_before_they_are_published_are_not_named_by_a_commit(ledger, queue, staged):
    staged.folders.remove(staged.folder)
    with pytest.raises(StorageFailed, match="was to be published, was removed"):
        staged.publish()
    assert queue.counts().stored == 0
    queue.send("another")
    assert [message.body for message in queue.receive(None)] == ["another"]
