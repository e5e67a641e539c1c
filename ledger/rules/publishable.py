"""The output tables that accept files which were written elsewhere.

Spark writes a claim's rows into a separate table with the same *demands*: columns with their limits (NOT NULL,
CHAR(n)), generated columns, constraints, partitioning and properties. Then a commit adds the files to the output table.

Spark itself writes and commits to any other output table: the table's demands depend on its own state (identity
columns, row ids), or delta-rs does not know them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FOLDER = "ledger_writes"
#: The features that a writer applies to rows while it writes them, or that demand nothing of appended rows.
APPLIED = ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz")
#: The accepted versions in a table's protocol. A writer's version below WRITER is accepted, too.
READER, WRITER, READER_OF_FEATURES, WRITER_OF_FEATURES = 1, 4, 3, 7
PROTOCOL_OF_NEW = {"minReaderVersion": 1, "minWriterVersion": 2}
#: Beginnings of the names of properties that demand more than appended files, unless their value is one of NOTHING.
REFUSED = (
    *("delta.columnMapping.", "delta.universalFormat.", "delta.enableRowTracking", "delta.rowTracking"),
    # Spark rewrites a list of the table's files, for other readers, after each of its own commits.
    "delta.compatibility.symlinkFormatManifest.",
)
NOTHING = ("none", "false", "")
#: Beginnings of the keys of a column's metadata that make the column depend on the table's own state.
OF_COLUMNS = ("delta.identity.", "delta.columnMapping.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "delta.typeChanges")
#: Beginnings of the names of properties about work on a table after a write.
AFTERWARDS = ("delta.autoOptimize.",)
#: The types of columns that every writer knows, without a feature of the table.
PLAIN = ("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp")
#: By this property columns have other names in files, so Spark accepts more names.
MAPPING = "delta.columnMapping.mode"
#: The characters that no column name has, unless names are mapped.
NOT_IN_NAMES = " ,;{}()\n\t="


@dataclass(frozen=True)
class Demands:
    """The demands of a Delta table on its rows and files. `protocol` is as in the log, and `schema` is JSON."""

    protocol: Mapping[str, Any]
    schema: str
    partitions: tuple[str, ...]
    properties: Mapping[str, str]

    def is_equivalent(self, other: Demands) -> bool:
        """Return whether files for a table with these demands also suit a table with the other demands."""
        return self._normalize() == other._normalize()

    def _normalize(self) -> tuple[Any, ...]:
        features = {name: sorted(value) if isinstance(value, list) else value for name, value in self.protocol.items()}
        return features, json.loads(self.schema), self.partitions, dict(self.properties)

    def actions(self, table_id: str, now: int) -> dict[str, Any]:
        """Return the first commit of a table with these demands, without the properties of AFTERWARDS."""
        metadata = {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema,
            "partitionColumns": list(self.partitions),
            "configuration": {n: v for n, v in self.properties.items() if not n.startswith(AFTERWARDS)},
            "createdTime": now,
        }
        return {"protocol": dict(self.protocol), "metaData": metadata}


def list_unapplied_demands(demands: Demands) -> list[str]:
    """Return, in words, the demands that a write into another folder does not apply."""
    protocol = demands.protocol
    reader, writer = protocol["minReaderVersion"], protocol["minWriterVersion"]
    features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    demanded = sorted(f"the feature {name}" for name in features - set(APPLIED))
    if reader not in (READER, READER_OF_FEATURES) or not (writer <= WRITER or writer == WRITER_OF_FEATURES):
        demanded.append(f"the protocol ({reader}, {writer})")
    demanded += sorted(
        f"the property {name}"
        for name, value in demands.properties.items()
        if name.startswith(REFUSED) and value.lower() not in NOTHING
    )
    columns = json.loads(demands.schema)["fields"]
    return demanded + [f"the column {column['name']}" for column in columns if _is_stateful(column)]


def _is_stateful(column: Mapping[str, Any]) -> bool:
    return any(name.startswith(OF_COLUMNS) for name in column.get("metadata", ()))


def demands_of_new(schema: str, properties: Mapping[str, str] | None = None) -> Demands | None:
    """Return the demands of a new table with these columns (Spark's JSON); None if Spark has to make the table."""
    try:
        fields = [_nullable_field(field) for field in json.loads(schema)["fields"]]
    except _NotPlain:
        return None
    if not fields or len({field["name"].lower() for field in fields}) < len(fields):
        return None
    plain = json.dumps({"type": "struct", "fields": fields})
    return Demands(PROTOCOL_OF_NEW, plain, (), dict(properties or {}))


def find_odd_name(kind: Any) -> str | None:
    """Return the first name inside a type that Delta accepts only where names are mapped."""
    if isinstance(kind, str):
        return None
    for field in kind.get("fields", ()):
        if any(character in field["name"] for character in NOT_IN_NAMES):
            return str(field["name"])
    inner = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    inner += [field["type"] for field in kind.get("fields", ())]
    return next((found for one in inner if (found := find_odd_name(one)) is not None), None)


class _NotPlain(Exception):
    pass


def _nullable_field(field: Mapping[str, Any]) -> dict[str, Any]:
    if field.get("metadata") or any(character in field["name"] for character in NOT_IN_NAMES):
        raise _NotPlain
    return {"name": field["name"], "type": _nullable(field["type"]), "nullable": True, "metadata": {}}


def _nullable(kind: Any) -> Any:
    if isinstance(kind, str):
        if kind in PLAIN or kind.startswith("decimal("):
            return kind
        raise _NotPlain
    if kind["type"] == "struct":
        return {"type": "struct", "fields": [_nullable_field(field) for field in kind["fields"]]}
    if kind["type"] == "array":
        return {"type": "array", "elementType": _nullable(kind["elementType"]), "containsNull": True}
    if kind["type"] == "map":
        inner = {name: _nullable(kind[name]) for name in ("keyType", "valueType")}
        return {"type": "map", **inner, "valueContainsNull": True}
    raise _NotPlain
