"""What is there before the blocks of a page run, and what must be so after, beyond that they ran."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledger import Ledger


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Scene:
    """How the blocks of a page are run. All of it happens in the page's own folder."""

    before: Callable[[], None] = _nothing
    #: Is given the namespace of the Python blocks, and what each block for a shell printed.
    after: Callable[[dict, list[str]], None] = _nothing
    #: Texts that stand for others while the page is run: smaller numbers, this machine's names.
    replaced: Mapping[str, str] = field(default_factory=dict)
    #: Whether the page's Python starts a JVM.
    spark: bool = False
    #: Whether blocks for a shell run in this process, line by line: for pages of many commands of `ledger`.
    in_process: bool = False


#: Sessions of the suite are for tiny tables.
SMALL_SESSION = {'spark_session("mine")': 'spark_session("mine", small=True)'}
SMALL_SESSION |= {'spark_session("lesson")': 'spark_session("lesson", small=True)'}
SMALL_SESSION |= {'spark_session("example")': 'spark_session("example", small=True)'}

#: Each process takes seconds of a core to start, and a run ends when the visibility timeout brings nothing back.
FEWER_PROCESSES = {"processes=3": "processes=2", "--processes 3": "--processes 1"}
FEWER_PROCESSES |= {'"VisibilityTimeout": 30': '"VisibilityTimeout": 6'}
#: Each prompt takes 0.2 seconds of an API in its place.
FEWER_PROMPTS = {"range(2_000)": "range(400)"}


def _rows_of(table: str) -> list[dict]:
    """Return the rows of a Delta table without a reader of delta-rs's, which may abort a process that ends."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    return pq.read_table(DeltaTable(table).file_uris()).to_pylist()


def _readme_after(names: dict, _: list[str]) -> None:
    counts = names["queue"].counts()
    assert (counts.deleted, counts.visible) == (10_000, 1)
    totals = [row["total"] for row in _rows_of("results/totals")]
    assert sorted(totals) == [2 * number for number in range(10_000)]


def _first_queue_after(names: dict, said: list[str]) -> None:
    counts = names["queue"].counts()
    assert (counts.deleted, counts.visible, counts.in_flight) == (4, 6, 0)
    assert "orders" in said[0] and "no address" in said[0], "the queue, and the history"


def _spark_worker_after(names: dict, _: list[str]) -> None:
    written = names["written"]
    assert written.count() == written.select("message_id").distinct().count() == 1_000, "the loop squares the rest"
    assert names["queue"].counts().deleted == 1_000


def _killed_worker_after(names: dict, said: list[str]) -> None:
    orders = names["orders"]
    assert len(orders) == len(set(orders)) == 600
    assert names["queue"].counts().deleted == 600
    assert names["left"].in_flight > 0, "the victim died holding messages"


def _python_after(names: dict, _: list[str]) -> None:
    spark, queue = names["spark"], names["queue"]
    written = spark.read.format("delta").load("results/done")
    assert written.count() == written.select("message_id").distinct().count() == 2_997
    orders, events, copies = names["orders"].counts(), names["events"].counts(), names["copies"].counts()
    # Delays and leases may be over on a machine that is busy.
    assert orders.stored == 3 and events.stored + events.in_flight == 3_000
    assert copies.stored == 6, "a copy, and an import"
    counts = queue.counts()
    # Four were left when the claim had deleted all that it could: three failures, and the first of the two sent apart.
    assert counts.deleted == 2_999 and counts.stored + counts.in_flight == 3, counts


def _command_line_before() -> None:
    Path("orders.csv").write_text("id,total\n1,2.50\n2,3.50\n3,4.50\n")


def _command_line_after(_: dict, said: list[str]) -> None:
    assert "sent 3 messages to work\n" in said[1]
    assert "deleted 1 message\n" in said[2]
    document = next(line for line in said[5].splitlines() if line.startswith("{"))
    assert json.loads(document)["ledger"]["tables"], "the doctor looked at the ledger"


def _without_spark_before() -> None:
    Ledger.open("prompts-ledger")


def _without_spark_after(_: dict, said: list[str]) -> None:
    first, failed, parked, consumed = said
    assert "messages=400" in first and "rejected=1" in first and "failed=3" in first and "cost=1200" in first
    rows = _rows_of("answers")
    assert len(rows) == 400 == len({row["message_id"] for row in rows})
    assert "an empty prompt" in failed and "ValueError: no such language (prompts.py:14)" in failed
    assert "moved 2 messages" in failed and "released 0 messages" in parked
    assert "consumed 0 messages" in consumed
    # The mended function does what failed, and what was sent is not sent again.
    import os
    import subprocess
    import sys

    Path("prompts.py").write_text(Path("prompts.py").read_text().replace('== "poison"', '== "venom"'))
    os.environ["LEDGER_ROOT"] = "prompts-ledger"
    subprocess.run([sys.executable, "-m", "ledger.cli", "redrive", "dead"], check=True)
    again = subprocess.run([sys.executable, "run.py"], check=True, capture_output=True, text=True)
    assert "messages=1," in again.stdout


def _sql_before() -> None:
    # The examples look at what was in January.
    early = Ledger.open("ledger-data", clock=lambda: 1_769_000_000_000).create_queue("early")
    early.send("x")
    early.receive()
    queue = Ledger.open("ledger-data", owner="worker").create_queue("orders", {"Lanes": 1})
    queue.send(["a", "b"])
    queue.receive().release(reason="no number")
    queue.receive()


def _sql_after(names: dict, _: list[str]) -> None:
    ledger = names["ledger"]
    assert ledger.sql("SELECT queue FROM queue_depth").num_rows == 2
    assert ledger.sql("SELECT owner FROM in_flight WHERE queue = 'orders'").to_pylist() == [{"owner": "worker"}]
    then = ledger.sql("SELECT queue FROM messages", timestamp="2026-01-31T03:00:00+00:00").to_pylist()
    assert then == [{"queue": "early"}], "what is newer is not told"
    assert ledger.sql("SELECT * FROM comments").num_rows > 50


def _notebooks_after(names: dict, _: list[str]) -> None:
    assert names["queue"].plot(last=3_600).axes


SCENES: dict[str, Scene] = {
    "README.md": Scene(after=_readme_after),
    "docs/tutorials/first-queue.md": Scene(after=_first_queue_after),
    "docs/tutorials/spark-worker.md": Scene(after=_spark_worker_after, replaced=SMALL_SESSION, spark=True),
    "docs/tutorials/killed-worker.md": Scene(after=_killed_worker_after),
    "docs/how-to/python.md": Scene(after=_python_after, replaced={"1_000_000": "3_000", **SMALL_SESSION}, spark=True),
    "docs/how-to/command-line.md": Scene(_command_line_before, _command_line_after, in_process=True),
    "docs/how-to/without-spark.md": Scene(
        _without_spark_before, _without_spark_after, replaced=FEWER_PROCESSES | FEWER_PROMPTS
    ),
    "docs/how-to/sql.md": Scene(_sql_before, _sql_after),
    "docs/examples/spark_worker.py": Scene(replaced=SMALL_SESSION, spark=True),
    "docs/how-to/notebooks.md": Scene(_sql_before, _notebooks_after),
}
