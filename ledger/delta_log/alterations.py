"""What somebody did to a table that its user did not: features, properties, columns, files of other tables.

The client's tables ask for protocol (1, 2) and nothing else. A table that asks for more is altered: the client cannot
follow its log. Then there are two cases:

- The engine's own statements still read and write the table, which takes longer.
- The engine refuses the table. `refusal_of` is the one rule for that. Verbs raise what it says, and so do the health
  of a ledger, `ledger doctor` and `/ready`, before a verb meets it.

`DELTA_RS_WRITES` names the features that delta-rs writes. tests/delta_log/test_foreign.py tries each feature that
delta-rs can switch on, so that a release of delta-rs which writes more of them, or fewer, is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from ledger.delta_log.delta_rs_commits import odd_path, unremovable

#: How the log names a file that does not lie below the table, as a shallow clone's does.
OUTSIDE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
#: What a table of the ledger has anyway.
PLAIN = frozenset({"appendOnly", "invariants"})
#: The features with which delta-rs reads and writes a table.
DELTA_RS_WRITES = PLAIN | {
    *("changeDataFeed", "checkConstraints", "generatedColumns", "timestampNtz", "variantType", "variantType-preview"),
}
#: Those with which it appends rows, too.
DELTA_RS_APPENDS = DELTA_RS_WRITES | {"columnMapping", "v2Checkpoint", "deletionVectors"}
#: Without TRUNCATE HISTORY a dropped feature leaves the feature `checkpointProtection`, which delta-rs refuses, too.
#: With it Delta asks that no version of the last day has the feature, unless this property says otherwise.
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
    "domainMetadata": ("", ["domainMetadata"]),
}
#: Features that Delta drops only when those are gone that need them.
NEEDED_BY_OTHERS = ("domainMetadata",)
#: The features that Delta 4.4 cannot drop: their classes are no RemovableFeature. That of generated columns goes with
#: nothing either, and costs nothing once no column is generated.
PERMANENT = frozenset(
    {
        *("allowColumnDefaults", "clustering", "generatedColumns", "identityColumns", "timestampNtz"),
        *("icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "geospatial", "geospatial-preview"),
        *("variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
    }
)
APPEND_ONLY = "delta.appendOnly"
#: The property by which a table forgets who committed to it. A commit that is tried again would land twice.
FORGETS = "delta.setTransactionRetentionDuration"
#: What else there is to know of TRUNCATE HISTORY.
TRUNCATES = (
    " (Delta refuses to truncate within a minute of the last version that has the feature: then try again. Older "
    "versions of the table cannot be read afterwards, and receipts that no upkeep has filled in by now are lost)"
)
#: What to do about a feature that stays.
OF_BEFORE = "restore a backup of before (`ledger restore-backup BACKUP ROOT --replace`)"
NO_WAY_BACK = (
    f"{OF_BEFORE}, or make a new ledger and send it what the old one has: "
    'Ledger.open(root, spark, engine="spark") reads this one where Spark knows the feature'
)


def alterations(features: Iterable[str], properties: Mapping[str, str]) -> list[str]:
    """Return what a table has that the ledger's have not, by name: features, and the properties delta.appendOnly and
    FORGETS."""
    found = sorted({*features} - PLAIN)
    found += [APPEND_ONLY] if properties.get(APPEND_ONLY, "false").lower() == "true" else []
    return [*found, *([FORGETS] if FORGETS in properties else [])]


def statements(place: str, found: Iterable[str]) -> list[str]:
    """Return the statements for Spark that take alterations back; none for those that are not known here."""
    table, told = f"ALTER TABLE delta.`{place}`", list[str]()
    for name in sorted(found, key=NEEDED_BY_OTHERS.__contains__):
        if name == APPEND_ONLY:
            told.append(f"{table} SET TBLPROPERTIES ('{APPEND_ONLY}'='false')")
        if name == FORGETS:
            told.append(f"{table} UNSET TBLPROPERTIES ('{FORGETS}')")
        if name not in SWITCHED_OFF:
            continue
        off, dropped = SWITCHED_OFF[name]
        truncates = any("TRUNCATE" in one for one in dropped)
        settings = ", ".join(filter(None, [off, f"{KEEPS_HISTORY}='interval 0 hours'" if truncates else ""]))
        if settings:
            told.append(f"{table} SET TBLPROPERTIES ({settings})")
        told += [f"{table} DROP FEATURE {one}" for one in dropped]
    return list(dict.fromkeys(told))


def way_back(place: str, found: Sequence[str]) -> str:
    """Return in words what takes alterations of a table back."""
    ways = list[str]()
    known = statements(place, found)
    if known:
        later = TRUNCATES if any("TRUNCATE" in one for one in known) else ""
        ways.append(f"Spark takes it back by: {'; '.join(known)}{later}")
    permanent = [name for name in found if name in PERMANENT]
    if permanent:
        ways.append(f"Delta cannot drop {', '.join(permanent)}: {NO_WAY_BACK}")
    for name in found:
        if name not in (APPEND_ONLY, FORGETS) and name not in SWITCHED_OFF and name not in PERMANENT:
            drop = f"ALTER TABLE delta.`{place}` DROP FEATURE {name} TRUNCATE HISTORY"
            ways.append(f"Spark takes it back by {drop}, where Delta can drop it; where not, {NO_WAY_BACK}")
    return ". ".join(ways)


class TableRefusal(NamedTuple):
    """Why a table is altered or refused: what somebody did, and what to do. Both are sentences without their ends; the
    first begins in lower case and names no place."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}. {self.fix}"


