"""What an upkeep removes from the disk: also what no log tells of, and nothing that somebody may yet need."""

import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ledger.delta_log.maintenance import KNOWN, UNCOMMITTED_HOURS, find_unneeded_files
from ledger.rules import staging
from ledger.store.delta.model.tables import TABLES

DAYS = 86_400


@pytest.fixture
def left(root, open_ledger):
    """Makes a file of a table, as old as is said, and says whether it is there yet."""
    queue = open_ledger().create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    queue.receive(1, 60).extend(70)

    def make(table, path, days):
        """`path`: as it stands, or of a file among those of rows."""
        folders = [] if "/" in path or "." not in path else [f"{name}=1" for name in TABLES[table].partitions]
        file = Path(root, table, *folders, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"of a commit that lost")
        os.utime(file, (time.time() - days * DAYS,) * 2)
        return file.exists

    return make


@pytest.mark.parametrize("table", ["visibility", "messages", "receipts", "queues"])
def test_what_no_commit_names_goes_once_nobody_can_be_about_to_commit_it(left, open_ledger, table):
    """Of lost commits and killed writers nothing was ever removed, and of what a checkpoint had forgotten neither."""
    old, young = left(table, "old.parquet", 8), left(table, "young.parquet", 1)
    # A table of somebody's below it, which vacuum would have, too.
    others = left(table, "mine/theirs.parquet", 8), left(table, "mine/day=1/theirs.parquet", 8)
    ledger = open_ledger()
    assert ledger.health().tables[table].orphans == 1
    ledger.upkeep()
    assert not old() and young() and all(there() for there in others)
    assert ledger.health().tables[table].orphans == 0
    assert sorted(message.body for message in ledger.queue("jobs").receive(None)) == ["b"]


def test_however_short_the_retention_is_what_may_be_on_its_way_stays(left, open_ledger):
    between = left("visibility", "between.parquet", 1)
    old = left("visibility", "old.parquet", UNCOMMITTED_HOURS / 24 + 0.1)
    ledger = open_ledger(log_retention=86_400, deleted_file_retention=3_600)
    ledger.upkeep()
    assert between() and not old()


def test_what_a_bulk_send_has_staged_and_what_is_no_file_of_rows_is_left_alone(left, open_ledger):
    folder = staging.new_folder(1)
    staged = left("messages", f"{staging.FOLDER}/{folder}/ordinal=0/part-0.parquet", 8)
    others = left("messages", "./notes.txt", 8), left("messages", "else/_delta_log/1.checkpoint.parquet", 8)
    loaded = DeltaTable(open_ledger().store.engine.place("messages"))
    assert len(loaded.vacuum(dry_run=True, full=True)) == 3, "which delta-rs would remove"
    engine = open_ledger().store.engine
    engine.vacuum("messages")
    assert staged() and all(there() for there in others)
    engine.mark("messages", {"operation": "x"}, (staging.application(folder), staging.PUBLISHED))
    engine.vacuum("messages")
    assert not staged(), "it was published, and no version has it any more"


def test_one_that_stood_still_since_it_loaded_the_table_takes_nothing_for_left_behind(left, root, open_ledger):
    """What was committed meanwhile may be days old by then, and no version that it knows has it."""
    loaded = DeltaTable(f"{root}/visibility")
    left("visibility", "committed_meanwhile.parquet", 8)
    now = time.time()
    assert find_unneeded_files(loaded, now) == {"queue=1/lane=1/committed_meanwhile.parquet"}
    assert find_unneeded_files(loaded, now - KNOWN - 60) == find_unneeded_files(loaded, now + 60) == set()
