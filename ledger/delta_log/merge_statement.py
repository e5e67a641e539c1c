"""The one MERGE that every verb of the Spark engine is, as text; values are bound as a table of edits."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.delta_log.where import Where
from ledger.store.delta.model.tables import TABLES

#: What the MERGE's own conditions say when the table is not as the decision supposed.
CHANGED_MEANWHILE = "ledger: the lane changed after it was read"


def merge_statement(table: str, path: str, source: str, where: Where, columns: Sequence[str]) -> str:
    """MERGE of `columns` of the view `source` into the table at `path`, narrowed by literals on partition columns.

    An edit that does not find the table as it supposes makes the whole statement fail with CHANGED_MEANWHILE: a head
    row with another revision, a row to insert that exists, a row to update or delete that does not.
    """
    known = TABLES[table]
    matches = " AND ".join(f"t.{column} = s.{column}" for column in (*known.partitions, *known.key))
    changes = ", ".join(f"{c} = s.{c}" for c in columns if c not in known.partitions)
    fail = f"CAST(raise_error('{CHANGED_MEANWHILE}') AS BIGINT)"
    values = ", ".join(fail if c == "revision" else f"s.{c}" for c in columns)
    return f"""
        MERGE INTO delta.`{path}` AS t USING {source} AS s
        ON {where.bounded().sql("t")} AND {matches}
        WHEN MATCHED AND (s.{OPERATION} = 'insert' OR t.revision <> s.{EXPECTED_REVISION})
            THEN UPDATE SET revision = {fail}
        WHEN MATCHED AND s.{OPERATION} = 'delete' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {changes}
        WHEN NOT MATCHED AND s.{OPERATION} <> 'insert' THEN INSERT ({", ".join(columns)}) VALUES ({values})
        WHEN NOT MATCHED THEN INSERT ({", ".join(columns)}) VALUES ({", ".join(f"s.{c}" for c in columns)})
    """
