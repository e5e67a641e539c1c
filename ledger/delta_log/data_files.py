"""The client's data files: their names, row groups and bytes."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: The most bytes in memory of the rows of a row group, and of a file of a direct append.
ROW_GROUP, FILE = 8 << 20, 64 << 20
#: The average bytes of a value above which a column has no dictionary: long values mostly do not repeat.
LONG = 1_024
#: In a path, characters of a partition's value that may need an escape become "_".
MOST_IN_PATH, _ODD = 100, re.compile(r"[^A-Za-z0-9_.-]")


class Encoded(Mapping[str, bytes]):
    """Files of rows, by path. Each look-up makes the file anew, so that not all files are in memory together.

    `sizes` has the sizes in bytes of the files that were made so far.
    """

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
    """Return a new path that needs no escapes: readers take a partition's values from the log."""
    folder = "".join(f"{name}={_ODD.sub('_', str(value))[:MOST_IN_PATH]}/" for name, value in partition.items())
    return f"{folder}part-00000-{secrets.token_hex(16)}.snappy.parquet"


def split_rows(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Yield rows in parts of at most `most` bytes, or of a single row; at least one part."""
    if rows.nbytes <= most or rows.num_rows < 2:
        yield rows
    else:
        half = rows.num_rows // 2
        yield from split_rows(rows.slice(0, half), most)
        yield from split_rows(rows.slice(half), most)


def parquet(rows: pa.Table, partitions: Sequence[str]) -> bytes:
    sink = pa.BufferOutputStream()
    rows = rows.drop_columns(list(partitions))
    # No reader uses statistics of nested columns.
    statistics_columns = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    short = [name for name in statistics_columns if rows[name].nbytes <= LONG * rows.num_rows]
    with pq.ParquetWriter(
        sink, rows.schema, store_schema=False, use_dictionary=short, write_statistics=statistics_columns
    ) as writer:
        for part in split_rows(rows, ROW_GROUP):
            writer.write_table(part)
    content: bytes = sink.getvalue().to_pybytes()
    return content
