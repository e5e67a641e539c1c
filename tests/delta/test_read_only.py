"""A ledger that one may only read: it opens, shows everything, and refuses what writes, whoever asks."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from ledger import InvalidParameterValue, Ledger, LedgerDoesNotExist, LedgerIsReadOnly, StorageFailed
from tests.clock import FrozenClock
from tests.delta.formats.write import END
from tests.delta.model.test_formats import ARCHIVES
from tests.sources import CHECKOUT

#: Nobody's user, to whom what belongs to others and is not writable is so.
NOBODY = 65_534


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "ledger")


@pytest.fixture
def queue(root):
    queue = Ledger.open(root, clock=FrozenClock()).create_queue("work", {"VisibilityTimeout": 600})
    queue.send(["a", "b"])
    return queue


def looking(root):
    return Ledger.open(root, read_only=True, clock=FrozenClock())


def files(root):
    return {path: path.stat().st_mtime_ns for path in sorted(Path(root).rglob("*"))}


def test_everything_is_shown_and_nothing_is_written(root, queue):
    claim = queue.receive()
    before = files(root)
    ledger = looking(root)
    (seen,) = ledger.list_queues()
    assert (seen.counts().visible, seen.counts().in_flight) == (1, 1)
    assert seen.attributes()["VisibilityTimeout"] == "600" and seen.tags() == {}
    held = seen.claim(claim.receipt_id)
    assert [message.body for message in held] == [message.body for message in claim]
    assert seen.peek(claim.messages()[0].message_id).receive_count == 1
    held.check()
    assert seen.dead_letter_source_queues() == [] and seen.list_message_move_tasks() == []
    assert ledger.health().queues == 1
    assert files(root) == before


def test_it_follows_what_others_write(root, queue):
    seen = looking(root).queue("work")
    assert seen.counts().visible == 2
    queue.receive(2)
    assert seen.counts().in_flight == 2


def sent_in_memory():
    """A queue with a message, to be copied from."""
    queue = Ledger.in_memory().create_queue("mine")
    queue.send("a")
    return queue


WRITING = {
    "send": lambda ledger, queue, claim: queue.send("a"),
    "send a table": lambda ledger, queue, claim: queue.send(pa.table({"body": ["a"]})),
    "receive": lambda ledger, queue, claim: queue.receive(),
    "receive_many": lambda ledger, queue, claim: queue.receive_many([(1,)]),
    "delete": lambda ledger, queue, claim: queue.delete(claim.messages()[0].receipt_handle),
    "extend": lambda ledger, queue, claim: claim.extend(9),
    "release": lambda ledger, queue, claim: claim.release(),
    "settle": lambda ledger, queue, claim: queue.settle(release=[claim.messages()[0].receipt_handle]),
    "write": lambda ledger, queue, claim: claim.write(pa.table({"n": [1]}), "/nowhere/out"),
    "lock": lambda ledger, queue, claim: queue.lock(claim.messages()[0].message_id, 9),
    "purge": lambda ledger, queue, claim: queue.purge(),
    "purge by age": lambda ledger, queue, claim: queue.purge(older_than=0),
    "copy_to": lambda ledger, queue, claim: sent_in_memory().copy_to(queue),
    "restore": lambda ledger, queue, claim: queue.restore(claim.receipt_id),
    "redrive": lambda ledger, queue, claim: queue.redrive(destination="work"),
    "set_attributes": lambda ledger, queue, claim: queue.set_attributes({"DelaySeconds": 1}),
    "tag": lambda ledger, queue, claim: queue.tag({"a": "b"}),
    "create_queue": lambda ledger, queue, claim: ledger.create_queue("new"),
    "delete_queue": lambda ledger, queue, claim: ledger.delete_queue("work"),
    "upkeep": lambda ledger, queue, claim: ledger.upkeep(),
    "fill_receipts": lambda ledger, queue, claim: ledger.fill_receipts(),
}


@pytest.mark.parametrize("verb", WRITING)
def test_what_writes_is_refused_before_it_looks_and_changes_nothing(root, queue, verb):
    receipt = queue.receive().receipt_id
    before, ledger = files(root), looking(root)
    seen = ledger.queue("work")
    with pytest.raises(LedgerIsReadOnly, match=r"read_only=True.*Nothing was changed"):
        WRITING[verb](ledger, seen, seen.claim(receipt))
    assert files(root) == before


def test_a_root_without_a_ledger_is_not_made(tmp_path):
    with pytest.raises(LedgerDoesNotExist):
        Ledger.open(str(tmp_path / "none"), read_only=True)
    assert not (tmp_path / "none").exists()
    with pytest.raises(InvalidParameterValue, match="read_only"):
        Ledger.open(str(tmp_path / "none"), read_only="yes")


def test_a_ledger_of_each_release_is_shown_as_it_is(tmp_path):
    for archive in ARCHIVES:
        shutil.unpack_archive(archive, tmp_path)
        root = str(tmp_path / "ledger")
        before = files(root)
        shown = {
            queue.name: queue.counts() for queue in Ledger.open(root, read_only=True, clock=lambda: END).list_queues()
        }
        assert files(root) == before and sum(counts.stored for counts in shown.values()) > 0
        later = Ledger.open(root, clock=lambda: END)
        assert shown == {queue.name: queue.counts() for queue in later.list_queues()}


#: All is imported before: nobody may not even read the interpreter, where that is root's.
AS_NOBODY = """
import json, os, sys
from ledger import Ledger, LedgerError
from ledger.cli import main

