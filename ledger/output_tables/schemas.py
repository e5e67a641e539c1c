"""The columns of output tables as delta-rs reads, makes and adds them; see `rules.output_columns`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures

from ledger.delta_log import local_commits
from ledger.delta_log.delta_rs_commits import conflicts
from ledger.delta_log.protocol import Conflict
from ledger.delta_log.storage import LocalFiles, TableStorage
from ledger.errors import OutputNotWritten
from ledger.rules.column_types import has_local_time_in_map
from ledger.rules.output_columns import (
    OFFER,
    Columns,
    ColumnsAsked,
    ColumnsDiffer,
    columns_of,
    properties_of,
    without_offer,
)

TRIES = 5


@contextmanager
def columns_differ(location: object, why_not_widened: Callable[[], str | None] = lambda: None) -> Iterator[None]:
    """Turn ColumnsDiffer into OutputNotWritten. If `why_not_widened` returns a reason, the error offers no widening."""
    try:
        yield
    except ColumnsDiffer as error:
        raise OutputNotWritten(location, truly_offered(str(error), why_not_widened), place=error.place) from None


def truly_offered(sentence: str, why_not_widened: Callable[[], str | None]) -> str:
    """Return the sentence of an error, without an offer to widen if there is a reason not to widen."""
    why = why_not_widened() if OFFER in sentence else None
    return sentence if why is None else without_offer(sentence, why)


def schema_of(loaded: DeltaTable) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(loaded.schema().to_json())
    return schema


def columns_for(
    loaded: DeltaTable, rows: dict[str, Any], asked: ColumnsAsked, first: Callable[[str], str] | None = None
) -> Columns:
    """Return the columns that a table has once `rows` (a schema) are in. Raises ColumnsDiffer."""
    return columns_of(schema_of(loaded), rows, loaded.metadata().configuration, asked, first)


def create(location: str, columns: Columns, options: dict[str, str] | None, files: TableStorage) -> None:
    """Make an empty table, if there is none."""
    make = partial(
        DeltaTable.create,
        schema=Schema.from_json(json.dumps(columns.schema)),
        mode="ignore",
        configuration=properties_of(columns),
        # Without retries, delta-rs commits version 0 or nothing. So of several callers, only the first makes the table.
        commit_properties=CommitProperties(max_commit_retries=0),
        raise_if_key_not_exists=False,
    )
    if isinstance(files, LocalFiles):
        local_commits.create(files, make)
    else:
        make(location, storage_options=options)


def add(loaded: DeltaTable, columns: Columns) -> None:
    """Add the columns that a table lacks, in a separate commit. Raises Conflict after TRIES lost races.

    delta-rs does not see that a timestamp_ntz inside a map needs the feature timestampNtz. An earlier commit adds it.
    """
    for tried in range(TRIES):
        names = {one["name"].lower() for one in schema_of(loaded)["fields"]}
        fields = [one for one in columns.schema["fields"] if one["name"].lower() not in names]
        if not fields:
            return
        try:
            with conflicts():
                if any(has_local_time_in_map(one["type"]) for one in fields) and not _has_local_times(loaded):
                    loaded.alter.add_feature(
                        TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
                    )
                loaded.alter.add_columns(Schema.from_json(json.dumps({"type": "struct", "fields": fields})).fields)
            return
        except Conflict:
            if tried + 1 == TRIES:
                raise
            loaded.update_incremental()


def _has_local_times(loaded: DeltaTable) -> bool:
    return "timestampNtz" in (loaded.protocol().writer_features or ())
