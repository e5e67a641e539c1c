"""What a MERGE does to the files of a table, by delta-rs's statement and by Spark's."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, Conflict
from tests.simulation.log import File, Partition, State, Table, keys_of


class EngineError(Exception):
    """What Delta refuses to do, whoever asks: no conflict, but a wrong request."""


def merged(
    table: Table, state: State, named: Callable[[Partition], bool], edits: pa.Table, *, checked: bool
) -> tuple[list[tuple[Partition, File]], list[tuple[Partition, File]]]:
    """What a MERGE of `edits` removes and adds: per partition that it changes, its files against one new one.

    `checked`: as in Spark's statement, an edit that does not find its row as it supposes is a Conflict. delta-rs's lets
    it pass. Neither looks twice at rows to insert: two of the same are two rows.
    """
    wanted = edits.select([OPERATION, EXPECTED_REVISION]).to_pydict()
    keys = keys_of(edits, (*table.partitions, *table.key))
    width, by_partition = len(table.partitions), {}
    for at, key in enumerate(keys):
        by_partition.setdefault(key[:width], []).append((key[width:], wanted[OPERATION][at], at))
    removed, added = [], []
    for partition, mine in by_partition.items():
        files = state.get(partition, ()) if named(partition) else ()
        there = {key: (file, at) for file in files for at, key in enumerate(file.keys(table.key))}
        gone: dict[int, set[int]] = {}
        written, met = [], set()
        for key, operation, at in mine:
            found = there.get(key)
            if checked:
                _require_as_supposed(found, operation, wanted[EXPECTED_REVISION][at])
            applies = (operation == "insert") == (found is None)
            if found is not None and applies:
                if key in met:
                    raise EngineError("MERGE matched a row of the table with several rows of the source")
                met.add(key)
                gone.setdefault(id(found[0]), set()).add(found[1])
            if applies and operation != "delete":
                written.append(at)
        if not written and not gone:
            continue
        removed += [(partition, file) for file in files]
        left = [_without(file, gone.get(id(file), set())) for file in files]
        left.append(edits.take(pa.array(written, pa.int64())).select(table.schema.names))
        rows = pa.concat_tables(left).combine_chunks()
        if rows.num_rows:
            added.append((partition, File(rows)))
    return removed, added


def _require_as_supposed(found: tuple[File, int] | None, operation: str, expected: int | None) -> None:
    changed = "the lane changed after it was read"
    if (found is None) != (operation == "insert"):
        raise Conflict(changed)
    if found is not None and expected is not None:
        revision = found[0].rows["revision"][found[1]].as_py()
        if revision is not None and revision != expected:
            raise Conflict(changed)


def _without(file: File, places: set[int]) -> pa.Table:
    if not places:
        return file.rows
    return file.rows.take(pa.array([at for at in range(file.rows.num_rows) if at not in places], pa.int64()))
