"""Alterations of a table by others: their names, the refusal of a table, and how to undo alterations.

Either statements of the engine read and write an *altered* table (see `protocol`), or the engine refuses the table, and
calls raise TableAltered.

tests/delta_log/test_foreign.py fails if `DELTA_RS_WRITES` has the wrong features.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger.delta_log.delta_rs_commits import describe_unremovable, find_odd_path

#: The beginning of a path in the log that is not below the table, such as in a shallow clone.
OUTSIDE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
#: The features of writer version 2.
PLAIN = frozenset({"appendOnly", "invariants"})
DELTA_RS_WRITES = PLAIN | {
    *("changeDataFeed", "checkConstraints", "generatedColumns", "timestampNtz", "variantType", "variantType-preview"),
}
#: Features with which delta-rs can append rows. Other commits may fail.
DELTA_RS_APPENDS = DELTA_RS_WRITES | {"columnMapping", "v2Checkpoint", "deletionVectors"}
#: The property for how long a feature must be out of use before a drop with TRUNCATE HISTORY. (A drop without TRUNCATE
#: HISTORY may add the feature `checkpointProtection`, which delta-rs refuses.)
KEEPS_HISTORY = "'delta.dropFeatureTruncateHistory.retentionDuration'"
#: By feature: the properties that switch it off, and the features to drop afterwards.
SWITCHED_OFF = {
    "deletionVectors": ("'delta.enableDeletionVectors'='false'", ["deletionVectors TRUNCATE HISTORY"]),
    "columnMapping": ("'delta.columnMapping.mode'='none'", ["columnMapping TRUNCATE HISTORY"]),
    "v2Checkpoint": ("'delta.checkpointPolicy'='classic'", ["v2Checkpoint TRUNCATE HISTORY"]),
    "rowTracking": ("'delta.enableRowTracking'='false'", ["rowTracking", "domainMetadata"]),
    "inCommitTimestamp": ("'delta.enableInCommitTimestamps'='false'", ["inCommitTimestamp"]),
    # Delta cannot drop this feature. Without the property, Delta writes no files of changes.
    "changeDataFeed": ("'delta.enableChangeDataFeed'='false'", []),
    "checkpointProtection": ("", ["checkpointProtection TRUNCATE HISTORY"]),
    "domainMetadata": ("", ["domainMetadata"]),
}
#: Features that Delta drops only after the features that need them.
NEEDED_BY_OTHERS = ("domainMetadata",)
#: Features that Delta 4.4 cannot drop: their classes are no RemovableFeature.
PERMANENT = frozenset(
    {
        *("allowColumnDefaults", "clustering", "generatedColumns", "identityColumns", "timestampNtz"),
        *("icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "geospatial", "geospatial-preview"),
        *("variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
    }
)
APPEND_ONLY = "delta.appendOnly"
#: With this property, Delta forgets transactions after a time. A retried write could then commit twice.
FORGETS = "delta.setTransactionRetentionDuration"
TRUNCATES = (
    " (if Delta refuses, a version of the last minute has the feature: run the statement again after a minute. It "
    "removes older versions of the table, with the receipts that upkeep has not yet copied from them)"
)
RESTORE = "restore an earlier backup (`ledger restore-backup BACKUP ROOT --replace`)"
NO_WAY_BACK = (
    f"{RESTORE}, or make a new ledger and send it the messages of this ledger. "
    'Ledger.open(root, spark, engine="spark") reads this ledger if Spark knows the feature'
)


def explain_forgetting(properties: Mapping[str, str]) -> str | None:
    if FORGETS not in properties:
        return None
    return (
        f"Delta forgets its transactions after {properties[FORGETS]}, so a retry could write rows twice: "
        f"ALTER TABLE ... UNSET TBLPROPERTIES ('{FORGETS}')"
    )


def list_alterations(features: Iterable[str], properties: Mapping[str, str]) -> list[str]:
    """Return a table's features except PLAIN, delta.appendOnly if it is on, and FORGETS if it is set."""
    names = sorted({*features} - PLAIN)
    names += [APPEND_ONLY] if properties.get(APPEND_ONLY, "false").lower() == "true" else []
    return [*names, *([FORGETS] if FORGETS in properties else [])]


