"""The report: a Markdown page with every table, and the plot."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from targets import VERBS, verdicts


def write_report(found: dict[str, Any], results: Path) -> None:
    """Write benchmark.md and benchmark.png into `results`."""
    from plot import draw

    (results / "benchmark.md").write_text("\n".join(_page(found)))
    if any(found["compare"].values()):
        draw(found, results / "benchmark.png")


def _page(found: dict[str, Any]) -> Iterable[str]:
    yield "# Benchmark\n"
    later = found.get("later", {})
    at_once = f"everything but {' and '.join(later)}" if later else "everything"
    yield f"Made by `python tests/benchmarks/run.py`, {at_once} in one run on one machine. Times are medians; (n)"
    yield "after a figure: of so few repeats, as it is slow. A call of an alternative that takes over "
    yield f"{found['arguments']['budget']:.0f} s is stopped.\n"
    if float(found["machine"]["load before the run"]) > 0.5 * int(found["machine"]["cores"]):
        yield "**The machine was busy with other work: compare within this page only.**\n"
    for title in ("machine", "Spark settings", "PostgreSQL settings"):
        if title in found:
            yield f"- {title}: " + ", ".join(f"{name} {value}" for name, value in found[title].items())
    for part, there in later.items():
        yield f"- {part}: in a run of its own, {there['date']}, load before it {there['load before the run']}"
    judged = verdicts(found)
    if judged:
        yield "\n## Targets\n"
        lines = [[verdict.target, verdict.found, "met" if verdict.met else "**missed**"] for verdict in judged]
        yield from table(["target", "found", ""], lines)
    for part, error in found.get("failed", {}).items():
        yield f"\n**{part} failed**: {error}"
    for messages, rows in found["compare"].items():
        yield from _compared(f"{int(messages):,} messages", rows)
    if "codegen" in found:
        rows = {key: cells for key, cells in found["codegen"].items() if key != "messages"}
        title = f"{found['codegen']['messages']:,} messages, code generation on (the engine's own sessions turn it off)"
        yield from _compared(title, {"ledger, spark": rows})
    yield from _others(found)


def _compared(title: str, rows: dict[str, Any]) -> Iterable[str]:
    yield f"\n## {title}\n"
    names = list(rows)
    lines = []
    sizes = [size for size in next(iter(rows.values())) if size != "send"]
    if any("send" in row for row in rows.values()):
        lines.append(["send all", *(cell(rows[name].get("send")) for name in names)])
    for size in sizes:
        for verb in VERBS:
            lines.append([f"{verb} {size}", *(cell(rows[name].get(size, {}).get(verb)) for name in names)])
    yield from table(["", *names], lines)


def _others(found: dict[str, Any]) -> Iterable[str]:
    if "floor" in found:
        yield "\n## The floor: appending as many rows to a Delta table\n"
        lines = [[size, cell(cells["Spark"]), cell(cells["delta-rs"])] for size, cells in found["floor"].items()]
        yield from table(["rows", "Spark", "delta-rs"], lines)
    if "commits" in found:
        yield "\n## Commits per second: claims and acknowledgements of one message each\n"
        lines = [
            [
                row["engine"],
                row["lanes"],
                row["threads"],
                f"{row['per_second']:.1f}",
                seconds(row["median"]),
                "; ".join(row["errors"])[:80],
            ]
            for row in found["commits"]
        ]
        yield from table(["engine", "lanes", "threads", "commits/s", "median", "errors"], lines)
    if "scattered" in found:
        yield "\n## Deleting every tenth message of a claim of 1,000,000 (a DataFrame of handles)\n"
        lines = [
            [row["engine"], f"{row['handles']:,}", *(cell(row[name]) for name in ("delete", "straight", "floor"))]
            for row in found["scattered"]
        ]
        yield from table(["engine", "handles", "delete", "straight from the claim", "floor: appending them"], lines)
    if "memory" in found:
        yield "\n## Growth of the driver's peak memory over claim, extend and delete, MiB\n"
        lines = [
            [
                row["engine"],
                f"{row['size']} of {row['backlog']:,}",
                *(row["growth"].get(name, "") for name in ("Python", "JVM")),
            ]
            for row in found["memory"]
        ]
        yield from table(["engine", "claim", "Python", "JVM"], lines)
    if "many" in found:
        many = found["many"]
        states = [state for state in ("before", "after", "after upkeep", "after upkeep later") if state in many]
        yield f"\n## delta-rs, before and after {many['commits']:,} commits on a queue of {many['messages']:,}\n"
        lines = [
            [f"{verb} {size}", *(cell(many[state][size][verb]) for state in states)]
            for size, cells in many["before"].items()
            for verb in cells
        ]
        yield from table(["", *states], lines)
    yield ""


def table(header: list[str], lines: list[list[Any]]) -> Iterable[str]:
    """A table in Markdown."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for line in lines:
        yield "| " + " | ".join(map(str, line)) + " |"


def cell(known: dict[str, Any] | None) -> str:
    """A figure of the JSON as a cell of a table."""
    if not known:
        return "-"
    if known.get("over"):
        return f"> {known['over']:.0f} s"
    if known["median"] is None:
        return known.get("note") or "-"
    few = f" ({len(known['seconds'])})" if len(known["seconds"]) < 5 else ""
    return seconds(known["median"]) + few


def seconds(took: float | None) -> str:
    """A time for people."""
    if took is None:
        return "-"
    return f"{took * 1_000:.1f} ms" if took < 0.1 else f"{took:.2f} s" if took < 10 else f"{took:.0f} s"
