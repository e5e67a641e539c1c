"""The one MERGE that every verb of the Spark engine is, as text; values are bound as a table of edits."""

from __future__ import annotations

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.delta_log.spec import PartitionFilter, TableSpec

#: What the MERGE's own conditions say when the table is not as the decision supposed.
CHANGED_MEANWHILE = "ledger: the partition changed after it was read"


def merge_statement(table: TableSpec, path: str, source: str, where: PartitionFilter) -> str:
    """MERGE of the view `source` into the table at `path`, narrowed by literals on partition columns.

    An edit that does not find the table as it supposes makes the whole statement fail with CHANGED_MEANWHILE: a row
    with another revision, a row to insert that exists, a row to update or delete that does not.
    """
    columns = table.schema.names
    matches = " AND ".join(f"t.{column} = s.{column}" for column in (*table.partitions, *table.key))
    changes = ", ".join(f"{c} = s.{c}" for c in columns if c not in table.partitions)
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
