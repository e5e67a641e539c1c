"""Pictures of a queue's timeline, by matplotlib: how many messages were in which state, and leases as bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ledger.access import Access
from ledger.errors import LedgerError
from ledger.queue_settings import counts
from ledger.timeline import Hold, Moment, Timeline

STORED, IN_FLIGHT, DELETED, LOST, INK = "#c9d3df", "#f2a541", "#3f8f6b", "#c8443c", "#2b3440"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
#: So many owners have a row of their own: those with the latest claims.
MOST_OWNERS = 30


def of_queue(access: Access, last: float | None) -> Any:
    """A figure of a queue: see Queue.plot."""
    from ledger.store.delta.verbs.receipts import history

    record, now, store = access.record(), access.clock() / 1_000, access.store
    engine = getattr(store, "engine", None)
    if engine is None:
        raise LedgerError("plot needs a ledger on Delta tables; this one is in memory and has no history")
    events = history(engine, record.id)
    files = engine.files()[1].select(["queue", "first_sent_at", "messages"]).to_pylist()
    sent = [(one["first_sent_at"] / 1_000, one["messages"]) for one in files if one["queue"] == record.id]
    start = min([at for at, _ in sent] + [event["at"] / 1_000 for event in events], default=now)
    timeline = Timeline(events, start, float(record.attributes["VisibilityTimeout"]))
    moments = _as_counted(
        timeline.moments([(at - start, count) for at, count in sent], now - start), counts(access).stored
    )
    return _figure(access.name, moments, timeline.holds(), now - start, last)


def _as_counted(moments: list[Moment], stored: int) -> list[Moment]:
    """The same, ending with what is stored now: what came with segments that upkeep dropped is known no more."""
    unknown = stored - moments[-1].stored if moments else 0
    return [moment._replace(stored=moment.stored + unknown) for moment in moments]


def _figure(name: str, moments: list[Moment], holds: list[Hold], now: float, last: float | None) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise LedgerError("plot needs matplotlib: install the extra `notebooks`, or matplotlib alone") from error

    owners = list(dict.fromkeys(hold.owner for hold in holds))[-MOST_OWNERS:]
    begin = 0.0 if last is None else max(0.0, now - last)
    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(
            2, 1, figsize=(10, 4.2 + 0.3 * len(owners)), sharex=True, layout="constrained",
            height_ratios=[3, 0.42 * max(1, len(owners)) + 0.3],
        )  # fmt: skip
        if moments:
            levels(upper, moments, max(now, moments[-1].at), "messages")
        leases(lower, holds, owners, now)
        for axes in (upper, lower):
            axes.spines[["top", "right"]].set_visible(False)
        upper.set_title(name, loc="left", fontsize=13, fontweight="bold", pad=26)
        lower.set_title("claims: until they were settled, ran out (hatched), or still", loc="left", fontsize=10)
        lower.set_xlabel("seconds")
        upper.set_xlim(begin, max(now, begin + 1) * 1.02)
    # Whoever shows it does; a figure that pyplot keeps is shown twice in a notebook.
    plt.close(figure)
    return figure


def levels(axes: Any, moments: Sequence[Moment], end: float, unit: str) -> None:
    """How many messages were in which state, as areas."""
    times = [moment.at for moment in moments] + [end]
    stored, in_flight, deleted = ([*values, values[-1]] for values in zip(*(moment[1:] for moment in moments)))
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
    axes.set_ylim(0, max(1, *(sum(moment[1:]) for moment in moments)))
    thousands: Callable[[float, Any], str] = lambda value, _: f"{value:,.0f}"  # noqa: E731 - it has a type so
    axes.yaxis.set_major_formatter(thousands)
    axes.set_ylabel(unit)
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


def leases(axes: Any, holds: Sequence[Hold], owners: Sequence[str], now: float | None = None) -> None:
    """Claims as bars, a row for each owner. With `now`, those that go on too."""
    rows = {owner: row for row, owner in enumerate(owners)}
    for hold in holds:
        end = hold.end
        ran_out = hold.ran_out
        if end is None and now is not None:
            end, ran_out = min(now, hold.until), hold.until <= now
        if hold.owner not in rows or end is None:
            continue
        bar = {"y": rows[hold.owner], "width": end - hold.start, "left": hold.start, "height": 0.62}
        axes.barh(
            **bar,
            color=LOST if ran_out else IN_FLIGHT,
            edgecolor="white",
            linewidth=1.2,
            hatch="////" if ran_out else None,
            alpha=0.85 if ran_out else 1,
        )
        if hold.taken_over:
            axes.barh(**bar, fill=False, edgecolor=LOST, linewidth=1.8)
    axes.set_yticks(range(len(owners)), owners)
    axes.set_ylim(max(1, len(owners)) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
