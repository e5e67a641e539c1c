"""Pictures of a queue's timeline by matplotlib: messages by state, and claims as bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timezone
from typing import Any

from ledger.client.access import Access
from ledger.client.queue_settings import counts
from ledger.clock import instant
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.notebook.timeline import ClaimSpan, Level, Timeline
from ledger.rules.limits import MILLISECONDS

STORED, IN_FLIGHT, DELETED, LOST, INK = "#c9d3df", "#f2a541", "#3f8f6b", "#c8443c", "#2b3440"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
#: Of more owners, those are shown whose first claims came last.
MOST_OWNERS = 30
_DAY_SECONDS = 86_400


def plot_queue(access: Access, last: float | None) -> Any:
    """Return a figure of a queue: see Queue.plot."""
    from ledger.store.delta.verbs.receipts import read_events

    if last is not None and (isinstance(last, bool) or not isinstance(last, (int, float)) or not 0 < last < math.inf):
        fix = "3_600 is the last hour; without it all that is known is shown."
        raise InvalidParameterValue("last", last, "Must be a number of seconds > 0", fix)
    record, now, store = access.record(), access.clock() / 1_000, access.store
    engine = getattr(store, "engine", None)
    if engine is None:
        raise LedgerError("plot needs a ledger on Delta tables; this ledger is in memory and has no history")
    events = read_events(engine, record.id)
    files = engine.files()[1].select(["queue", "first_sent_at", "messages"]).to_pylist()
    sent = [(file["first_sent_at"] / 1_000, file["messages"]) for file in files if file["queue"] == record.id]
    start = min([at for at, _ in sent] + [event["at"] / 1_000 for event in events], default=now)
    timeline = Timeline(events, start, float(record.attributes["VisibilityTimeout"]))
    moments = _add_unknown_messages(
        timeline.list_levels([(at - start, count) for at, count in sent], now - start), counts(access).stored
    )
    return _draw_figure(access.name, moments, timeline.holds(), start, now - start, last)


def _add_unknown_messages(moments: list[Level], stored: int) -> list[Level]:
    """Add stored messages to the levels, so that the last level has the present number, `stored`.

    Upkeep has dropped the sends of the added messages.
    """
    unknown = stored - moments[-1].stored if moments else 0
    return [moment._replace(stored=moment.stored + unknown) for moment in moments]


def _draw_figure(
    name: str, moments: list[Level], holds: list[ClaimSpan], start: float, now: float, last: float | None
) -> Any:
    """Return a figure of levels and claims, whose seconds count from the instant `start`."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib import dates as without_types
    except ImportError as error:
        raise LedgerError("plot needs matplotlib: install the extra `notebooks`, or matplotlib alone") from error

    dates: Any = without_types
    owners = list(dict.fromkeys(hold.owner for hold in holds))[-MOST_OWNERS:]
    zero = float(dates.date2num(instant(round(start * MILLISECONDS))))
    begin = 0.0 if last is None else max(0.0, now - last)
    end = begin + max(now - begin, 1) * 1.02
    moments = [moment._replace(at=zero + moment.at / _DAY_SECONDS) for moment in moments]
    holds = [_convert_to_days(hold, zero) for hold in holds]
    begin, end, now = (zero + seconds / _DAY_SECONDS for seconds in (begin, end, now))
    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(
            2, 1, figsize=(10, 4.2 + 0.3 * len(owners)), sharex=True, layout="constrained",
            height_ratios=[3, 0.42 * max(1, len(owners)) + 0.3],
        )  # fmt: skip
        if moments:
            draw_levels(upper, moments, max(now, moments[-1].at), "messages")
        draw_claims(lower, holds, owners, now)
        for axes in (upper, lower):
            axes.spines[["top", "right"]].set_visible(False)
        upper.set_title(name, loc="left", fontsize=13, fontweight="bold", pad=26)
        lower.set_title("claims, by who received them", loc="left", fontsize=10)
        _draw_legend(lower)
        lower.set_xlabel("time (UTC)")
        locator = dates.AutoDateLocator(tz=timezone.utc)
        lower.xaxis.set_major_locator(locator)
        lower.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=timezone.utc))
        upper.set_xlim(begin, end)
    # If pyplot kept the figure, a notebook would show it twice.
    plt.close(figure)
    return figure


def _convert_to_days(hold: ClaimSpan, zero: float) -> ClaimSpan:
    """Return the claim with matplotlib's instants, in days. `zero` is the instant of second 0."""
    end = None if hold.end is None else zero + hold.end / _DAY_SECONDS
    hidden = {zero + until / _DAY_SECONDS: zero + since / _DAY_SECONDS for until, since in hold.hidden.items()}
    return replace(
        hold, start=zero + hold.start / _DAY_SECONDS, end=end, until=zero + hold.until / _DAY_SECONDS, hidden=hidden
    )


def _draw_legend(axes: Any) -> None:
    from matplotlib.patches import Patch

    bars = [
        Patch(facecolor=IN_FLIGHT, label="held, until it was settled or now"),
        Patch(facecolor=LOST, hatch="////", edgecolor="white", alpha=0.85, label="ran out"),
        Patch(facecolor="none", edgecolor=INK, linestyle=":", label="given back, hidden until later"),
        Patch(facecolor="none", edgecolor=LOST, linewidth=1.8, label="took over what had run out"),
    ]
    axes.legend(
        handles=bars,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=4,
        frameon=False,
        borderaxespad=0.2,
        fontsize=9,
    )


def draw_levels(axes: Any, moments: Sequence[Level], end: float, unit: str) -> None:
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
    axes.yaxis.get_major_locator().set_params(integer=True)
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


def draw_claims(axes: Any, holds: Sequence[ClaimSpan], owners: Sequence[str], now: float | None = None) -> None:
    """Draw claims as bars, a row for each owner, and their postponed or parked messages as dotted bars.

    Without `now`, claims whose end is not known are left out.
    """
    rows = {owner: row for row, owner in enumerate(owners)}
    for hold in holds:
        end = hold.end
        ran_out = hold.ran_out
        if end is None and now is not None:
            end, ran_out = min(now, hold.until), hold.until <= now
        if hold.owner not in rows or end is None:
            continue
        for until, since in hold.hidden.items():
            shown = until if now is None else min(now, until)
            hidden = {"width": max(0.0, shown - since), "left": since, "height": 0.31}
            axes.barh(rows[hold.owner], **hidden, fill=False, edgecolor=INK, linestyle=":", linewidth=1.2)
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
