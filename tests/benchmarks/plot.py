"""The plot: what a verb costs by how many messages it takes, for everybody, on logarithmic axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from targets import VERBS

_LOOKS = {"ledger, delta-rs": ("C0", "o"), "ledger, spark": ("C1", "s"), "Delta": ("C3", "v"), "Postgre": ("C2", "^")}


def draw(found: dict[str, Any], file: Path) -> None:
    """One panel per verb, of the largest backlog; hollow marks on the upper edge are calls that were stopped."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    backlog = max(found["compare"], key=int)
    figure, panels = pyplot.subplots(1, len(VERBS), figsize=(15, 4.2), sharey=True)
    for panel, verb in zip(panels, VERBS):
        for name, row in found["compare"][backlog].items():
            colour, mark = next((look for start, look in _LOOKS.items() if name.startswith(start)), ("C4", "x"))
            cells = {_number(size, backlog): sized[verb] for size, sized in row.items() if size != "send"}
            points = sorted((x, cell["median"]) for x, cell in cells.items() if cell["median"] is not None)
            panel.plot(*zip(*points) if points else ([], []), color=colour, marker=mark, label=name)
            stopped = [(x, cell["over"]) for x, cell in cells.items() if cell.get("over")]
            stopped_at = zip(*stopped) if stopped else ([], [])
            panel.plot(*stopped_at, color=colour, marker=mark, fillstyle="none", linestyle="")
        panel.set(title=verb, xscale="log", yscale="log", xlabel="messages")
        panel.grid(True, which="major", alpha=0.3)
    panels[0].set_ylabel("seconds (median)")
    panels[0].legend(fontsize=8)
    machine = f"{found['machine']['cores']} cores, {found['machine']['memory']}"
    figure.suptitle(f"A backlog of {int(backlog):,} messages; {machine}")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _number(size: str, backlog: str) -> int:
    return int(backlog) if size == "all" else int(size.replace(",", ""))
