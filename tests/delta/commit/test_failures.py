"""A storage that fails has a name, says where and why, and whether anything was changed; what landed is no failure."""

import contextlib
import resource
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ledger.delta_log import delta_rs_commits, log, replay
from ledger.delta_log.protocol import Conflict
from ledger.errors import LedgerDamaged, LedgerError, StorageFailed
from ledger.store.delta.commit.clocks import make_probe
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.views.statements import VIEWS
from tests.delta.commit.test_engines import Decision


@pytest.fixture
def queue(open_ledger):
    queue = open_ledger().create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b", "c"])
    return queue


@pytest.fixture
def log_of(root):
    """The folder of a table's log."""
    return lambda table: Path(root) / table / "_delta_log"


@contextlib.contextmanager
def full_disk(room=0):
    """No file may grow beyond `room` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def damage(log):
    newest = max(int(file.stem) for file in log.glob("*.json"))
    (log / f"{newest + 1:020}.json").write_text("{no commit")


def test_on_a_full_disk_a_send_says_that_nothing_was_sent(queue, root):
    with full_disk(), pytest.raises(StorageFailed, match="changed nothing") as failed:
        queue.send("d")
    assert (failed.value.place, failed.value.verb, failed.value.unknown) == (f"{root}/messages", "send", False)
    assert queue.counts().visible == 3
    queue.send("d")
    assert queue.counts().visible == 4


def test_on_a_full_disk_a_receive_says_that_nothing_was_granted(queue, root):
    with full_disk(), pytest.raises(StorageFailed, match="changed nothing") as failed:
        queue.receive()
    assert (failed.value.place, failed.value.verb, failed.value.unknown) == (f"{root}/visibility", "receive", False)
    assert queue.counts().visible == 3
    assert queue.receive(None).count == 3


#: What a user calls, of a claim that holds a message, its queue, and the ledger.
CALLS = {
    "send": lambda ledger, queue, claim: queue.send("d"),
    "send under an attempt": lambda ledger, queue, claim: queue.send("d", attempt_id="once"),
    "receive": lambda ledger, queue, claim: queue.receive(),
    "receive_many": lambda ledger, queue, claim: queue.receive_many([(1,), (1,)]),
    "extend": lambda ledger, queue, claim: claim.extend(70),
    "release": lambda ledger, queue, claim: claim.release(),
    "delete": lambda ledger, queue, claim: claim.delete(),
    "write": lambda ledger, queue, claim: claim.write(
        pa.table({"n": [1]}), str(Path(ledger.store.engine.place("messages")).parents[1] / "out")
    ),
    "check": lambda ledger, queue, claim: claim.check(),
    "messages": lambda ledger, queue, claim: queue.claim(claim.receipt_id).messages(),
    "restore": lambda ledger, queue, claim: queue.restore(claim.receipt_id),
    "release_postponed": lambda ledger, queue, claim: queue.release_postponed(),
    "redrive": lambda ledger, queue, claim: queue.redrive(destination="other"),
    "purge": lambda ledger, queue, claim: queue.purge(),
    "copy_to": lambda ledger, queue, claim: queue.copy_to(ledger.queue("other")),
    "counts": lambda ledger, queue, claim: queue.counts(),
    "set_attributes": lambda ledger, queue, claim: queue.set_attributes({"DelaySeconds": 1}),
    "create_queue": lambda ledger, queue, claim: ledger.create_queue("new"),
    "delete_queue": lambda ledger, queue, claim: ledger.delete_queue("other"),
    "fill_receipts": lambda ledger, queue, claim: ledger.fill_receipts(),
    "upkeep": lambda ledger, queue, claim: ledger.upkeep(),
    "health": lambda ledger, queue, claim: ledger.health(),
    **{
        f"sql of {view}": lambda ledger, queue, claim, view=view: ledger.sql(f"SELECT * FROM {view}")
        for view in (*VIEWS, "comments")
    },
}


def bare(*arguments):
    """Of CALLS, what ends in an error that is none of ours."""
    found = {}
    for name, call in CALLS.items():
        try:
            call(*arguments)
        except LedgerError:
            continue
        except Exception as error:
            found[name] = error
    return found


def test_on_a_full_disk_whatever_is_called_does_it_or_names_the_storage(open_ledger, queue):
    """A query of receipts ended in a bare OSError: what it reads is written to a file first."""
    ledger, claim = open_ledger(), queue.receive(1, 60)
    ledger.create_queue("other")
    with full_disk():
        assert bare(ledger, queue, claim) == {}


@pytest.mark.soak_variants("queues", "messages")
@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("table", TABLES)
def test_with_a_damaged_log_whatever_is_called_does_it_or_names_the_storage(open_ledger, queue, log_of, table):
    ledger, claim = open_ledger(), queue.receive(1, 60)
    ledger.create_queue("other")
    damage(log_of(table))
    assert bare(ledger, queue, claim) == {}


def test_what_committed_is_no_failure_though_its_checkpoint_cannot_be_written(queue, root, log_of):
    """Before, a receive whose checkpoint failed raised an OSError and held the messages all the same."""
    for table in ("messages", "visibility"):
        DeltaTable(f"{root}/{table}").alter.set_table_properties({"delta.checkpointInterval": "1"})
        # Whatever is written is renamed to its place, which fails where a folder is.
        (log_of(table) / "_last_checkpoint").unlink(missing_ok=True)
        (log_of(table) / "_last_checkpoint").mkdir()
    versions = []
    for number in range(3):
        queue.send(f"{number}")
        claim = queue.receive(2)
        versions.append(claim.version)
        assert claim.delete().messages == 2
    assert queue.counts().deleted == 6
    assert queue.counts().stored == 0
    assert versions == sorted(set(versions))


@pytest.mark.usefixtures("short_pauses")
def test_a_damaged_log_is_named(queue, open_ledger, log_of, engine, root):
    other = open_ledger(engine).queue("jobs")
    damage(log_of("visibility"))
    for verb in (other.counts, other.receive):
        with pytest.raises(LedgerDamaged, match=r"of the table visibility is damaged.*ledger repair"):
            verb()


def test_a_file_that_is_gone_is_named(queue, open_ledger, engine, root):
    for file in (Path(root) / "messages").rglob("*.parquet"):
        file.unlink()
    # Whoever has sent them may have their rows at hand.
    claim = open_ledger(engine).queue("jobs").receive(None)
    with pytest.raises(LedgerDamaged, match=r"of the table messages is damaged.*is missing"):
        claim.messages()


def test_a_lock_file_that_cannot_be_opened_is_named(queue, root):
    gate = Path(root) / "_locks" / "visibility.gate"
    gate.unlink()
    gate.mkdir()
    with pytest.raises(StorageFailed, match="changed nothing") as failed:
        queue.receive()
    assert failed.value.place == str(gate)


def test_a_place_that_takes_no_file_is_named_by_the_clock_that_is_read_there(tmp_path):
    with full_disk(), pytest.raises(StorageFailed, match="changed nothing") as failed:
        make_probe(tmp_path / "_locks")()
    assert failed.value.place == str(tmp_path / "_locks")


@contextlib.contextmanager
def missing(file, seconds):
    """Hides a file, and shows it again after so many seconds: what a listing beside writers misses."""
    hidden = file.with_name("hidden")
    file.rename(hidden)
    again = threading.Timer(seconds, hidden.rename, (file,))
    again.start()
    try:
        yield
    finally:
        again.join()


@pytest.mark.soak_variants("spark*")
def test_a_version_that_a_listing_misses_is_looked_for_again(queue, open_ledger, log_of, engine, monkeypatch):
    """What a folder holds is listed entry by entry while others commit: the newest versions may be seen, and not the
    one before. Upkeep said StorageFailed."""
    for module in (delta_rs_commits, replay):
        monkeypatch.setattr(module, "LISTED_AFTER", -1)
    follower = open_ledger(engine).queue("jobs")
    assert follower.counts().visible == 3
    for _ in range(3):
        queue.receive(1)
    for version in (1, 2):
        with missing(log_of("visibility") / f"{version:020}.json", 0.1):
            assert follower.counts().in_flight == 3
        with missing(log_of("visibility") / f"{version:020}.json", 0.1):
            assert open_ledger(engine).queue("jobs").counts().in_flight == 3


@pytest.mark.usefixtures("short_pauses")
def test_a_version_that_is_gone_for_good_is_a_damaged_log(queue, open_ledger, log_of, engine):
    for _ in range(3):
        queue.receive(1)
    (log_of("visibility") / f"{2:020}.json").unlink()
    with pytest.raises(LedgerDamaged, match=f"of the table visibility is damaged: .*{2:020}.json is missing"):
        open_ledger(engine).queue("jobs").counts()


@pytest.mark.parametrize("engine", ["delta-rs"])
def test_a_listing_that_misses_a_version_in_the_midst_of_a_commit_is_a_race(engine_of, root, engine, monkeypatch):
    """Both before a query's commit and after it the log is listed; whether it landed is looked for by its operation."""
    monkeypatch.setattr(log, "MOST_ROWS", 0)
    engine = engine_of(engine)
    stale = Decision(engine)
    for lane in (1, 2):
        Decision(engine, lane=lane).commit()
    with missing(Path(root) / "visibility" / "_delta_log" / f"{1:020}.json", 0.3), pytest.raises(Conflict):
        stale.commit()