def look(root):
    said = []
    try:
        Ledger.open(root)
    except LedgerError as error:
        said.append(str(error))
    queue = Ledger.open(root, read_only=True).queue("work")
    said += [queue.counts().visible, [message.body for message in queue.claim(sys.argv[3])]]
    try:
        queue.receive()
    except LedgerError as error:
        said.append(type(error).__name__)
    return [*said, main(["queues", "list", "--root", root]), main(["history", "--root", root])]

look(sys.argv[2])
os.setgid({nobody}); os.setuid({nobody})
print(json.dumps(look(sys.argv[1])))
"""


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="becomes another user, which only root may")
def test_a_user_who_may_only_read_is_told_how_to_look_and_sees_all(root):
    queue = Ledger.open(root).create_queue("work", {"VisibilityTimeout": 600})
    queue.send(["a", "b"])
    claim = queue.receive()
    with tempfile.TemporaryDirectory() as folder:
        # Where pytest's own folders are, nobody else may look.
        theirs = Path(folder, "ledger")
        shutil.copytree(root, theirs)
        for one in (Path(folder), theirs, *theirs.rglob("*")):
            one.chmod(0o755 if one.is_dir() else 0o644)
        code = AS_NOBODY.replace("{nobody}", str(NOBODY))
        ran = subprocess.run(
            [sys.executable, "-c", code, str(theirs), root, claim.receipt_id],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr
    refused, visible, bodies, verb, *codes = json.loads(ran.stdout.splitlines()[-1])
    assert "read_only=True" in refused
    assert (visible, bodies, verb, codes) == (1, ["a"], "LedgerIsReadOnly", [0, 0])


def test_who_may_write_and_meets_a_failing_disk_is_not_told_how_to_look(root, queue):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(StorageFailed, match=os.strerror(errno.EFBIG)) as raised:
            Ledger.open(root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "read_only" not in str(raised.value)


def test_through_spark_views_are_shown_and_dataframes_are_neither_sent_nor_written(root, queue, spark, tmp_path):
    receipt = queue.receive().receipt_id
    before = files(root)
    ledger = Ledger.open(root, spark, read_only=True, clock=FrozenClock())
    seen = ledger.queue("work")
    assert sorted(row.status for row in ledger.view("messages").collect()) == ["in flight", "visible"]
    assert [row.event for row in ledger.view("receipts").collect()] == ["granted"]
    with pytest.raises(LedgerIsReadOnly, match="send"):
        seen.send(spark.createDataFrame([("a",)], "body string"))
    claim = seen.claim(receipt)
    with pytest.raises(LedgerIsReadOnly, match="write"):
        claim.write(claim.dataframe.select("message_id"), tmp_path / "out", messages="message_id")
    assert files(root) == before and not (tmp_path / "out").exists()