def told(table: str, place: str, found: Sequence[str]) -> TableRefusal:
    """Return in words what a table has, and what takes it back."""
    what = f"somebody gave the table {table} {', '.join(found)}, which the ledger's tables do not have"
    return TableRefusal(what, way_back(place, found))


def unappendable(loaded: DeltaTable) -> list[str]:
    """Return the features of a loaded table with which delta-rs commits nothing."""
    return sorted({*(loaded.protocol().writer_features or ())} - DELTA_RS_APPENDS)


def alterations_of(loaded: DeltaTable) -> list[str]:
    """See `alterations`, of a table that delta-rs has loaded."""
    protocol = loaded.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return alterations(features, loaded.metadata().configuration)


def refusal_of(
    table: str, place: str, loaded: DeltaTable, columns: Sequence[str], *, appends: bool = False
) -> TableRefusal | None:
    """Return why delta-rs cannot do to a table what its user does; None: it can.

    Args:
        table: The table's name.
        place: Where it lies.
        loaded: The table as of the version that is asked about.
        columns: The columns that its user needs.
        appends: The user only reads and appends rows: an append-only table will do.
    """
    found = [name for name in alterations_of(loaded) if name not in DELTA_RS_WRITES]
    if appends and APPEND_ONLY in found:
        found.remove(APPEND_ONLY)
    if found:
        return told(table, place, found)
    there = {field.name for field in loaded.schema().fields}
    gone = [name for name in columns if name not in there]
    if gone:
        what = f"somebody altered the table {table}: it has no column {', '.join(gone)} any more"
        return TableRefusal(what, f"Give the column its name again, or {OF_BEFORE}")
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
    odd = None if appends else odd_path(loaded)
    return None if odd is None else TableRefusal(*unremovable(table, odd))


def alteration_in(table: str, place: str, loaded: DeltaTable) -> str:
    """Return what somebody switched on for a loaded table, and what takes it back, in words; empty: nothing."""
    found = alterations_of(loaded)
    return str(told(table, place, found)) if found else ""


def refusal_at(
    table: str, place: str, storage_options: Mapping[str, str] | None, columns: Sequence[str]
) -> TableRefusal | None:
    """See `refusal_of`, of the newest version of the table at a place; None, too, where that cannot be looked for."""
    try:
        loaded = DeltaTable(place, storage_options=dict(storage_options or {}) or None)
        return refusal_of(table, place, loaded, columns)
    except (OSError, DeltaError):
        return None


def alteration_at(table: str, place: str) -> TableRefusal | None:
    """Return what somebody switched on for a table on a local path; None: nothing, or it cannot be looked for."""
    try:
        found = alterations_of(DeltaTable(place))
    except (OSError, DeltaError):
        return None
    return told(table, place, found) if found else None
