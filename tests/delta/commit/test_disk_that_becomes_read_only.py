"""A disk that turns read-only under an open ledger, as one does that the system found broken: what writes says so and
does nothing, what reads goes on, and so do the same objects once it is writable again."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest

from ledger.errors import OutputNotWritten, StorageFailed
from ledger.store.delta.model.tables import TABLES
from tests.delta.commit.test_failures import CALLS
from tests.mounts import mount, unmount

#: Of CALLS, what has to be written.
WRITING = (
    *("send", "send under an attempt", "receive", "receive_many", "extend", "release", "delete", "write", "restore"),
    *("redrive", "purge", "copy_to", "set_attributes", "create_queue", "delete_queue", "fill_receipts", "upkeep"),
)
READING = [name for name in CALLS if name not in WRITING]


@pytest.fixture
def read_only():
    """A context in which these folders are disks that are mounted read-only."""
    mounted = []

    @contextlib.contextmanager
    def context(*folders):
        for folder in folders:
            if not mount("--bind", folder, folder):
                pytest.skip("only root can make a disk read-only, where mounts are allowed")
            mounted.append(folder)
            assert mount("-o", "remount,bind,ro", folder)
        yield
        for folder in folders:
            assert mount("-o", "remount,bind,rw", folder)

    yield context
    for folder in mounted:
        unmount(folder)


def seen(ledger):
    """All that verbs may change."""
    queues = {queue.name: (queue.attributes(), queue.counts()) for queue in ledger.list_queues()}
    rows = ledger.sql("SELECT message_id, queue, status, receive_count FROM messages ORDER BY message_id").to_pylist()
    return queues, rows, ledger.sql("SELECT event, messages FROM receipts").num_rows


@pytest.mark.parametrize(
    ("engine", "everything"),
    [
        # The locks are written first, and say so.
        ("delta-rs", True),
        # It turned so after the lock was taken: every commit fails.
        ("delta-rs", False),
        pytest.param("spark", False, marks=pytest.mark.soak),
    ],
)
def test_what_writes_names_the_disk_and_does_nothing_and_what_reads_goes_on(
    open_ledger, root, read_only, engine, everything
):
    ledger = open_ledger(engine)
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b", "c", "d"])
    ledger.create_queue("other")
    claim, done = queue.receive(1, 60), queue.receive(1, 60)
    done.delete()
    output = Path(f"{root}-output") / "table"
    output.parent.mkdir()

    def write(ledger, queue, claim):
        rows = claim.dataframe.select("message_id") if engine == "spark" else pa.table({"n": [1]})
        return claim.write(rows, str(output))

    calls = {**CALLS, "write": write, "restore": lambda *arguments: queue.restore(done.receipt_id)}
    # Each query through Spark takes seconds.
    reading = [name for name in READING if engine != "spark" or not name.startswith("sql of")]
    before = seen(ledger)
    tables = [f"{root}/{table}" for table in TABLES]
    with read_only(*([str(Path(root).parent)] if everything else [*tables, str(output.parent)])):
        for name in WRITING:
            with pytest.raises((StorageFailed, OutputNotWritten)) as failed:
                calls[name](ledger, queue, claim)
            # Spark has words of its own for a few of them.
            assert engine == "spark" or "Read-only file system" in str(failed.value), name
            assert (str(output) if name == "write" else root) in str(failed.value), name
            assert not getattr(failed.value, "unknown", False), name
        for name in reading:
            calls[name](ledger, queue, claim)
        assert seen(ledger) == before
    assert seen(ledger) == before
    assert claim.extend(70).messages == 1 and write(ledger, queue, claim).messages == 1
    assert queue.restore(done.receipt_id) == 1
    assert queue.receive(None).count == 3 and queue.receive(None).count == 0
    for name in ("send", "set_attributes", "create_queue", "redrive", "purge", "delete_queue", "upkeep", *reading):
        calls[name](ledger, queue, claim)
    assert [queue.name for queue in ledger.list_queues()] == ["jobs", "new"]
