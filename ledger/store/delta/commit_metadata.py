"""What the ledger's commits say of themselves in Delta's userMetadata.

Other writers may put anything there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.delta_log.history import parse_metadata

#: The fields of the ledger's metadata that somebody reads; all but the first may be left out.
_SAID: Mapping[str, type] = {
    **dict.fromkeys(("operation", "verb", "queue"), str),
    **{"at": int, "events": list, "read": dict, "losses": int},
}


def said_in(text: str | None) -> dict[str, Any]:
    """Return what a commit of the ledger says of itself; of another writer's commit return nothing."""
    metadata = parse_metadata(text)
    return metadata if _is_ours(metadata) else {}


def verb_of(said: Mapping[str, Any]) -> str:
    """Return the verb that made a commit; empty if the commit does not say."""
    return str(said.get("verb", ""))


def is_of_upkeep(said: Mapping[str, Any]) -> bool:
    """Tell whether upkeep made a commit: the commit says so, or says nothing, as the commits of an engine's VACUUM
    do."""
    return str(said.get("verb", "upkeep")) == "upkeep"


def losses_in(said: Mapping[str, Any]) -> int:
    """Return how often a commit had lost to other writers before it landed."""
    return int(said.get("losses", 0))


def _is_ours(said: Mapping[str, Any]) -> bool:
    tells_of_messages = bool(said.get("events"))
    return (
        "operation" in said
        and all(isinstance(said[name], kind) for name, kind in _SAID.items() if name in said)
        and all(isinstance(version, int) for version in said.get("read", {}).values())
        and (not tells_of_messages or {"queue", "at", "owner"} <= said.keys())
    )
