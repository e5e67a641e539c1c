"""The second benchmark's report: a table with a row per operation and a column per contestant, and where we lose."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from report import cell, seconds, table
from semantics_rows import WHY, Scale


def write_report(found: dict[str, Any], results: Path) -> None:
    """Write semantics.md into `results`."""
    (results / "semantics.md").write_text("\n".join(_page(found)))


def _page(found: dict[str, Any]) -> Iterable[str]:
    scale, cells = Scale(**found["scale"]), found["cells"]
    yield "# FIFO, dead letters and redrives\n"
    yield "Made by `python tests/benchmarks/semantics.py`, in one run on one machine. Times are medians,"
    yield "warm; CPU is that of all processes of a contestant; (n) after a figure: of so few repeats, as it is slow."
    yield "Every operation is one commit.\n"
    loads = [known["load"] for row in cells.values() for known in row.values()]
    for title in ("machine", "PostgreSQL settings"):
        if title in found:
            yield f"- {title}: " + ", ".join(f"{name} {value}" for name, value in found[title].items())
    for name, there in found.get("later", {}).items():
        yield f"- {name}, the last figures: a later run, {there['date']}, load before it {there['load before the run']}"
    if loads:
        yield f"- load average before a measurement, what ran before it included: {min(loads)} to {max(loads)}"
    for part, error in found.get("failed", {}).items():
        yield f"\n**{part} failed**: {error}"
    names = list(dict.fromkeys(name for row in cells.values() for name in row))
    for title, rows in (("FIFO", scale.fifo), ("Dead letters", scale.dead)):
        yield f"\n## {title}\n"
        lines = [[rows[key], *(_shown(cells[key].get(name)) for name in names)] for key in rows if key in cells]
        yield from table(["", *names], lines)
    yield "\nThe receives of the ledger, one by one: "
    yield from (f"- {line}" for line in _receives(scale, cells))
    yield "\nPostgreSQL has no lanes, and a send before a receive changes nothing for it: those rows say the same."
    yield "Its receives lock the free groups (`pg_try_advisory_xact_lock(hashtext(group))`, or `FOR UPDATE SKIP LOCKED`"
    yield "on a table of groups), then update their messages in order. Its dead letters go to a table of their own"
    yield "(DELETE and INSERT in one statement), or an UPDATE of the column that names the queue. No message leaves it."
    yield "\n## Where the ledger loses\n"
    yield from _losses(scale, cells) or ["Nowhere."]
    yield ""


def _shown(known: dict[str, Any] | None) -> str:
    """A figure, with the processor time where it was counted."""
    return cell(known) + (f"; CPU {seconds(known['cpu'])}" if known and "cpu" in known else "")


def _receives(scale: Scale, cells: dict[str, Any]) -> Iterable[str]:
    for key, title in scale.fifo.items():
        for name, known in cells.get(key, {}).items():
            if "runs" in known:
                yield f"{name}, {title}: {known['groups']:,} groups in {known['runs']:,} runs"


def _losses(scale: Scale, cells: dict[str, Any]) -> list[str]:
    lines = []
    for key, title in (scale.fifo | scale.dead).items():
        row = cells.get(key, {})
        theirs = {name: known["median"] for name, known in row.items() if name.startswith("PostgreSQL")}
        theirs = {name: median for name, median in theirs.items() if median is not None}
        if not theirs:
            continue
        best = min(theirs, key=theirs.get)
        for name, known in row.items():
            if name not in theirs and known["median"] is not None and known["median"] > theirs[best]:
                lines.append(
                    f"- {name}, {title}: {seconds(known['median'])}, {best} {seconds(theirs[best])} "
                    f"({known['median'] / theirs[best]:.1f} times): {WHY[key]}"
                )
    return lines
