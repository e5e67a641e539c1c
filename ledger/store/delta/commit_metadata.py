"""The metadata of the ledger's commits, in Delta's userMetadata, where other writers may put any text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.delta_log.history import parse_metadata

#: Each commit has `operation`. One with events also has `queue`, `at` and `owner`.
_FIELD_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("operation", "verb", "queue"), str),
    **{"at": int, "events": list, "read": dict, "losses": int},
}


def ledger_metadata_in(text: str | None) -> dict[str, Any]:
    """Return the metadata of a ledger's commit, or an empty dict for another writer's commit."""
    metadata = parse_metadata(text)
    return metadata if _is_ours(metadata) else {}


def verb_of(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("verb", ""))


def is_of_upkeep(metadata: Mapping[str, Any]) -> bool:
    """Return whether a commit is upkeep's. One without a verb, such as an engine's VACUUM, counts."""
    return str(metadata.get("verb", "upkeep")) == "upkeep"


def losses_in(metadata: Mapping[str, Any]) -> int:
    return int(metadata.get("losses", 0))


def _is_ours(metadata: Mapping[str, Any]) -> bool:
    has_events = bool(metadata.get("events"))
    return (
        "operation" in metadata
        and all(isinstance(metadata[name], kind) for name, kind in _FIELD_TYPES.items() if name in metadata)
        and all(isinstance(version, int) for version in metadata.get("read", {}).values())
        and (not has_events or {"queue", "at", "owner"} <= metadata.keys())
    )
