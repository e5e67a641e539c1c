"""What must be true after a power cut, by what was answered before it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger import Ledger, Settings
from ledger.errors import LedgerError
from tests.power.worker import QUEUE

HELD, GONE = "in flight", "deleted"


class Judge:
    """Knows what workers said in all rounds so far."""

    def __init__(self) -> None:
        self.answers = 0
        self._bodies: set[str] = set()
        self._ids: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._ending: set[str] = set()
        self._deleted: set[str] = set()
        self._written: set[str] = set()
        self._writing: set[str] = set()
        self._queues: set[str] = set()

    def hear(self, folder: Path) -> None:
        """Take in what the workers of a round said. A line that a kill has cut off was not said."""
        for file in sorted(folder.iterdir()):
            for line in file.read_text().split("\n")[:-1]:
                self._hear(**json.loads(line))

    def _hear(self, kind: str, **said: Any) -> None:
        ids = said.get("ids", [])
        if kind == "sent":
            self._ids.update(ids)
            self._bodies.update(ids.values())
        elif kind == "sent in bulk":
            self._bodies.update(said["bodies"])
        elif kind == "held":
            self._held.update(dict.fromkeys(ids, said["receipt"]))
        elif kind in ("deleting", "writing"):
            self._ending.update(ids)
            self._writing.update(ids if kind == "writing" else ())
        elif kind in ("deleted", "written"):
            self._deleted.update(ids)
            self._written.update(ids if kind == "written" else ())
        elif kind == "created":
            self._queues.add(said["name"])
        self.answers += kind in ("sent", "sent in bulk", "held", "deleted", "written", "created")

    def wrong(self, root: Path, output: Path) -> list[str]:
        """What is not as it must be, in words; empty where all is."""
        try:
            return list(self._wrong(root, output))
        except (LedgerError, DeltaError, pa.ArrowException) as error:
            return [f"it cannot be read: {type(error).__name__}: {str(error)[:300]}"]

    def _wrong(self, root: Path, output: Path) -> Iterator[str]:
        if not root.exists() and not self.answers:
            return
        ledger = Ledger.open(str(root), settings=Settings(sync=False))
        names = {queue.name for queue in ledger.list_queues()}
        yield from (f"the queue {name} is gone" for name in sorted(self._queues - names))
        if not self.answers:
            return
        rows = ledger.sql(f"SELECT message_id, body, status FROM messages WHERE queue = '{QUEUE}'").to_pylist()
        known = {row["message_id"]: row for row in rows}
        bodies = Counter(row["body"] for row in rows)
        yield from (f"{body} is there {count} times" for body, count in bodies.items() if count > 1)
        # What is deleted may be dropped: it is missing rightly.
        dropped = {self._ids[one] for one in self._ending if one in self._ids}
        for body in sorted(self._bodies - bodies.keys() - dropped):
            if not self._may_be_dropped(body):
                yield f"{body}, which was sent, is gone"
        for one in sorted(self._deleted & known.keys()):
            if known[one]["status"] != GONE:
                yield f"{one}, which was deleted, is {known[one]['status']}"
        for one, receipt in sorted(self._held.items()):
            if one not in self._ending and (one not in known or known[one]["status"] != HELD):
                yield f"{one}, which is held by {receipt}, is {known.get(one, {}).get('status', 'gone')}"
        table = DeltaTable(str(output)).to_pyarrow_table() if output.exists() else pa.table({"message_id": []})
        written = Counter(table["message_id"].to_pylist())
        yield from (f"{one} is in the output {count} times" for one, count in written.items() if count > 1)
        yield from (f"{one}, which was written, is not in the output" for one in sorted(self._written - written.keys()))
        for one in sorted(self._writing & known.keys() - written.keys()):
            if known[one]["status"] == GONE:
                yield f"{one} is deleted, and not in the output"

    def _may_be_dropped(self, body: str) -> bool:
        """Whether it was sent in bulk, where nobody was told the ids, and may be one of those that were ended since."""
        return body not in self._ids.values() and len(self._ending) > len(self._ids.keys() & self._ending)
