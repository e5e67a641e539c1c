"""What commits say of themselves in Delta's userMetadata, where others write what they like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.delta_log.history import parse_metadata

#: What one of the ledger's says, as far as somebody asks for it; each may be left out but the first.
_SAID: Mapping[str, type] = {
    **dict.fromkeys(("operation", "verb", "queue"), str),
    **{"at": int, "events": list, "read": dict, "losses": int},
}


def said_in(text: str | None) -> dict[str, Any]:
    """What a commit of the ledger's says of itself; of those of others nothing."""
    said = parse_metadata(text)
    return said if _is_ours(said) else {}


def verb_of(said: Mapping[str, Any]) -> str:
    """The verb that a commit is made by; empty where it does not say."""
    return str(said.get("verb", ""))


def is_of_upkeep(said: Mapping[str, Any]) -> bool:
    """Return whether upkeep made a commit: it says so, or says nothing, as what an engine's VACUUM commits does."""
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
