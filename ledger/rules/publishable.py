"""Which output tables take files that were written elsewhere: those all of whose demands the writing has applied.

Spark writes the rows of a claim into a table of their own, which is made with the demands of the output table: its
columns, with what they may not be (NOT NULL, CHAR(n)) and how they are computed (generated columns), its constraints,
its partitioning, its properties. So Spark applies these as it would there, and the files may be published. What it
cannot apply so, because it depends on the output table's own state (identity columns, row ids), or what delta-rs, which
publishes, does not know, makes the table one that Spark has to commit to itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The folder of an output table that those of its writes lie in.
FOLDER = "ledger_writes"
#: Features that are applied to rows while they are written, or ask nothing of what is only appended.
APPLIED = ("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "timestampNtz")
#: The versions of readers and writers without a list of features, and the first with one.
READER, WRITER, READER_OF_FEATURES, WRITER_OF_FEATURES = 1, 4, 3, 7
#: The protocol of a table that nothing is asked of.
PROTOCOL_OF_NEW = {"minReaderVersion": 1, "minWriterVersion": 2}
#: Properties that ask for more than appending files, whatever the protocol says, and those of them that ask nothing.
REFUSED = (
    *("delta.columnMapping.", "delta.universalFormat.", "delta.enableRowTracking", "delta.rowTracking"),
    # A list of the files for other readers, which Spark writes anew after each of its commits.
    "delta.compatibility.symlinkFormatManifest.",
)
NOTHING = ("none", "false", "")
#: What the metadata of columns say that depend on the table's own state.
OF_COLUMNS = ("delta.identity.", "delta.columnMapping.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "delta.typeChanges")
#: Properties that concern what happens to a table after a write.
AFTERWARDS = ("delta.autoOptimize.",)
#: Types of columns that every writer knows, without a feature of the table.
PLAIN = ("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp")
#: The property by which names of columns are not those in files; Spark takes more names then.
MAPPING = "delta.columnMapping.mode"
#: Delta takes no columns of these names, unless they are mapped to others.
NOT_IN_NAMES = " ,;{}()\n\t="


@dataclass(frozen=True)
class Demands:
    """What a Delta table asks of its rows and files: its protocol, as in the log, the JSON of its columns, the columns
    that it is partitioned by, and its properties."""

    protocol: Mapping[str, Any]
    schema: str
    partitions: tuple[str, ...]
    properties: Mapping[str, str]

    def same(self, other: Demands) -> bool:
        """Whether files that were written by these demands keep to others."""
        return self._canonical() == other._canonical()

    def _canonical(self) -> tuple[Any, ...]:
        features = {name: sorted(value) if isinstance(value, list) else value for name, value in self.protocol.items()}
        return features, json.loads(self.schema), self.partitions, dict(self.properties)

    def actions(self, table_id: str, now: int) -> dict[str, Any]:
        """The first commit of a table with these demands, as Delta's log has it: what it says, by the action."""
        metadata = {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema,
            "partitionColumns": list(self.partitions),
            "configuration": {n: v for n, v in self.properties.items() if not n.startswith(AFTERWARDS)},
            "createdTime": now,
        }
        return {"protocol": dict(self.protocol), "metaData": metadata}


def not_applied(demands: Demands) -> list[str]:
    """What a table asks for that the writing elsewhere does not apply, in words; empty for one that takes files."""
    protocol = demands.protocol
    reader, writer = protocol["minReaderVersion"], protocol["minWriterVersion"]
    features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    found = sorted(f"the feature {name}" for name in features - set(APPLIED))
    if reader not in (READER, READER_OF_FEATURES) or not (writer <= WRITER or writer == WRITER_OF_FEATURES):
        found.append(f"the protocol ({reader}, {writer})")
    found += sorted(
        f"the property {name}"
        for name, value in demands.properties.items()
        if name.startswith(REFUSED) and value.lower() not in NOTHING
    )
    columns = json.loads(demands.schema)["fields"]
    return found + [f"the column {column['name']}" for column in columns if _is_stateful(column)]


def _is_stateful(column: Mapping[str, Any]) -> bool:
    return any(name.startswith(OF_COLUMNS) for name in column.get("metadata", ()))


def demands_of_new(schema: str, properties: Mapping[str, str] | None = None) -> Demands | None:
    """Those of a table that is made for rows with these columns (a JSON of Spark's), and with these properties: every
    value may be null, and nothing else is asked. None for columns with which Delta does more, or none at all: Spark
    makes such a table."""
    try:
        fields = [_nullable_field(field) for field in json.loads(schema)["fields"]]
    except _NotPlain:
        return None
    if not fields or len({field["name"].lower() for field in fields}) < len(fields):
        return None
    plain = json.dumps({"type": "struct", "fields": fields})
    return Demands(PROTOCOL_OF_NEW, plain, (), dict(properties or {}))


def odd_name(kind: Any) -> str | None:
    """Return the first name of a column or of a field inside one, of a type as Delta's log writes it, that Delta takes
    only where names are mapped to others."""
    if isinstance(kind, str):
        return None
    for one in kind.get("fields", ()):
        if any(character in one["name"] for character in NOT_IN_NAMES):
            return str(one["name"])
    inner = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    inner += [one["type"] for one in kind.get("fields", ())]
    return next((found for one in inner if (found := odd_name(one)) is not None), None)


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