def undo_statements(place: str, altered: Iterable[str]) -> list[str]:
    table, sql_statements = f"ALTER TABLE delta.`{place}`", list[str]()
    for name in sorted(altered, key=NEEDED_BY_OTHERS.__contains__):
        if name == APPEND_ONLY:
            sql_statements.append(f"{table} SET TBLPROPERTIES ('{APPEND_ONLY}'='false')")
        if name == FORGETS:
            sql_statements.append(f"{table} UNSET TBLPROPERTIES ('{FORGETS}')")
        if name not in SWITCHED_OFF:
            continue
        off, dropped = SWITCHED_OFF[name]
        truncates = any("TRUNCATE" in feature for feature in dropped)
        settings = ", ".join(filter(None, [off, f"{KEEPS_HISTORY}='interval 0 hours'" if truncates else ""]))
        if settings:
            sql_statements.append(f"{table} SET TBLPROPERTIES ({settings})")
        sql_statements += [f"{table} DROP FEATURE {feature}" for feature in dropped]
    return list(dict.fromkeys(sql_statements))


def describe_undo(place: str, altered: Sequence[str]) -> str:
    ways = list[str]()
    undoing = undo_statements(place, altered)
    if undoing:
        later = TRUNCATES if any("TRUNCATE" in statement for statement in undoing) else ""
        ways.append(f"Undo it in Spark: {'; '.join(undoing)}{later}")
    permanent = [name for name in altered if name in PERMANENT]
    if permanent:
        ways.append(f"Delta cannot drop {', '.join(permanent)}: {NO_WAY_BACK}")
    for name in altered:
        if name not in (APPEND_ONLY, FORGETS) and name not in SWITCHED_OFF and name not in PERMANENT:
            drop = f"ALTER TABLE delta.`{place}` DROP FEATURE {name} TRUNCATE HISTORY"
            ways.append(f"Undo it in Spark: {drop}. If Delta cannot drop it, {NO_WAY_BACK}")
    return ". ".join(ways)


class TableRefusal(NamedTuple):
    """The alterations of a table, or why an engine refuses it (`what`), and what to do (`fix`).

    Neither text ends with a full stop. `what` begins in lower case and does not name the table's place.
    """

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}. {self.fix}"


def describe_alterations(table: str, place: str, altered: Sequence[str]) -> TableRefusal:
    what = f"somebody gave the table {table} {', '.join(altered)}, which the ledger's tables do not have"
    return TableRefusal(what, describe_undo(place, altered))


def list_unappendable_features(loaded: DeltaTable) -> list[str]:
    return sorted({*(loaded.protocol().writer_features or ())} - DELTA_RS_APPENDS)


def read_alterations(loaded: DeltaTable) -> list[str]:
    protocol = loaded.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return list_alterations(features, loaded.metadata().configuration)


def find_refusal(
    table: str, place: str, loaded: DeltaTable, columns: Sequence[str], *, appends: bool = False
) -> TableRefusal | None:
    """Return why the client refuses to read and write a table through delta-rs; None: it does not refuse.

    `columns` are those that the caller needs. `appends`: the caller only reads and appends rows, so append-only tables
    and tables with an odd path (`find_odd_path`) are not refused.
    """
    features = [name for name in read_alterations(loaded) if name not in DELTA_RS_WRITES]
    if appends and APPEND_ONLY in features:
        features.remove(APPEND_ONLY)
    if features:
        return describe_alterations(table, place, features)
    columns_there = {field.name for field in loaded.schema().fields}
    gone = [name for name in columns if name not in columns_there]
    if gone:
        what = f"somebody altered the table {table}: it has no column {', '.join(gone)} any more"
        return TableRefusal(what, f"Give the column its name again, or {RESTORE}")
    actions = pa.table(loaded.get_add_actions())
    paths = actions["path"].to_pylist() if actions.num_rows else []
    outside = next((path for path in paths if OUTSIDE.match(path)), None)
    if outside is not None:
        what = f"the table {table} is a shallow clone: its log names a file of another table"
        fix = (
            f"Delta-rs neither reads nor writes such a file ({outside}). Copy the ledger with `ledger backup`, or open "
            'the clone with engine="spark"'
        )
        return TableRefusal(what, fix)
    odd = None if appends else find_odd_path(loaded)
    return None if odd is None else TableRefusal(*describe_unremovable(table, odd))


def describe_loaded_alterations(table: str, place: str, loaded: DeltaTable) -> str:
    altered = read_alterations(loaded)
    return str(describe_alterations(table, place, altered)) if altered else ""


def find_refusal_at(
    table: str, place: str, storage_options: Mapping[str, str] | None, columns: Sequence[str]
) -> TableRefusal | None:
    try:
        loaded = DeltaTable(place, storage_options=dict(storage_options or {}) or None)
        return find_refusal(table, place, loaded, columns)
    except (OSError, DeltaError):
        return None


def find_alteration_at(table: str, place: str) -> TableRefusal | None:
    """Describe the alterations of a local table; None: there are none, or delta-rs cannot read the table."""
    try:
        altered = read_alterations(DeltaTable(place))
    except (OSError, DeltaError):
        return None
    return describe_alterations(table, place, altered) if altered else None
