"""What a verb has answered survives a power cut: everything below a ledger is synced by then, in the right order.

What a cut really leaves is played in tests/power; here each verb is looked at by itself."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger import Ledger, Settings
from ledger.delta_log import durability
from ledger.delta_log import log as delta_log
from ledger.errors import StorageFailed
from ledger.store.delta.verbs.receipts import fill_receipts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc for which file is synced")
NOT_SYNCED = ("_locks", "_ledger_locks")


def path_of(descriptor):
    """Which file is open."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()


class Disk:
    """Knows what was synced: files by their sizes, folders by their names."""

    def __init__(self):
        self.synced, self.links, self.calls = {}, [], 0

    def sync(self, descriptor):
        path = path_of(descriptor)
        known = os.fstat(descriptor)
        self.synced[known.st_ino] = {one.name for one in path.iterdir()} if path.is_dir() else known.st_size
        self.calls += 1

    def forgets(self, root):
        """The paths below a folder that a power cut would lose now."""
        lost = []
        for path, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name not in NOT_SYNCED]
            names = self.synced.get(Path(path).stat().st_ino, set())
            lost += [f"{path}/{name}" for name in (*folders, *files) if name not in names]
            for name in files:
                known = Path(path, name).stat()
                lost += [f"{path}/{name} ({known.st_size} bytes)"] * (self.synced.get(known.st_ino) != known.st_size)
        return lost


@pytest.fixture
def disk(monkeypatch):
    disk, link = Disk(), os.link
    monkeypatch.setattr(durability, "sync", disk.sync)

    def linked(source, target, *, dst_dir_fd=None, **named):
        if dst_dir_fd is None:
            # The file of an export.
            return link(source, target, **named)
        # Before a commit can be seen, all but its own name must be on the disk.
        table = path_of(dst_dir_fd).parent
        disk.links += [one for one in disk.forgets(table) if "_delta_log" not in one]
        return link(source, target, dst_dir_fd=dst_dir_fd, **named)

    monkeypatch.setattr(os, "link", linked)
    return disk


def opened(root, **settings):
    return Ledger.open(str(root), settings=Settings(**settings))


@pytest.mark.parametrize("merge", ["auto", "statement"])
def test_after_each_verb_nothing_is_left_that_a_cut_would_lose(tmp_path, disk, merge):
    root, output = tmp_path / "a" / "ledger", str(tmp_path / "results" / "done")

    def done(answer):
        assert disk.forgets(tmp_path) == [] and disk.links == []
        return answer

    ledger = done(opened(root, keep_deleted_receipts=1, merge=merge))
    queue = done(ledger.create_queue("q", {"Lanes": 2, "VisibilityTimeout": 600}))
    done(queue.send([f"{n}" for n in range(6)]))
    done(queue.send(pa.table({"body": [f"bulk {n}" for n in range(100)]})))
    claim = done(queue.receive(3))
    done(claim.extend(700))
    handles = [message.receipt_handle for message in claim.messages()]
    done(claim.settle(delete=handles[:1], release=handles[1:]))
    done(queue.receive(1).delete())
    for _ in range(2):
        claim = queue.receive(2)
        ids = [message.message_id for message in claim.messages()]
        done(claim.write(pa.table({"message_id": ids}), output, messages="message_id"))
    assert DeltaTable(output).to_pyarrow_table().num_rows == 4
    done(queue.receive(None).delete())
    done(queue.purge())
    done(ledger.delete_queue("q"))
    done(ledger.upkeep())
    fifo = done(ledger.create_queue("f.fifo", {"FifoQueue": True}))
    done(fifo.send("one", message_group_id="g", message_deduplication_id="1"))
    done(fifo.send("one", message_group_id="g", message_deduplication_id="1"))


