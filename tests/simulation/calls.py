"""What clients called, and on whose behalf commits were made: what the judge goes by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Call:
    """A verb that a client called. `ended` is None while it has no answer, which may be for ever."""

    client: str
    verb: str
    queue: str
    began: int
    #: What it is about, by name: receipt, attempt, attributes, bodies, ...
    about: dict[str, Any] = field(default_factory=dict)
    ended: int | None = None
    answer: Any = None
    error: str | None = None
    #: What its process took for the time when it began, and when it ended.
    clocks: tuple[int, int] = (0, 0)
    #: The point since which its client did not sleep before it was answered.
    looked: int = 0


@dataclass(frozen=True)
class Actor:
    """Who made a commit, for the judge: the call, the point it was made at, and the clock of its process, then and when
    this try of the verb had its turn; `looked`: the point since which its client did not sleep. `steps`: the decisions
    that it holds, where verbs may share it."""

    call: Call | None
    at_point: int
    clock: int
    since: int
    steps: tuple[Any, ...] = ()
    looked: int = 0
