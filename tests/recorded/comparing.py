"""Recorded answers as they are compared: errors as code and sentence, placeholders as what they stand for."""

from __future__ import annotations

import json
import re
from pathlib import Path

#: Keys of the protocol, and not of the answer.
OF_THE_WIRE = {"ResponseMetadata", "HTTPHeaders", "Detail", "Type", "message", "QueryErrorCode"}
PLACEHOLDER = re.compile(r"<[a-z-]+(?::\d+)?>")
#: The account that the answers were recorded in.
ACCOUNT = ":<region>:111111111111:"


def recorded() -> dict[str, list[object]]:
    """The answers by scenario, a set for each protocol that it was recorded in."""
    known = json.loads((Path(__file__).parent / "sqs-answers.json").read_text())
    found: dict[str, list[object]] = {}
    for name, scenario in known.items():
        base = re.sub(r"\[sqs(_query)?(-?)(.*)\]$", lambda m: f"[{m[3]}]" if m[2] else "", name)
        found.setdefault(base, []).append(_plain(scenario["answers"]))
    return found


def difference(expected: object, found: object, where: str = "", meaning: dict[str, str] | None = None) -> str | None:
    """Where an answer is not the recorded one; None where it is. A placeholder means the same text everywhere."""
    meaning = {} if meaning is None else meaning
    if isinstance(expected, dict) and isinstance(found, dict):
        if set(expected) != set(found):
            return f"{where}: {sorted(expected)} are recorded, and not {sorted(found)}"
        pairs = [(expected[key], found[key], f"{where}.{key}") for key in expected]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{where}: {len(expected)} are recorded, and not {len(found)}"
        pairs = [(one, other, f"{where}[{n}]") for n, (one, other) in enumerate(zip(expected, found))]
    elif isinstance(expected, str) and isinstance(found, str):
        return None if _means(expected, found, meaning) else f"{where}: {expected!r} is recorded, and not {found!r}"
    else:
        return None if expected == found else f"{where}: {expected!r} is recorded, and not {found!r}"
    return next((said for said in (difference(*pair, meaning) for pair in pairs) if said), None)


def _means(expected: str, found: str, meaning: dict[str, str]) -> bool:
    if expected == "timestamp":
        return re.fullmatch(r"\d{10}|\d{13}", found) is not None
    pieces, names = PLACEHOLDER.split(expected), PLACEHOLDER.findall(expected)
    match = re.fullmatch("(.+?)".join(map(re.escape, pieces)), found, re.DOTALL)
    meant = zip(names, match.groups()) if match else ()
    return match is not None and all(meaning.setdefault(name, text) == text for name, text in meant)


def _plain(answer: object) -> object:
    if isinstance(answer, dict):
        return {key: _plain(value) for key, value in answer.items() if key not in OF_THE_WIRE}
    if isinstance(answer, str):
        return answer.replace(ACCOUNT, ":<region>:<account>:")
    return [_plain(one) for one in answer] if isinstance(answer, list) else answer
