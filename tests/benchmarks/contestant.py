"""What is compared: anything that can claim, extend, release and delete messages; and the rows of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from timing import Cell, OverBudget, Patience, say, timed

VERBS = ("claim", "extend", "release", "delete")
MILLION = 1_000_000
#: A claim of every message.
ALL = None


class Contestant(Protocol):
    """One way to keep a queue. A claim is whatever `claim` answers; the other verbs act on all of it."""

    name: str

    def load(self, messages: int) -> Cell | None:
        """Makes a backlog of so many messages, kept as the starting point; answers how long the send itself took."""

    def restore(self, taken: int) -> None:
        """Back to the starting point, after `taken` messages were claimed or deleted. Untimed."""

    def settle(self) -> None:
        """What runs between repeats, untimed, so that none pays for another."""

    def claim(self, messages: int | None) -> Any:
        """Claims so many messages (ALL: every one) in one transaction."""

    def count(self, claim: Any) -> int:
        """How many messages a claim holds."""

    def extend(self, claim: Any) -> None:
        """Moves the deadline."""

    def release(self, claim: Any) -> None:
        """Gives all back."""

    def delete(self, claim: Any) -> None:
        """Acknowledges all."""

    def unload(self) -> None:
        """Forgets the backlog."""


def compare(contestant: Contestant, messages: int, sizes: Sequence[int | None], patience: Patience) -> dict[str, Any]:
    """Every verb at every size on one backlog: {"send": cell, "10": {"claim": cell, ...}, ...}, as JSON."""
    found: dict[str, Any] = {}
    say(f"{contestant.name}: sending {messages:,}")
    sent = contestant.load(messages)
    if sent is not None:
        found["send"] = sent.as_json()
    for size in sizes:
        cells = _cells(contestant, messages, size, patience)
        found[name_of(size)] = {verb: cell.as_json() for verb, cell in cells.items()}
        figures = ", ".join(f"{verb} {_brief(cell)}" for verb, cell in cells.items())
        say(f"{contestant.name}: {name_of(size)} of {messages:,}: {figures}")
    contestant.unload()
    return found


def name_of(size: int | None) -> str:
    """A size as the report names it."""
    return "all" if size is ALL else f"{size:,}"


def _cells(contestant: Contestant, messages: int, size: int | None, patience: Patience) -> dict[str, Cell]:
    cells = {verb: Cell() for verb in VERBS}
    wanted = messages if size is ALL else min(size, messages)
    verb = "claim"

    def step(name: str, *arguments: Any) -> float:
        nonlocal verb
        verb = name
        seconds, claim = timed(lambda: getattr(contestant, name)(*arguments))
        if name == "claim":
            held = contestant.count(claim)
            if held != wanted:
                raise AssertionError(f"{contestant.name} claimed {held:,} of {wanted:,} messages")
            step.claim = claim
        return seconds

    try:
        contestant.restore(wanted)
        warm = {"claim": step("claim", size)}
        warm |= {name: step(name, step.claim) for name in ("extend", "release")}
        for _ in range(patience.repeats(max(warm.values()))):
            contestant.settle()
            cells["claim"].seconds.append(step("claim", size))
            for name in ("extend", "release"):
                cells[name].seconds.append(step(name, step.claim))
        for name, seconds in warm.items():
            cells[name].seconds = cells[name].seconds or [seconds]
        # Deleting uses the backlog up, so every repeat starts from the same backlog again.
        for repeat in range(1 + patience.repeats(max(warm["claim"], warm["release"]))):
            if repeat == 0 or wanted * 20 > messages:
                contestant.restore(wanted)
            step("claim", size)
            cells["delete"].seconds.append(step("delete", step.claim))
        if len(cells["delete"].seconds) > 1:
            del cells["delete"].seconds[0]
    except OverBudget:
        cells[verb].over, cells[verb].seconds = patience.budget, []
        for other in VERBS[VERBS.index(verb) + 1 :]:
            cells[other].note = f"not reached: {verb} took over {patience.budget:.0f} s"
    return cells


def _brief(cell: Cell) -> str:
    return f"{cell.median:.3f} s" if cell.median is not None else f"> {cell.over:.0f} s" if cell.over else "-"
