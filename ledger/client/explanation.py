"""Explanations of verbs: the SQL statement that a verb would commit, and its source rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ledger.client.access import Access
from ledger.client.tables import is_spark
from ledger.errors import InvalidParameterValue, LedgerError

if TYPE_CHECKING:
    import pyarrow as pa

QUEUE_VERBS = (
    *("receive", "receive_many", "send", "delete", "change_visibility", "settle"),
    *("lock", "purge", "restore", "release_postponed", "redrive", "set_attributes", "set_tags", "tag", "untag"),
)
CLAIM_VERBS = ("extend", "release", "delete", "settle")
OTHER_VERBS_ADVICE = (
    "Queue.explain has the verbs of a queue, Claim.explain those of a claim. Calls that only read make no "
    "commit; write, work, consume, delete_queue and the calls that copy messages make several commits."
)
EXPECTED_NOTE = (
    "expected_revision: the revision that the row must still have, or nothing is committed. It is null for a new row."
)
HEADS_NOTE = "The row of visibility without a segment is the head row of its lane, which counts the lane's commits."
MOST_ROWS, LONGEST = 20, 40


@dataclass(frozen=True)
class Explanation:
    """The first commit that a verb would make now.

    bool(explanation) is False if the verb would commit nothing. str(explanation) shows the statement, the first 20
    source rows with at most 40 characters of each value, and notes. Columns that are null in every row are left out.

    Attributes:
        verb: The verb.
        table: The name of the table that the verb commits to; None: the verb commits nothing.
        statement: The commit as an SQL statement; None: the verb commits nothing. A MERGE or an append reads its rows
            from a view `source`. delta-rs has no SQL for a MERGE: delta-rs gets the same predicate and clauses through
            its own interface. A commit without rows is shown as an SQL comment.
        rows: The source rows, as a pyarrow.Table; None: the commit has none, or only removes rows. For a MERGE they
            have the table's columns, `operation` (insert, update or delete) and `expected_revision`, which the table's
            row must still have. New receipts and segments get other random names when the verb runs.
        engine: The ledger's engine, delta-rs or spark; empty: the verb commits nothing.
        why_statement: Why the engine would run the statement, as far as is known before a commit. Empty: the ledger
            would write the rows itself. The real commit may still have one of the reasons "large", "wider" or "new
            partition" (docs/explanation/statements.md).
    """

    verb: str
    table: str | None = None
    statement: str | None = None
    rows: pa.Table | None = None
    engine: str = ""
    why_statement: str = ""

    def __bool__(self) -> bool:
        return self.statement is not None

    def __str__(self) -> str:
        if self.statement is None:
            return f"{self.verb} commits nothing now."
        how = f"{self.engine} runs it ({self.why_statement})" if self.why_statement else "the rows are written directly"
        count = 0 if self.rows is None else self.rows.num_rows
        head = f"{self.verb}: one commit to {self.table}; {how}. Source rows: {count:,}"
        shown = [] if self.rows is None or not count else ["", "source:", _format_table(self.rows)]
        more = [f"... and {count - MOST_ROWS:,} more"] if count > MOST_ROWS else []
        return "\n".join([head, "", self.statement, *shown, *more, *self._list_notes()])

    def _list_notes(self) -> list[str]:
        if self.rows is None or "expected_revision" not in self.rows.column_names:
            return []
        return ["", EXPECTED_NOTE, *([HEADS_NOTE] if self.table == "visibility" else [])]


def explain(
    access: Access,
    verb: str,
    verbs: Sequence[str],
    call: Callable[[Access], object],
    given: Mapping[str, object],
) -> Explanation:
    """Return the first commit that `call` would make.

    Args:
        call: Calls the verb, through an Access that changes nothing.
        given: The verb's arguments, by the names that an error shows (see `name_arguments`).

    Raises:
        InvalidParameterValue: The verb is not one of `verbs`, or an argument is a Spark DataFrame.
        LedgerError: The ledger is in memory.
    """
    from ledger.store.delta.verbs.planned_commits import find_planned_commit
    from ledger.store.delta.verbs.store import DeltaStore

    if verb not in verbs:
        bound = f"Must be one of {', '.join(verbs)}"
        raise InvalidParameterValue("verb", verb, bound, OTHER_VERBS_ADVICE)
    for name, value in given.items():
        if is_spark(value):
            fix = "Give a list, or df.limit(100).toArrow()."
            raise InvalidParameterValue(name, "a DataFrame of Spark's", "Must be a list or an Arrow table", fix)
    store = access.store
    if not isinstance(store, DeltaStore):
        raise LedgerError("explain needs a ledger on Delta tables; this ledger is in memory")
    commit = find_planned_commit(store, lambda looking: call(replace(access, store=looking, frames=None)))
    return Explanation(verb) if commit is None else Explanation(verb, *commit)


def name_arguments(arguments: Sequence[object], options: Mapping[str, object]) -> dict[str, object]:
    """Return a call's arguments by name. Positional arguments are `argument 1`, `argument 2`, and so on."""
    return {**{f"argument {place}": value for place, value in enumerate(arguments, 1)}, **options}


def _format_table(rows: pa.Table) -> str:
    from ledger.store.delta.verbs.planned_commits import take_some_rows

    shown = take_some_rows(rows, MOST_ROWS)
    names = list(shown[0])
    names.sort(key=lambda name: name not in ("operation", "expected_revision"))
    lines = [names, *([_format_cell(row[name]) for name in names] for row in shown)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:%Y-%m-%d %H:%M:%S.%f}"[:-3] if isinstance(value, datetime) else str(value)
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[: LONGEST + 1])
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