def test_statements_are_summed_up_in_checkpoints(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(delta_log, "is_due", lambda stored, version: True)
    queue = opened(tmp_path / "ledger", merge="statement").create_queue("q", {"Lanes": 1})
    queue.send("one")
    log = tmp_path / "ledger" / "visibility" / "_delta_log"
    DeltaTable(str(log.parent)).alter.set_table_properties({"delta.checkpointInterval": "4"})
    claim = queue.receive(1)
    for _ in range(3):
        claim.extend(60)
    assert (log / f"{4:020}.checkpoint.parquet").exists() and disk.forgets(tmp_path) == []
    assert claim.extend(60).messages == 1 and DeltaTable(str(log.parent)).version() == 6


def test_a_checkpoint_can_be_seen_when_it_is_on_the_disk(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(delta_log, "is_due", lambda stored, version: True)
    queue = opened(tmp_path / "ledger").create_queue("q", {"Lanes": 1})
    for n in range(60):
        queue.send(f"{n}")
    log = tmp_path / "ledger" / "messages" / "_delta_log"
    assert (log / f"{50:020}.checkpoint.parquet").exists() and (log / "_last_checkpoint").exists()
    assert disk.forgets(tmp_path) == []
    assert DeltaTable(str(log.parent)).version() >= 60 and queue.counts().visible == 60


def test_without_sync_nothing_is_synced(tmp_path, disk):
    queue = opened(tmp_path / "ledger", sync=False).create_queue("q")
    queue.send("one")
    queue.receive(1).delete()
    assert disk.calls == 0 and disk.forgets(tmp_path) != []


def test_a_process_with_sync_makes_durable_what_one_without_it_did(tmp_path, disk):
    """Of several tables: a delete relies on the send, and on the queue."""
    root = tmp_path / "ledger"
    other = opened(root, sync=False).create_queue("q", {"Lanes": 1})
    other.send(["one", "two"])
    held = other.receive(1)
    durability.known_tables.clear()
    assert disk.forgets(root) != []
    queue = opened(root).queue("q")
    # Tables that no verb relies on, too: a damaged one keeps the ledger from being opened.
    assert disk.forgets(root) == []
    other.send("three")
    assert disk.forgets(root) != []
    queue.receive(1).delete()
    assert disk.forgets(root) == [] and held.count == 1


@pytest.mark.parametrize("by", ["copy", "import"])
def test_a_copy_that_another_process_made_is_durable_before_it_counts_as_complete(tmp_path, disk, by):
    """Its owner may delete the source then. Before, a power cut could leave both queues empty."""
    source = opened(tmp_path / "source").create_queue("orders")
    source.send(["one", "two"])
    opened(tmp_path / "ledger").create_queue("orders")
    mine, other = (opened(tmp_path / "ledger", sync=sync).queue("orders") for sync in (True, False))
    if by == "import":
        file = source.export_to(tmp_path / "orders.parquet").path
    assert (source.copy_to(other) if by == "copy" else other.import_from(file)).messages == 2
    assert disk.forgets(tmp_path / "ledger") != []
    again = source.copy_to(mine) if by == "copy" else mine.import_from(file)
    assert (again.messages, again.before) == (0, 2)
    assert disk.forgets(tmp_path / "ledger") == []


@pytest.mark.parametrize("as_frame", [True, False])
def test_a_fifo_send_of_duplicates_is_answered_when_the_send_that_it_repeats_is_durable(
    tmp_path, disk, spark, as_frame
):
    other = opened(tmp_path / "ledger", sync=False)
    entry = {"MessageBody": "one", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    queue = other.create_queue("f.fifo", {"FifoQueue": True})
    mine = Ledger.open(str(tmp_path / "ledger"), spark, "delta-rs").queue("f.fifo")
    queue.send([entry])
    assert disk.forgets(tmp_path / "ledger") != []
    columns = ["'one' AS body", "'g' AS message_group_id", "'1' AS message_deduplication_id"]
    if as_frame:
        assert mine.send(spark.range(1).selectExpr(*columns)).count == 0
    else:
        assert all(mine.send([entry]))
    assert [one for one in disk.forgets(tmp_path / "ledger") if "/messages/" in one and "_staging" not in one] == []


@pytest.fixture
def lost_at_commit(monkeypatch, tmp_path, disk):
    """By table: what a cut would lose of the other tables of tmp_path/ledger when a commit to it became visible."""
    lost, link = {}, os.link

    def linked(source, target, *, dst_dir_fd, **named):
        mine = path_of(dst_dir_fd).parent.name
        lost[mine] = [one for one in disk.forgets(tmp_path / "ledger") if f"/ledger/{mine}/" not in one]
        link(source, target, dst_dir_fd=dst_dir_fd, **named)

    monkeypatch.setattr(os, "link", linked)
    return lost


def test_the_receipts_tell_of_nothing_that_a_cut_may_still_take_back(tmp_path, disk, lost_at_commit):
    root = tmp_path / "ledger"
    ledger = opened(root)
    ledger.create_queue("q", {"Lanes": 1}).send("one")
    other = opened(root, sync=False).queue("q")
    other.receive(1)
    assert any("/visibility/" in one for one in disk.forgets(root))
    fill_receipts(ledger.store.engine, ledger.store.transactions)
    assert lost_at_commit["receipts"] == []


def test_a_commit_notes_no_version_of_another_table_that_a_cut_may_still_take_back(tmp_path, disk, lost_at_commit):
    root = tmp_path / "ledger"
    queue = opened(root).create_queue("q", {"Lanes": 1})
    queue.send("one")
    claim = queue.receive(1)
    opened(root, sync=False).create_queue("another").send("two")
    claim.extend(90)
    assert lost_at_commit["visibility"] == []


def test_many_commits_of_others_are_synced_together(tmp_path, disk, monkeypatch):
    other = opened(tmp_path / "ledger", sync=False).create_queue("q", {"Lanes": 1})
    for n in range(durability.MOST_UNMARKED + 3):
        other.send(f"{n}")
    durability.known_tables.clear()
    called = []
    monkeypatch.setattr(os, "sync", lambda: called.append(1))
    opened(tmp_path / "ledger").queue("q").send("mine")
    assert called == [1]


def test_a_folder_that_cannot_be_synced_is_no_answer(tmp_path, disk, monkeypatch):
    """The commit can be seen, and nobody knows whether it survives: that is said."""
    ledger = opened(tmp_path / "ledger")
    queue = ledger.create_queue("q", {"Lanes": 1})

    def broken(descriptor):
        if str(path_of(descriptor)).endswith("messages/_delta_log"):
            raise OSError(5, "Input/output error")
        disk.sync(descriptor)

    monkeypatch.setattr(durability, "sync", broken)
    with pytest.raises(StorageFailed) as raised:
        queue.send("one")
    assert raised.value.unknown
    monkeypatch.setattr(durability, "sync", disk.sync)
    assert queue.counts().visible == 1
    queue.send("two")
    assert disk.forgets(tmp_path) == []


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_a_folder_above_that_was_not_synced_is_synced_by_the_next_call(tmp_path, disk, monkeypatch, error):
    above, failures = tmp_path / "new" / "above", [error]

    def broken(descriptor):
        if path_of(descriptor) == above and failures:
            raise failures.pop()
        disk.sync(descriptor)

    monkeypatch.setattr(durability, "sync", broken)
    # An error of a table's creation is looked over if the table is there.
    with contextlib.suppress(KeyboardInterrupt):
        opened(above / "below" / "ledger")
    opened(above / "below" / "ledger").create_queue("q").send("one")
    assert not failures and disk.forgets(tmp_path / "new") == []
    assert "new" in disk.synced[tmp_path.stat().st_ino]


def test_a_backup_and_a_restored_ledger_are_durable_with_all_folders_above_them(tmp_path, disk):
    ledger = opened(tmp_path / "ledger")
    ledger.create_queue("q").send("one")
    ledger.backup(str(tmp_path / "new" / "backup"))
    Ledger.restore_backup(str(tmp_path / "new" / "backup"), str(tmp_path / "other" / "above" / "ledger"))
    assert [path for folder in ("new", "other") for path in disk.forgets(tmp_path / folder)] == []
    assert {"new", "other"} <= disk.synced[tmp_path.stat().st_ino]


def test_bytes_that_cannot_be_synced_are_not_committed(tmp_path, disk, monkeypatch):
    queue = opened(tmp_path / "ledger").create_queue("q", {"Lanes": 1})

    def broken(descriptor):
        if path_of(descriptor).suffix == ".parquet":
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(durability, "sync", broken)
        with pytest.raises(StorageFailed) as raised:
            queue.send("one")
    assert not raised.value.unknown and queue.counts().stored == 0
    queue.send("two")
    assert queue.counts().visible == 1 and disk.forgets(tmp_path) != []


@pytest.mark.soak_variants("True")
@pytest.mark.parametrize("opens_anew", [False, True])
def test_what_was_durable_of_a_log_that_was_replaced_says_nothing_of_the_new_one(tmp_path, disk, opens_anew):
    root = tmp_path / "ledger"
    ledger = opened(root)
    queue = ledger.create_queue("q", {"Lanes": 1})
    for n in range(9):
        queue.send(f"{n}")
        queue.receive(1).delete()
    # Moved, and not removed: so no file of the new ledger has the number of one that was synced.
    root.rename(tmp_path / "old")
    subprocess.run([sys.executable, "-c", MADE_ANEW, str(root)], check=True, cwd=Path(__file__).parents[3])
    queue = (opened(root) if opens_anew else ledger).queue("q")
    queue.receive(1).delete()
    relied_on = [one for one in disk.forgets(root) if not any(name in one for name in ("receipts", "tasks"))]
    assert relied_on == []


#: Another process, without sync.
MADE_ANEW = """
import sys
from ledger import Ledger, Settings
queue = Ledger.open(sys.argv[1], settings=Settings(sync=False)).create_queue("q")
queue.send("new")
queue.send("newer")
"""
