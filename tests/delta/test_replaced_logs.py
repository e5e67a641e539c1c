"""A ledger that is removed and made anew, or replaced by a copy, under a process that has it open: the process notices,
loads the ledger anew, and decides anew."""

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.storage import HeldLog, LocalFiles
from ledger.errors import LedgerError, QueueDoesNotExist, StorageFailed
from ledger.settings import Settings
from ledger.store.delta.model.tables import TABLES


def replace(root, source):
    """Puts another ledger in the place of one, in the same folder, as `rm -rf` and `cp -r` do."""
    for table in TABLES:
        shutil.rmtree(Path(root, table))
        shutil.copytree(Path(source, table), Path(root, table))


@pytest.fixture
def made_anew(empty_ledger, root):
    """Removes the ledger, and makes it anew."""
    return lambda: replace(root, empty_ledger)


def versions(root):
    """All entries of the logs."""
    return sorted(str(path.relative_to(root)) for path in Path(root).glob("*/_delta_log/*.json"))


def whole(root, open_ledger):
    """Whether each log has all versions, and the ledger opens and counts."""
    for table in TABLES:
        there = sorted(int(path.stem) for path in Path(root, table, "_delta_log").glob("*.json"))
        assert there == list(range(there[0], there[-1] + 1)), table
    return open_ledger()


VERBS = {
    "send": lambda queue, claim: queue.send("lost?"),
    "receive": lambda queue, claim: queue.receive(1),
    "counts": lambda queue, claim: queue.counts(),
    "peek": lambda queue, claim: queue.peek(claim.messages()[0].message_id),
    "extend": lambda queue, claim: claim.extend(60),
    "delete": lambda queue, claim: claim.delete(),
    "purge": lambda queue, claim: queue.purge(),
    "attributes": lambda queue, claim: queue.attributes(),
}


