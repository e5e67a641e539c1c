"""The run as a picture: what was stored, in flight and deleted when, and who held what."""

from __future__ import annotations

from pathlib import Path

from jobs.flights_demo.history import Hold, Moment

STORED, IN_FLIGHT, DELETED, LOST, INK = "#c9d3df", "#f2a541", "#3f8f6b", "#c8443c", "#2b3440"


def draw(
    file: Path, moments: list[Moment], holds: list[Hold], workers: list[str], killed: tuple[str, float] | None
) -> None:
    """Writes a PNG. `killed`: the worker that was, and when."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with plt.rc_context(style):
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
        _levels(upper, moments, end)
        _claims(lower, holds, workers)
        if killed:
            _accident(upper, lower, killed, [hold for hold in holds if hold.ran_out], workers, moments)
        for axes in (upper, lower):
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color("#8b97a5")
        lower.set_xlabel("seconds after the send")
        upper.set_xlim(0, end)
        figure.savefig(file)
        plt.close(figure)


def _levels(axes, moments: list[Moment], end: float) -> None:
    times = [moment.at for moment in moments] + [end]
    levels = [[*values, values[-1]] for values in zip(*(moment[1:] for moment in moments))]
    stored, in_flight, deleted = levels
    total = moments[0].stored
    axes.stackplot(
        times,
        deleted,
        in_flight,
        stored,
        step="post",
        colors=[DELETED, IN_FLIGHT, STORED],
        labels=["deleted (acknowledged)", "in flight", "stored"],
        linewidth=0,
    )
    axes.set_ylim(0, total)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylabel("flights")
    axes.set_title(
        f"{total:,} flights through a ledger: no flight lost, none done twice",
        loc="left",
        fontsize=13,
        fontweight="bold",
        pad=30,
    )
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1],
        labels[::-1],
        loc="lower left",
        bbox_to_anchor=(-0.005, 1.0),
        ncols=3,
        frameon=False,
        borderaxespad=0.2,
        handlelength=1.2,
    )


def _claims(axes, holds: list[Hold], workers: list[str]) -> None:
    for hold in holds:
        if hold.owner not in workers or hold.end is None:
            continue
        row = workers.index(hold.owner)
        color = LOST if hold.ran_out else IN_FLIGHT
        axes.barh(
            row,
            hold.end - hold.start,
            left=hold.start,
            height=0.62,
            color=color,
            edgecolor="white",
            linewidth=1.2,
            hatch="////" if hold.ran_out else None,
            alpha=0.85 if hold.ran_out else 1,
        )
        if hold.taken_over:
            axes.barh(
                row, hold.end - hold.start, left=hold.start, height=0.62, fill=False, edgecolor=LOST, linewidth=1.8
            )
    axes.set_yticks(range(len(workers)), workers)
    axes.set_ylim(len(workers) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_title("claims, from receive to acknowledgement", loc="left", fontsize=10)


def _accident(
    upper, lower, killed: tuple[str, float], lost: list[Hold], workers: list[str], moments: list[Moment]
) -> None:
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
    mine = [hold for hold in lost if hold.owner == name]
    if mine:
        over, messages = mine[-1].end, mine[-1].messages
        for axes in (upper, lower):
            axes.axvline(over, color=LOST, linewidth=1.2, linestyle=(0, (4, 3)))
        upper.annotate(
            f"its lease runs out:\n{messages:,} flights are visible again",
            (over, total),
            xytext=(6, -46),
            textcoords="offset points",
            ha="left" if over < moments[-1].at * 0.7 else "right",
            va="top",
            color=LOST,
            fontweight="bold",
            bbox=box,
        )
