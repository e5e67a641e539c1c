"""The targets, and by how much the figures of a run meet or miss them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

VERBS = ("claim", "extend", "release", "delete")


class Verdict(NamedTuple):
    """A target, what was found, and whether that meets it."""

    target: str
    found: str
    met: bool


def verdicts(found: dict[str, Any]) -> list[Verdict]:
    """Every target for which the run has figures."""
    return [
        *_engine(found, "delta-rs", seconds=0.100, faster=50),
        *_engine(found, "spark", seconds=1.0, faster=8),
        *_commits(found),
        *_scattered(found),
        *_many(found),
    ]


def median(found: dict[str, Any], messages: str, contestant: str, size: str, verb: str) -> float | None:
    """A cell of the comparison in seconds, None when it has no figure."""
    return found["compare"].get(messages, {}).get(contestant, {}).get(size, {}).get(verb, {}).get("median")


def _engine(found: dict[str, Any], engine: str, seconds: float, faster: int) -> Iterator[Verdict]:
    name, compared = f"ledger, {engine}", found["compare"]
    cells = {
        (backlog, size, verb): cell["median"]
        for backlog, rows in compared.items()
        for size, verbs in rows.get(name, {}).items()
        if size != "send"
        for verb, cell in verbs.items()
        if cell["median"] is not None
    }
    if not cells:
        return
    worst = max(cells, key=cells.get)
    yield Verdict(
        f"{engine}: every verb of any size on any backlog at most {_time(seconds)}",
        f"slowest: {worst[2]} of {worst[1]} of {int(worst[0]):,}: {_time(cells[worst])}",
        cells[worst] <= seconds,
    )
    yield from _against_postgres(found, engine, faster)
    smallest, largest = min(compared, key=int), max(compared, key=int)
    ratios = {verb: cells[largest, "all", verb] / cells[largest, "10", verb] for verb in VERBS}
    yield _ratio(f"{engine}: all of {int(largest):,} at most 1.5 times what 10 of them cost", ratios, 1.5)
    if smallest != largest:
        ratios = {verb: cells[largest, "all", verb] / cells[smallest, "all", verb] for verb in VERBS}
        yield _ratio(f"{engine}: all of {int(largest):,} at most 1.5 times all of {int(smallest):,}", ratios, 1.5)
        ratios = {verb: cells[largest, "10", verb] / cells[smallest, "10", verb] for verb in VERBS}
        yield _ratio(f"{engine}: 10 of {int(largest):,} at most 1.5 times 10 of {int(smallest):,}", ratios, 1.5)


def _against_postgres(found: dict[str, Any], engine: str, faster: int) -> Iterator[Verdict]:
    for backlog, rows in found["compare"].items():
        size = "1,000,000" if int(backlog) > 1_000_000 else "all"
        claims = (row.get(size, {}).get("claim") for name, row in rows.items() if name.startswith("PostgreSQL"))
        theirs = next(claims, None)
        ours = median(found, backlog, f"ledger, {engine}", size, "claim")
        if int(backlog) < 1_000_000 or ours is None or not theirs:
            continue
        seconds = theirs["median"] or theirs.get("over")
        yield Verdict(
            f"{engine}: claim of 1,000,000 of {int(backlog):,} at least {faster} times faster than PostgreSQL's",
            f"{'more than ' if theirs.get('over') else ''}{seconds / ours:.1f} times ({_time(ours)}, {_time(seconds)})",
            seconds / ours >= faster,
        )


def _commits(found: dict[str, Any]) -> Iterator[Verdict]:
    rows = [row for row in found.get("commits", ()) if row["engine"] == "delta-rs" and row["lanes"] == "a queue each"]
    if rows:
        worst = min(rows, key=lambda row: row["per_second"])
        yield Verdict(
            "delta-rs: at least 15 commits a second on disjoint lanes",
            ", ".join(f"{row['per_second']:.1f} by {row['threads']}" for row in rows) + " threads",
            worst["per_second"] >= 15,
        )


def _scattered(found: dict[str, Any]) -> Iterator[Verdict]:
    for row in found.get("scattered", ()):
        took, floor = row["delete"]["median"], row["floor"]["median"]
        yield Verdict(
            f"{row['engine']}: deleting {row['handles']:,} scattered messages at most twice the floor",
            f"{took / floor:.2f} times ({_time(took)}, floor {_time(floor)})",
            took <= 2 * floor,
        )


def _many(found: dict[str, Any]) -> Iterator[Verdict]:
    many = found.get("many", {})
    states = {
        "after": "without upkeep",
        "after upkeep": "with upkeep",
        "after upkeep later": "with upkeep an hour later, when deleted receipts may be forgotten",
    }
    for state, how in states.items():
        if state in many:
            ratios = {
                f"{verb} {size}": cell["median"] / many["before"][size][verb]["median"]
                for size, cells in many[state].items()
                for verb, cell in cells.items()
            }
            yield _ratio(f"delta-rs: after {many['commits']:,} commits, {how}, at most 1.2 times", ratios, 1.2)


def _ratio(target: str, ratios: dict[str, float], most: float) -> Verdict:
    found = ", ".join(f"{verb} {ratio:.2f}" for verb, ratio in ratios.items())
    return Verdict(target, found, max(ratios.values()) <= most)


def _time(seconds: float) -> str:
    return f"{seconds * 1_000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