@pytest.mark.parametrize("longer", [0, 12], ids=["shorter", "longer"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_queue_of_a_ledger_that_was_made_anew_is_gone_for_every_verb(open_ledger, made_anew, root, verb, longer):
    queue = open_ledger().create_queue("work")
    queue.send(["a", "b"])
    claim = queue.receive(1)
    claim.messages()
    made_anew()
    other = open_ledger().create_queue("work")
    for _ in range(longer):
        other.send("theirs")
        other.receive(1)
    known, counts = versions(root), other.counts()
    with pytest.raises(QueueDoesNotExist):
        VERBS[verb](queue, claim)
    assert versions(root) == known and other.counts() == counts


def test_the_same_ledger_object_uses_the_ledger_that_was_made_anew(open_ledger, made_anew):
    ledger = open_ledger()
    events = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    events.send([{"MessageBody": "a", "MessageGroupId": "g"}])
    assert events.receive(1).messages()[0].body == "a"
    made_anew()
    events = ledger.create_queue("events.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    events.send([{"MessageBody": body, "MessageGroupId": "g"} for body in "ab"])
    assert [message.body for message in events.receive(2).messages()] == ["a", "b"]
    assert ledger.queue("events.fifo").counts() == open_ledger().queue("events.fifo").counts()


@pytest.mark.parametrize("moment", ["chosen", "committed"])
@pytest.mark.parametrize("verb", ["send", "receive", "delete"])
def test_a_ledger_that_is_made_anew_in_the_middle_of_a_verb_answers_with_an_error_or_not_at_all(
    open_ledger, made_anew, root, verb, moment
):
    ledger = open_ledger()
    queue = ledger.create_queue("work")
    queue.send(["a", "b"])
    claim = queue.receive(1)

    def then(step):
        if step == moment:
            ledger.store.transactions.on_step = lambda step: None
            made_anew()
            open_ledger().create_queue("work")

    ledger.store.transactions.on_step = then
    if moment == "chosen":
        with pytest.raises(QueueDoesNotExist):
            VERBS[verb](queue, claim)
    else:
        # It was committed, and answered, to the ledger of before.
        with_error = pytest.raises(QueueDoesNotExist) if verb == "send" else None
        try:
            VERBS[verb](queue, claim)
        except QueueDoesNotExist:
            assert with_error is not None or verb != "receive"
    assert whole(root, open_ledger).queue("work").counts() == ledger.queue("work").counts()


def test_a_copy_that_is_put_back_in_place_is_noticed_by_who_had_seen_more(open_ledger, root, tmp_path):
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send(["a", "b", "c", "d"])
    queue.receive(1).delete()
    shutil.copytree(root, tmp_path / "copy")
    newer = queue.receive(1)
    queue.receive(1).delete()
    queue.send("late")
    replace(root, tmp_path / "copy")
    assert queue.counts().visible == 3 and not queue.counts().in_flight
    other = open_ledger().queue("work")
    theirs = other.receive(3)
    with pytest.raises(LedgerError):
        newer.extend(60)
    assert queue.counts().in_flight == 3
    assert len(queue.send(["e", "f"])) == 2
    assert whole(root, open_ledger).queue("work").counts().visible == 2
    theirs.delete()
    assert sorted(message.body for message in queue.receive(5).messages()) == ["e", "f"]


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_a_copy_to_which_others_have_committed_is_noticed_whatever_version_it_has(open_ledger, root, tmp_path, ahead):
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send([str(n) for n in range(20)])
    shutil.copytree(root, tmp_path / "copy")
    mine = [queue.receive(1) for _ in range(3)]
    replace(root, tmp_path / "copy")
    other = open_ledger().queue("work")
    theirs = [other.receive(1) for _ in range(3 + ahead)]
    assert queue.counts().in_flight == 3 + ahead
    for claim in mine:
        with pytest.raises(LedgerError):
            claim.extend(60)
    queue.receive(1)
    assert whole(root, open_ledger).queue("work").counts().in_flight == 4 + ahead
    for claim in theirs:
        claim.delete()


def test_a_commit_behind_a_version_that_is_gone_is_taken_back(open_ledger, root, tmp_path, monkeypatch):
    """The copy comes in the very moment between the last look and the commit."""
    queue = open_ledger().create_queue("work", {"Lanes": 1})
    queue.send(["a", "b", "c"])
    shutil.copytree(root, tmp_path / "copy")
    queue.receive(1)
    put_new = HeldLog.put_new

    def behind_a_copy(files, path, content):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        replace(root, tmp_path / "copy")
        return put_new(files, path, content)

    monkeypatch.setattr(HeldLog, "put_new", behind_a_copy)
    claim = queue.receive(1)
    assert len(claim.messages()) == 1
    assert whole(root, open_ledger).queue("work").counts().in_flight == 1


def test_a_commit_does_not_join_a_new_ledger_with_as_many_versions(open_ledger, root, monkeypatch):
    """The folder is renamed, and a ledger is made there, in the very moment between the last look and the commit."""
    queue = open_ledger().create_queue("work", {"Lanes": 1})
    queue.send(["a", "b"])
    put_new = HeldLog.put_new

    def behind_a_new_ledger(log, path, content):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        Path(root).rename(f"{root}-away")
        open_ledger().create_queue("work", {"Lanes": 1}).send("theirs")
        return put_new(log, path, content)

    monkeypatch.setattr(HeldLog, "put_new", behind_a_new_ledger)
    with pytest.raises(QueueDoesNotExist):
        queue.send("mine")
    other = whole(root, open_ledger).queue("work").receive(10)
    assert [message.body for message in other.messages()] == ["theirs"]


@pytest.mark.parametrize("merge", ["auto", "statement"])
def test_a_checkpoint_lies_in_the_log_that_it_sums_up(open_ledger, root, monkeypatch, merge):
    """Not in that of a ledger which was made in its place while the checkpoint was: it would name other files."""
    queue = open_ledger(merge=merge).create_queue("work", {"Lanes": 1})
    replace_file = HeldLog.replace

    def beside_a_new_ledger(log, path, content):
        monkeypatch.setattr(HeldLog, "replace", replace_file)
        Path(root).rename(f"{root}-away")
        open_ledger().create_queue("work", {"Lanes": 1}).send("theirs")
        replace_file(log, path, content)

    monkeypatch.setattr(HeldLog, "replace", beside_a_new_ledger)
    sent = 0
    with suppress(QueueDoesNotExist):
        while not Path(f"{root}-away").exists():
            queue.send(f"{sent}")
            sent += 1
    assert not list(Path(root).glob("*/_delta_log/*checkpoint*"))
    assert list(Path(f"{root}-away").glob("messages/_delta_log/*.checkpoint.parquet"))
    other = whole(root, open_ledger).queue("work").receive(10)
    assert [message.body for message in other.messages()] == ["theirs"]


COMMITS = {
    "mark": lambda engine: engine.mark("messages", {"operation": "x"}, ("app", 1), ("app", 1)),
    "configure": lambda engine: engine.configure("messages", {"a.b": "c"}, {"operation": "x"}),
    "delete": lambda engine: engine.delete("messages", "lane = 0", {"operation": "x"}, engine.generation()),
}


@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)
def test_no_commit_of_a_statement_leaves_a_gap_in_the_log_of_a_shorter_copy(
    open_ledger, root, tmp_path, monkeypatch, commit
):
    """The copy comes in the very moment between the last look and the commit, which is taken back."""
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send("a")
    shutil.copytree(root, tmp_path / "copy")
    for body in "bcd":
        queue.send(body)
    put_new = HeldLog.put_new
    ledger.store.engine.version("messages")

    def behind_a_copy(files, path, content):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        replace(root, tmp_path / "copy")
        return put_new(files, path, content)

    monkeypatch.setattr(HeldLog, "put_new", behind_a_copy)
    with pytest.raises(Conflict):
        commit(ledger.store.engine)
    assert whole(root, open_ledger).queue("work").counts().visible == 1


@pytest.mark.parametrize("merge", ["auto", "statement"])
def test_a_send_whose_rows_lie_in_the_folder_of_before_is_sent_to_the_copy(
    open_ledger, root, tmp_path, clock, monkeypatch, merge
):
    """The copy has more versions. What a send has written is not there; it is written again."""
    queue = open_ledger(merge=merge).create_queue("work", {"Lanes": 1})
    queue.send("a")
    shutil.copytree(root, tmp_path / "copy")
    other = Ledger.open(str(tmp_path / "copy"), clock=clock).queue("work")
    for body in "wxyz":
        other.send(body)
    queue.send("b")
    put_new = HeldLog.put_new

    def behind_a_copy(files, path, content):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        replace(root, tmp_path / "copy")
        return put_new(files, path, content)

    monkeypatch.setattr(HeldLog, "put_new", behind_a_copy)
    queue.send("c")
    found = whole(root, open_ledger).queue("work").receive(10)
    assert sorted(message.body for message in found.messages()) == ["a", "c", "w", "x", "y", "z"]


def test_a_removed_ledger_is_an_error_also_for_who_only_reads(open_ledger, root):
    queue = open_ledger().create_queue("work")
    Path(root).rename(f"{root}-away")
    for verb in ("counts", "send", "receive"):
        with pytest.raises((StorageFailed, LedgerError)):
            VERBS[verb](queue, None)


@pytest.mark.parametrize("verb", ["send", "receive", "extend", "delete"])
def test_a_ledger_that_is_removed_between_a_decision_and_its_commit_is_a_failure_of_the_storage(
    open_ledger, root, verb
):
    ledger = open_ledger()
    queue = ledger.create_queue("work")
    queue.send(["a", "b"])
    claim = queue.receive(1)
    known = queue.counts()

    def then(step):
        if step == "chosen":
            Path(root).rename(f"{root}-away")

    ledger.store.transactions.on_step = then
    with pytest.raises(StorageFailed):
        VERBS[verb](queue, claim)
    assert not Path(root).exists(), "no data file is written below a root that is gone"
    Path(f"{root}-away").rename(root)
    assert queue.counts() == known


@pytest.mark.parametrize("sync", [True, False])
def test_the_first_send_of_a_process_notices_a_ledger_that_was_made_anew_since_its_queue_was_looked_up(
    open_ledger, made_anew, root, sync, clock
):
    """A process that has read no entry of a log has nothing to compare it with."""
    open_ledger().create_queue("work")
    armed = []

    def interrupted():
        if armed:
            armed.pop()
            made_anew()
            open_ledger().create_queue("work")
        return clock()

    queue = Ledger.open(root, clock=interrupted, settings=Settings(sync=sync)).queue("work")
    armed.append(True)
    with pytest.raises(QueueDoesNotExist):
        queue.send("lost?")
    assert not armed


def test_a_log_that_was_copied_is_the_same_one(open_ledger, root, tmp_path):
    """rsync to another disk and back, say: other files, of the same content."""
    ledger = open_ledger()
    queue = ledger.create_queue("work")
    queue.send("a")
    claim = queue.receive(1)
    shutil.copytree(root, tmp_path / "copy")
    replace(root, tmp_path / "copy")
    claim.delete()
    queue.send("b")
    assert queue.receive(1).messages()[0].body == "b"
    assert ledger.store.engine.generation() == 0


def test_a_read_only_ledger_notices_too(open_ledger, made_anew, root):
    queue = open_ledger().create_queue("work")
    queue.send("a")
    looking = Ledger.open(root, read_only=True)
    assert looking.sql("SELECT body FROM messages").num_rows == 1
    made_anew()
    assert looking.sql("SELECT body FROM messages").num_rows == 0


@pytest.mark.soak_variants("spark*")
def test_each_engine_works_on_the_ledger_that_was_made_anew(open_ledger, made_anew, engine):
    ledger = open_ledger(engine)
    queue = ledger.create_queue("work")
    for body in "abc":
        queue.send(body)
    queue.receive(1).delete()
    made_anew()
    with pytest.raises(QueueDoesNotExist):
        queue.send("lost?")
    again = ledger.create_queue("work")
    again.send("mine")
    claim = again.receive(5)
    assert [message.body for message in claim.messages()] == ["mine"]
    claim.delete()
    assert open_ledger().queue("work").counts() == again.counts()
    ledger.upkeep()


def test_a_dataframe_that_was_written_below_a_ledger_that_was_replaced_is_not_published(
    open_ledger, made_anew, root, spark
):
    ledger = open_ledger(frames=True)
    queue = ledger.create_queue("work")
    queue.send("a")

    def then(step):
        if step == "chosen":
            ledger.store.transactions.on_step = lambda step: None
            made_anew()
            open_ledger().create_queue("work").send("b")

    ledger.store.transactions.on_step = then
    with pytest.raises((StorageFailed, QueueDoesNotExist)):
        queue.send(spark.range(100).selectExpr("CAST(id AS STRING) AS body"))
    assert whole(root, open_ledger).queue("work").counts().visible == 1
    assert open_ledger().queue("work").receive(5).messages()[0].body == "b"


def at_the_first(engine, method, table, monkeypatch, then):
    """Does `then` before the first call of an engine's method about a table."""
    right, armed = getattr(engine, method), [True]

    def interrupted(*arguments, **keywords):
        if armed and arguments[0] == table:
            armed.clear()
            then()
        return right(*arguments, **keywords)

    monkeypatch.setattr(engine, method, interrupted)


@pytest.mark.parametrize("table", ["messages", "visibility"])
@pytest.mark.parametrize("engine", ["delta-rs", pytest.param("spark", marks=pytest.mark.soak)])
def test_an_upkeep_drops_nothing_of_a_backup_that_is_put_in_place_meanwhile(
    open_ledger, root, tmp_path, clock, monkeypatch, table, engine
):
    """What was finished in the ledger of before is work in its backup, in the same segments of the same queues."""
    ledger = open_ledger(engine, keep_deleted_receipts=1)
    done, gone = ledger.create_queue("done", {"Lanes": 1}), ledger.create_queue("gone", {"Lanes": 1})
    done.send(["a", "b"], attempt_id="1")
    gone.send(["c", "d"], attempt_id="2")
    gone.receive(1).delete()
    open_ledger().backup(tmp_path / "copy")
    done.receive(None).delete()
    ledger.delete_queue("gone")
    clock.advance(60)
    restore = partial(Ledger.restore_backup, tmp_path / "copy", root, replace=True)
    at_the_first(ledger.store.engine, "delete", table, monkeypatch, restore)
    ledger.upkeep(vacuum=False)
    restored = open_ledger()
    assert restored.queue("done").counts().visible == 2
    assert (restored.queue("gone").counts().visible, restored.queue("gone").counts().deleted) == (1, 1)


def test_a_process_reads_few_entries_of_a_log_whose_versions_go_on_a_million_later(
    open_ledger, root, tmp_path, monkeypatch
):
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send(["a", "b"])
    ledger.backup(tmp_path / "copy")
    queue.receive(1)
    Ledger.restore_backup(tmp_path / "copy", root, replace=True)
    reads, right = [], LocalFiles.read

    def read(files, path):
        reads.append(path)
        assert len(reads) < 1_000, "each missing version is asked for"
        return right(files, path)

    monkeypatch.setattr(LocalFiles, "read", read)
    assert ledger.queue("work").counts().visible == 2
    ledger.upkeep()


def test_receipts_are_not_filled_from_the_log_of_a_ledger_that_was_replaced(open_ledger, root, tmp_path, monkeypatch):
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send(["a", "b"])
    ledger.backup(tmp_path / "copy")
    newer = queue.receive(1).receipt_id
    restore = partial(Ledger.restore_backup, tmp_path / "copy", root, replace=True)
    at_the_first(ledger.store.engine, "append", "receipts", monkeypatch, restore)
    ledger.fill_receipts()
    mine = ledger.queue("work").receive(1).receipt_id
    ledger.fill_receipts()
    told = ledger.sql("SELECT DISTINCT receipt_id FROM receipts")["receipt_id"].to_pylist()
    assert mine in told and newer not in told
