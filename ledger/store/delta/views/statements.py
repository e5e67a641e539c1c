"""The views as SQL statements, the comments on them and their columns, and the rows of queue_depth without SQL.

In the rows of `queue_depth()`, `age_of_oldest` may be that of a message that is gone (see `Classified.oldest_sent_at`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import pyarrow as pa

from ledger.errors import InvalidParameterValue
from ledger.rules.limits import MILLISECONDS
from ledger.rules.visibility import Status
from ledger.store.delta.dataframes.columns import (
    BITS_OF_BLOCK,
    BLOCK_SHIFT,
    BLOCKS,
    EXPIRES_AT,
    SHOWN_COLUMNS,
    STATUS,
    WORD,
    is_member,
)
from ledger.store.delta.model.tables import TABLES
from ledger.store.delta.verbs.store import AllCounts

VIEWS = ("messages", "in_flight", "queue_depth", "dead_letters", "processing_times", "receipts")
_LINE, _COLUMN = "-- ", re.compile(r"(\w+): (.+)")


class Comments(NamedTuple):
    view: str
    columns: Mapping[str, str]


def comments_of(name: str) -> Comments:
    """Return the comments of a view. Raises InvalidParameterValue for an unknown name."""
    lines_of_view, columns = [], {}
    for line in _text(name).splitlines():
        if not line.startswith(_LINE):
            break
        column = _COLUMN.fullmatch(line[len(_LINE) :])
        if column:
            columns[column[1]] = column[2]
        else:
            lines_of_view.append(line[len(_LINE) :])
    return Comments(" ".join(lines_of_view), columns)


def list_comments() -> pa.Table:
    """Return rows: view, column (null for a view), comment."""
    rows = []
    for name in VIEWS:
        of_view = comments_of(name)
        rows += [(name, None, of_view.view), *((name, column, text) for column, text in of_view.columns.items())]
    return pa.table([pa.array(values, pa.string()) for values in zip(*rows)], ["view", "column", "comment"])


def tables_of(name: str) -> set[str]:
    text = _text(name) + (_text("messages") if "{messages_view}" in _text(name) else "")
    return set(re.findall(r"\{(\w+)\}", text)) & set(TABLES)


def view_statement(name: str, tables: Mapping[str, str], now: str) -> str:
    """Return the SELECT of a view. `tables` has the SQL that names each table, and `now` is an instant in SQL."""
    values = {"now": now, "status": STATUS.format(now=now), "expires_at": EXPIRES_AT, "block_shift": BLOCK_SHIFT}
    values |= {"blocks": BLOCKS, "word": WORD, "bits": BITS_OF_BLOCK, "fields": ",\n    ".join(SHOWN_COLUMNS)}
    values |= {"is_member": is_member("stored.seq", "recorded."), "is_member_dead": is_member("dead.seq", "recorded.")}
    values |= tables
    if "{messages_view}" in _text(name):
        values["messages_view"] = _text("messages").format(**values)
    return _text(name).format(**values)


@lru_cache(maxsize=len(VIEWS))
def _text(name: str) -> str:
    if name not in VIEWS:
        raise InvalidParameterValue("view", name, f"Must be one of {', '.join(VIEWS)}")
    return (files(__package__) / f"{name}.sql").read_text()


DEPTH = pa.schema(
    [
        ("queue", pa.string()),
        *((status.value.replace(" ", "_"), pa.int64()) for status in Status),
        ("age_of_oldest", pa.float64()),
    ]
)


def queue_depth(counts: AllCounts) -> pa.Table:
    rows = []
    for name, counted in counts.counts.items():
        depth = {status.value.replace(" ", "_"): counted.by_status.get(status, 0) for status in Status}
        oldest = counted.oldest_sent_at
        age = None if oldest is None else (counts.now - oldest) / MILLISECONDS
        rows.append({"queue": name, **depth, "age_of_oldest": age})
    return pa.Table.from_pylist(rows, DEPTH)
