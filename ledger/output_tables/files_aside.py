"""Files that delta-rs writes into a folder below an output table, with corrected statistics and partitions.

The statistics and partitions of delta-rs mislead readers in these cases:

- *Bounds of decimals.* delta-rs writes them as floats, so a reader that filters by a long value may skip its file. If
  one column has no bounds, deltalake's own dataset finds no row by a filter on it. So each file gets the exact bounds
  of all rows of the write.
- *NaN and infinity.* Spark takes NaN for greater than all numbers, but delta-rs's bounds leave NaN out. With infinity,
  deltalake's dataset finds no row by a filter on the column. So a write with NaN or infinity gets no statistics but
  numbers of rows: no reader skips such files.
- *Partitions by instants.* delta-rs leaves out the zone, and Spark then takes its session's. `correct_file` adds a Z,
  for UTC.
"""

from __future__ import annotations

import decimal
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from ledger.clock import system_clock
from ledger.delta_log.delta_rs_commits import begin_log, remove_log
from ledger.delta_log.protocol import StagedFile
from ledger.delta_log.storage import LocalFiles, log_file, table_files
from ledger.place import find_absent_folders, remove_empty
from ledger.rules import staging
from ledger.rules.publishable import FOLDER, Demands


class RowsAside:
    """A folder below the table at `location`, for the files of one write.

    delta-rs applies the `demands` in the folder's own log to the rows.
    """

    def __init__(self, location: str, options: dict[str, str] | None, demands: Demands, *, sync: bool = True) -> None:
        now = system_clock()
        self._name = staging.new_folder(now)
        self._place, self._options = f"{location.rstrip('/')}/{FOLDER}/{self._name}", options
        self._made = find_absent_folders(f"{location.rstrip('/')}/{FOLDER}")
        self._stored = table_files(self._place, options, sync=sync)
        begin_log(self._stored, demands, now, below=table_files(location, options))

    def write(self, rows: Any, **how: Any) -> list[StagedFile]:
        """Write rows, and return the files as delta-rs describes them."""
        write_deltalake(DeltaTable(self._place, storage_options=self._options), rows, mode="append", **how)
        entry = self._stored.read(log_file(1)) or b""
        added = [json.loads(line).get("add") for line in entry.splitlines()]
        return [staged_file(self._name, add) for add in added if add is not None]

    def settle(self) -> None:
        """Remove the folder's log."""
        remove_log(self._stored)

    def remove(self) -> None:
        """Remove the folder, once it is certain that nobody commits its files.

        In an object store remove only the folder's log: VACUUM removes the files.
        """
        if isinstance(self._stored, LocalFiles):
            shutil.rmtree(self._place, ignore_errors=True)
            remove_empty(self._made)
        else:
            self.settle()


_INSTANT_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
#: The least and the greatest value of each column of decimals, by its path. None: the files get no bounds.
Bounds = Mapping[tuple[str, ...], tuple[decimal.Decimal, decimal.Decimal]] | None


def exact_bounds(rows: pa.Table) -> Bounds:
    """Return the bounds of the columns of decimals, also inside structs; None if there is a NaN or an infinity."""
    if _has_nan_or_infinity(rows):
        return None
    bounds: dict[tuple[str, ...], tuple[decimal.Decimal, decimal.Decimal]] = {}
    for path, values in _columns(rows, pa.types.is_decimal):
        both = pc.min_max(values).as_py()
        if both["min"] is not None:
            bounds[path] = both["min"], both["max"]
    return bounds


def correct_file(file: StagedFile, bounds: Bounds, schema: Mapping[str, Any]) -> StagedFile:
    """Return a written file with the statistics and partitions for the table's log.

    `bounds` are those of the whole write.
    """
    instants = {one["name"] for one in schema["fields"] if one["type"] == "timestamp"}
    partition = {
        name: f"{value.replace(' ', 'T')}Z"
        if name in instants and value and _INSTANT_WITHOUT_ZONE.fullmatch(value)
        else value
        for name, value in file.partition.items()
    }
    return replace(file, partition=partition, statistics=_with_bounds(file.statistics, bounds))


def join_bounds(first: Bounds, second: Bounds) -> Bounds:
    if first is None or second is None:
        return None
    joined = dict(first)
    for path, (least, greatest) in second.items():
        current = joined.get(path, (least, greatest))
        joined[path] = min(current[0], least), max(current[1], greatest)
    return joined


def staged_file(name: str, add: Mapping[str, Any]) -> StagedFile:
    path = f"{FOLDER}/{name}/{unquote(add['path'])}"
    return StagedFile(path, add["size"], add["partitionValues"], add["modificationTime"], add.get("stats") or "{}")


def _has_nan_or_infinity(rows: pa.Table) -> bool:
    floats = (values for _, values in _columns(rows, pa.types.is_floating))
    return any(pc.any(pc.invert(pc.is_finite(values))).as_py() for values in floats)


def _with_bounds(statistics: str, bounds: Bounds) -> str:
    """Return a file's statistics, as JSON, with these bounds; if `bounds` is None, with the number of rows alone."""
    parsed = json.loads(statistics, parse_float=decimal.Decimal)
    if bounds is None:
        return json.dumps({"numRecords": parsed["numRecords"]} if "numRecords" in parsed else {})
    if not bounds:
        return statistics
    numbers: dict[str, str] = {}
    for number, part in enumerate(("minValues", "maxValues")):
        for path, values in bounds.items():
            inner = parsed.setdefault(part, {})
            for name in path[:-1]:
                inner = inner.setdefault(name, {})
            inner[path[-1]] = values[number]

    def marked(value: object) -> str:
        # json cannot write a Decimal: write a mark, and later replace the mark by the number.
        mark = f"\x00{len(numbers)}\x00"
        numbers[json.dumps(mark)] = format(value, "f")
        return mark

    written = json.dumps(parsed, default=marked)
    for mark, text in numbers.items():
        written = written.replace(mark, text)
    return written


def _columns(
    rows: pa.Table, is_wanted: Callable[[pa.DataType], bool]
) -> Iterator[tuple[tuple[str, ...], pa.ChunkedArray]]:
    for name in rows.column_names:
        yield from _find_inside((name,), rows[name], is_wanted)


def _find_inside(
    path: tuple[str, ...], values: pa.ChunkedArray, is_wanted: Callable[[pa.DataType], bool]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if is_wanted(values.type):
        yield path, values
    elif pa.types.is_struct(values.type):
        for field, inner in zip(values.type, values.flatten()):
            yield from _find_inside((*path, field.name), inner, is_wanted)
