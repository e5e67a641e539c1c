"""The run as a picture: counts of messages over time, and their holders."""

from __future__ import annotations

from pathlib import Path

from ledger.notebook.timeline import ClaimSpan, Level
from ledger.notebook.timeline_plot import LOST, STYLE, draw_claims, draw_levels


def draw(
    file: Path,
    moments: list[Level],
    holds: list[ClaimSpan],
    workers: list[str],
    killed: tuple[str, float] | None,
    unit: str = "flights",
    *,
    is_proven: bool,
) -> None:
    """Write the picture to `file`, as PNG.

    `killed` has the name of the killed worker, and the time of the kill. `unit` is what messages are, in the plural.
    The title says whether every check holds (`is_proven`).
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(
            2,
            1,
            figsize=(11, 6.8),
            dpi=150,
            sharex=True,
            height_ratios=[3, 0.42 * len(workers) + 0.3],
            layout="constrained",
        )
        end = moments[-1].at * 1.02
        total = moments[0].stored
        draw_levels(upper, moments, end, unit)
        proven = "none lost, none done twice" if is_proven else "NOT ALL CHECKS HOLD"
        title = f"{total:,} {unit} through a ledger: {proven}"
        upper.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=30)
        draw_claims(lower, holds, workers)
        lower.set_title("claims, from receive to acknowledgement", loc="left", fontsize=10)
        if killed:
            _accident(upper, lower, killed, [hold for hold in holds if hold.ran_out], moments, unit)
        for axes in (upper, lower):
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color("#8b97a5")
        lower.set_xlabel("seconds after the send")
        upper.set_xlim(0, end)
        figure.savefig(file)
        plt.close(figure)


def _accident(upper, lower, killed: tuple[str, float], lost: list[ClaimSpan], moments: list[Level], unit: str) -> None:
    name, at = killed
    total = moments[0].stored
    box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    for axes in (upper, lower):
        axes.axvline(at, color=LOST, linewidth=1.2)
    upper.annotate(
        f"{name} is killed",
        (at, total),
        xytext=(-6, -8),
        textcoords="offset points",
        ha="right",
        va="top",
        color=LOST,
        fontweight="bold",
        bbox=box,
    )
    lost_by_killed = [hold for hold in lost if hold.owner == name]
    if lost_by_killed:
        over, messages = lost_by_killed[-1].end, lost_by_killed[-1].messages
        for axes in (upper, lower):
            axes.axvline(over, color=LOST, linewidth=1.2, linestyle=(0, (4, 3)))
        upper.annotate(
            f"its lease runs out:\n{messages:,} {unit} are visible again",
            (over, total),
            xytext=(6, -46),
            textcoords="offset points",
            ha="left" if over < moments[-1].at * 0.7 else "right",
            va="top",
            color=LOST,
            fontweight="bold",
            bbox=box,
        )
