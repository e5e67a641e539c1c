"""What a worker is told to do: the function, the tables, and the bounds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.errors import InvalidParameterValue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("ledger.work")
UNTIL = ("empty", "once", "forever")


@dataclass(frozen=True)
class Work:
    """What a worker is told; as in Queue.work."""

    function: Callable[[DataFrame], Any]
    output: Any
    failures: Any = None
    reason: str | None = None
    max_messages: int | None = None
    visibility_timeout: int | None = None
    attempt_id: str | None = None
    until: str = "empty"
    maximum_receives: int | None = None
    park: int = 3_600
    stamped: bool = False
    schema: Any = None
    say: Callable[[str], None] = log.info
    bar: bool | None = None
    #: The reasons are exceptions of single rows, caught: nothing raises where everything fails.
    per_row: bool = False

    def __post_init__(self) -> None:
        for name, given in (("function", self.function), ("report", self.say)):
            if not callable(given):
                raise InvalidParameterValue(name, type(given).__name__, "Must be a function")
        if self.failures is not None and str(self.failures) == str(self.output):
            raise InvalidParameterValue(
                "failures", str(self.failures), "It is the output table", "Name another table for what failed."
            )
        if self.until not in UNTIL:
            raise InvalidParameterValue("until", self.until, f"Must be one of {', '.join(UNTIL)}")
        most = self.maximum_receives
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidParameterValue("maximum_receives", most, "Must be a number from 1 on")
