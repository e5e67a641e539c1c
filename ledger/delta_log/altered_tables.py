"""What somebody switched on for one of the ledger's tables: named, with the statements that take it back.

The ledger's tables ask for nothing but protocol (1, 2). With another feature or property a table cannot be followed by
its log. Either the engine's own statements still do it, which take longer. Or the engine refuses the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

#: What a table of the ledger has anyway.
PLAIN = frozenset({"appendOnly", "invariants"})
#: Without TRUNCATE HISTORY a dropped feature leaves `checkpointProtection` behind, which delta-rs refuses, too. With it
#: Delta asks that no version of the last day has the feature, unless this property says otherwise.
KEEPS_HISTORY = "'delta.dropFeatureTruncateHistory.retentionDuration'"
#: By feature: the properties that switch it off, and the features that are dropped then.
SWITCHED_OFF = {
    "deletionVectors": ("'delta.enableDeletionVectors'='false'", ["deletionVectors TRUNCATE HISTORY"]),
    "columnMapping": ("'delta.columnMapping.mode'='none'", ["columnMapping TRUNCATE HISTORY"]),
    "v2Checkpoint": ("'delta.checkpointPolicy'='classic'", ["v2Checkpoint TRUNCATE HISTORY"]),
    "rowTracking": ("'delta.enableRowTracking'='false'", ["rowTracking", "domainMetadata"]),
    "inCommitTimestamp": ("'delta.enableInCommitTimestamps'='false'", ["inCommitTimestamp"]),
    # Delta drops no change data feed. Without the property no files are written for it.
    "changeDataFeed": ("'delta.enableChangeDataFeed'='false'", []),
    "checkpointProtection": ("", ["checkpointProtection TRUNCATE HISTORY"]),
}
APPEND_ONLY = "delta.appendOnly"
#: What else there is to know of that.
TRUNCATES = (
    " (Delta refuses to truncate within a minute of the last version that has the feature: then try again. Older "
    "versions of the table cannot be read afterwards, and receipts that no upkeep has filled in by now are lost)"
)


def alterations(features: Iterable[str], properties: Mapping[str, str]) -> list[str]:
    """Return what a table has that the ledger's have not, by name: features, and the property delta.appendOnly."""
    found = sorted({*features} - PLAIN)
    return [*found, *([APPEND_ONLY] if properties.get(APPEND_ONLY, "false").lower() == "true" else [])]


def statements(place: str, found: Iterable[str]) -> list[str]:
    """Return the statements for Spark that take alterations back; none for those that are not known here."""
    table, told = f"ALTER TABLE delta.`{place}`", list[str]()
    for name in found:
        if name == APPEND_ONLY:
            told.append(f"{table} SET TBLPROPERTIES ('{APPEND_ONLY}'='false')")
        if name not in SWITCHED_OFF:
            continue
        off, dropped = SWITCHED_OFF[name]
        truncates = any("TRUNCATE" in one for one in dropped)
        settings = ", ".join(filter(None, [off, f"{KEEPS_HISTORY}='interval 0 hours'" if truncates else ""]))
        told.append(f"{table} SET TBLPROPERTIES ({settings})")
        told += [f"{table} DROP FEATURE {one}" for one in dropped]
    return told


def told(table: str, place: str, found: list[str]) -> str:
    """Return in words what a table has, and how Spark takes it back."""
    known = statements(place, found)
    what = f"somebody gave the table {table} {', '.join(found)}, which the ledger's tables do not have"
    if not known:
        return what
    later = TRUNCATES if any("TRUNCATE" in one for one in known) else ""
    return f"{what}; Spark takes it back by: {'; '.join(known)}{later}"


def alteration_behind(table: str, place: str, storage_options: Mapping[str, str] | None) -> str | None:
    """Return the alteration that explains why an engine failed at a table, in words; None: there is none, or it cannot
    be looked for."""
    try:
        loaded = DeltaTable(place, storage_options=dict(storage_options or {}) or None)
        found = alterations_of(loaded)
    except (OSError, DeltaError):
        return None
    return told(table, place, found) if found else None


def alterations_of(loaded: DeltaTable) -> list[str]:
    """See `alterations`, of a table that delta-rs has loaded."""
    protocol = loaded.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return alterations(features, loaded.metadata().configuration)
