"""A ledger on a name node and a data node of Hadoop: what is synced on the data node before a verb answers, and what is
there after both were killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.delta_log.spark_sessions import jvm_of
from ledger.errors import StorageFailed
from tests.power.storage import Storage, build

PROGRAM = Path(__file__).with_name("hdfs")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        sys.platform != "linux" or not all(map(shutil.which, ("gcc", "java", "mvn"))),
        reason="needs Linux, gcc, java and mvn: it compiles the library that records what is synced, and fetches HDFS",
    ),
]


class Hdfs:
    """A cluster of one name node and one data node, whose syncs are recorded."""

    def __init__(self, folder: Path, *, sync_on_close: bool) -> None:
        copy = folder / "program"
        shutil.copytree(PROGRAM, copy)
        command = ["mvn", "--quiet", "--batch-mode", "dependency:build-classpath", "-Dmdep.outputFile=classpath.txt"]
        subprocess.run(command, cwd=copy, check=True, timeout=600)
        self._program, self._path = copy, (copy / "classpath.txt").read_text().strip()
        self.storage = Storage(folder, build(folder))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._sync_on_close, self._process = str(sync_on_close).lower(), None

    def start(self) -> str:
        """Start the nodes on what is in the folder, and return the address of the file system."""
        arguments = str(self.storage.disk / "nodes"), str(self._port), self._sync_on_close
        command = ["java", "-cp", self._path, "Hdfs.java", *arguments]
        with (self._program / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._program,
                env=self.storage.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        said = self._process.stdout.readline().strip()
        assert said.startswith("hdfs://"), (self._program / "log").read_text()
        return said

    def kill(self) -> None:
        """End both nodes as a crash does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def synced(self) -> Mapping[int, int]:
        """By the ids of blocks: how many bytes were synced."""
        sizes = {}
        for line in (self.storage.disk.parent / "journal").read_text().splitlines():
            if line.startswith("F "):
                _, _, size, path = line.split(" ", 3)
                name = Path(path).name
                if name.startswith("blk_") and not name.endswith(".meta"):
                    sizes[int(name[4:])] = int(size)
        return sizes


@pytest.fixture
def hdfs(request, tmp_path) -> Iterator[Hdfs]:
    nodes = Hdfs(tmp_path, sync_on_close=request.param)
    yield nodes
    nodes.kill()


def blocks(spark, folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield of each file below a folder of HDFS: its path, and the id and size of its block."""
    path = jvm_of(spark).org.apache.hadoop.fs.Path(folder)
    system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    files = system.listFiles(path, True)
    while files.hasNext():
        known = files.next().getPath()
        stream = system.open(known)
        for located in stream.getAllBlocks():
            yield known.toUri().getPath(), located.getBlock().getBlockId(), located.getBlock().getNumBytes()
        stream.close()


@pytest.mark.parametrize("hdfs", [False], indirect=True)
def test_what_verbs_answered_is_on_the_data_nodes_disk_and_there_after_both_nodes_were_killed(spark, hdfs):
    """Spark does not sync what it writes by itself (guarantees.md): new tables, and rows of bulk sends."""
    root = hdfs.start() + "/ledger"
    queue = Ledger.open(root, spark=spark).create_queue("jobs")
    made = {path for path, _, _ in blocks(spark, root)}
    queue.send([f"{number}" for number in range(5)])
    claim = queue.receive(3, 600)
    claim.extend(900)
    claim.delete()
    held = queue.receive(1, 600)
    synced = hdfs.synced()
    answered = [(path, block, size) for path, block, size in blocks(spark, root) if path not in made]
    assert len([path for path, _, _ in answered if "/_delta_log/" in path]) >= 5
    assert [path for path, block, size in answered if synced.get(block, -1) < size] == []

    hdfs.kill()
    hdfs.start()
    with contextlib.suppress(StorageFailed):  # once: Hadoop's client has its connection to the nodes of before
        Ledger.open(root, spark=spark)
    again = Ledger.open(root, spark=spark).queue("jobs")
    counts = again.counts()
    assert (counts.visible, counts.in_flight, counts.deleted) == (1, 1, 3)
    assert held.delete().messages == 1
    assert [message.body for message in again.receive(5).messages()] == ["4"]


@pytest.mark.parametrize("hdfs", [True], indirect=True)
def test_data_nodes_that_sync_on_close_sync_what_spark_writes_too(spark, hdfs):
    """The setting dfs.datanode.synconclose, which guarantees.md names."""
    root = hdfs.start() + "/ledger"
    queue = Ledger.open(root, spark=spark).create_queue("jobs")
    queue.send(spark.range(10_000).selectExpr("cast(id AS string) AS body"))
    claim = queue.receive(4_000, 600)
    claim.write(claim.dataframe.select("message_id", "body"), root + "-output")
    synced, files = hdfs.synced(), [*blocks(spark, root), *blocks(spark, root + "-output")]
    assert [path for path, block, size in files if synced.get(block, -1) < size] == []
