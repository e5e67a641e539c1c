"""Ledgers, queues, claims and results as small HTML tables for notebooks, with every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Any

#: By state, a colour for light and dark pages.
BAR_STATES = (
    ("visible", "#8fa3b8"),
    ("delayed", "#b9a3d0"),
    ("locked", "#6f6f7a"),
    ("in_flight", "#f2a541"),
    ("deleted", "#3f8f6b"),
)
MOST_QUEUES, MOST_OUTCOMES = 50, 20
MOST_ERROR_CHARACTERS = 200
_OUTCOME_COLUMNS = ("message_id", "receipt_handle", "outcome", "sequence_number", "error_code", "error_message")
_CELL = "text-align:left;padding:2px 12px 2px 0"


def render_table(title: str, rows: Iterable[tuple[str, object]], below: str = "") -> str:
    """Return a title, the HTML `below`, and a table of names and values."""
    lines = "".join(
        f'<tr><th style="{_CELL};font-weight:normal;opacity:.7">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(_format_value(value))}</td></tr>'
        for name, value in rows
    )
    return f"<div><b>{escape(title)}</b>{below}<table>{lines}</table></div>"


def render_queue(queue: Any) -> str:
    counts = queue.counts()
    attributes = queue.access.record().attributes
    rows: list[tuple[str, object]] = [(_format_name(state), f"{getattr(counts, state):,}") for state, _ in BAR_STATES]
    rows += [
        (_format_name(state), f"{getattr(counts, state):,}") for state in ("expired", "moved") if getattr(counts, state)
    ]
    rows += [
        ("oldest", _format_age(counts.age_of_oldest)),
        ("visibility timeout", f"{attributes['VisibilityTimeout']} s"),
    ]
    return render_table(f"Queue {queue.name}", rows, _render_bar(counts))


def render_ledger(ledger: Any) -> str:
    """Return a ledger as HTML: a line for each of its first MOST_QUEUES queues, with its counts or their error."""
    queues = ledger.list_queues(max_results=MOST_QUEUES + 1)
    names = ("queue", "visible", "delayed", "in flight", "deleted", "oldest", "")
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in names)
    lines = []
    for queue in queues[:MOST_QUEUES]:
        try:
            counts = queue.counts()
        except Exception as error:
            cells = [escape(queue.name), *[""] * 5, escape(f"{type(error).__name__}: {error}"[:MOST_ERROR_CHARACTERS])]
        else:
            values = (counts.visible, counts.delayed, counts.in_flight, counts.deleted)
            cells = [
                escape(queue.name),
                *(f"{value:,}" for value in values),
                _format_age(counts.age_of_oldest),
                _render_bar(counts),
            ]
        lines.append("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>")
    more = "<i>and more queues</i>" if len(queues) > MOST_QUEUES else ""
    return f"<div><b>{escape(repr(ledger))}</b><table><tr>{head}</tr>{''.join(lines)}</table>{more}</div>"


def render_claim(claim: Any) -> str:
    if claim.grant is None:
        return render_table(
            "Claim of nothing", [("queue", claim.access.name), ("error", claim.error)][: 1 + bool(claim.error)]
        )
    rows = [("queue", claim.access.name), ("messages", f"{claim.count:,}")]
    if claim.held < claim.count:
        rows.append(("held", f"{claim.held:,}"))
    rows.append(("until", _format_deadline(claim.deadline, claim.access.clock() / 1_000)))
    rows += [("receipt", str(claim.receipt_id)), ("version", str(claim.version))]
    return render_table("Claim", rows)


def render_outcomes(outcomes: Sequence[Any]) -> str:
    """Return outcomes as HTML: the counts of successes and failures, and the first MOST_OUTCOMES, failures first."""
    if not outcomes:
        return "<b>no outcomes</b>"
    failed = sum(not outcome for outcome in outcomes)
    names = [name for name in _OUTCOME_COLUMNS if any(getattr(outcome, name, None) is not None for outcome in outcomes)]
    head = "".join(f'<th style="{_CELL}">{escape(_format_name(name))}</th>' for name in ("", *names))
    first = sorted(range(len(outcomes)), key=lambda place: bool(outcomes[place]))[:MOST_OUTCOMES]
    lines = []
    for place in first:
        values = [getattr(outcomes[place], name) for name in names]
        cells = [f"{place}", *("" if value is None else escape(_format_value(value)) for value in values)]
        lines.append("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>")
    more = f"<i>and {len(outcomes) - len(first):,} more</i>" if len(outcomes) > len(first) else ""
    title = f"{len(outcomes):,} outcomes: {len(outcomes) - failed:,} successful, {failed:,} failed"
    return f"<div><b>{title}</b><table><tr>{head}</tr>{''.join(lines)}</table>{more}</div>"


def _format_deadline(deadline: datetime | None, now: float) -> str:
    if deadline is None:
        return "over: deleted, released, or lost to others"
    left = deadline.timestamp() - now
    rest = f"{_format_age(left)} left" if left > 0 else f"over for {_format_age(-left)}"
    return f"{deadline:%Y-%m-%d %H:%M:%S} UTC ({rest})"


def render_fields(value: Any, names: Sequence[str]) -> str:
    rows = [(_format_name(name), getattr(value, name)) for name in names if getattr(value, name) is not None]
    return render_table(type(value).__name__, rows)


def _render_bar(counts: Any) -> str:
    numbers = [(getattr(counts, state), state, colour) for state, colour in BAR_STATES]
    total = sum(number for number, _, _ in numbers)
    parts = "".join(
        f'<span title="{number:,} {_format_name(state)}" style="display:inline-block;height:10px;background:{colour};'
        f'width:{max(1, round(240 * number / total))}px"></span>'
        for number, state, colour in numbers
        if number
    )
    return f'<div style="white-space:nowrap;line-height:10px;margin:4px 0">{parts}</div>'


def _format_age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s"


def _format_name(name: str) -> str:
    return name.replace("_", " ")


def _format_value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
