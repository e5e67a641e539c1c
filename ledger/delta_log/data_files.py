"""Data files that this client writes: their names, their row groups, and their bytes."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: To read one row takes its row group: it has at most so many bytes, or one row. And a file at most so many.
ROW_GROUP, FILE = 8 << 20, 64 << 20
#: Values that have more bytes than these on average are not looked up in a dictionary.
LONG = 1_024
#: What a path has of a partition's value: so many characters, and none that a path is escaped for.
MOST_IN_PATH, _ODD = 100, re.compile(r"[^A-Za-z0-9_.-]")


class Encoded(Mapping[str, bytes]):
    """Files of rows, each made whenever it is asked for: large ones are not in memory together. `sizes`: of those that
    were made, by their paths."""

    def __init__(self, rows: Mapping[str, pa.Table], partitions: Sequence[str]) -> None:
        self._rows, self._partitions = rows, partitions
        self.sizes: dict[str, int] = {}

    def __getitem__(self, path: str) -> bytes:
        content = parquet(self._rows[path], self._partitions)
        self.sizes[path] = len(content)
        return content

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def new_path(partition: Mapping[str, Any]) -> str:
    """The path of a new file of a partition: plain, whatever the values are, which readers take from the log."""
    folder = "".join(f"{name}={_ODD.sub('_', str(value))[:MOST_IN_PATH]}/" for name, value in partition.items())
    return f"{folder}part-00000-{secrets.token_hex(16)}.snappy.parquet"


def in_parts(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Rows in parts of at most so many bytes, or of a single row; at least one part."""
    if rows.nbytes <= most or rows.num_rows < 2:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from in_parts(rows.slice(0, half), most)
        yield from in_parts(rows.slice(half), most)


def parquet(rows: pa.Table, partitions: Sequence[str]) -> bytes:
    """Rows as a file, without the columns of their partition, in row groups of at most ROW_GROUP bytes."""
    sink = pa.BufferOutputStream()
    rows = rows.drop_columns(list(partitions))
    # Of bits there is neither a dictionary nor a smallest: nobody asks, and they are long. Nor are long texts repeated.
    asked = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    short = [name for name in asked if rows[name].nbytes <= LONG * rows.num_rows]
    with pq.ParquetWriter(
        sink, rows.schema, store_schema=False, use_dictionary=short, write_statistics=asked
    ) as writer:
        for part in in_parts(rows, ROW_GROUP):
            writer.write_table(part)
    content: bytes = sink.getvalue().to_pybytes()
    return content
