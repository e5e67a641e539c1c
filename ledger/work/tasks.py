"""The arguments of a worker and of a consumer, checked before a message is claimed."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ledger.errors import InvalidParameterValue
from ledger.message import Message
from ledger.results import Consumed
from ledger.rules.attempts import ALONE, Share
from ledger.rules.limits import check_whole_number
from ledger.work.group_limits import Limits, require_limits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("ledger.consume")
work_log = logging.getLogger("ledger.work")
UNTIL_WORDS = ("empty", "once", "forever")
#: A handler, also an `async def`, takes a message, or a list of messages if `batch` is set.
Handler: TypeAlias = Callable[[Message], object] | Callable[[list[Message]], object]
MOST_CONCURRENCY, MOST_PROCESSES = 4_096, 256


@dataclass(frozen=True)
class Work:
    """The arguments of a worker, as in Queue.work."""

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
    say: Callable[[str], None] = work_log.info
    bar: bool | None = None
    #: Whether the reasons are exceptions caught for single rows. A function that fails for every row then raises
    #: nothing, so the worker compares the reasons.
    per_row: bool = False

    def __post_init__(self) -> None:
        for name, function in (("function", self.function), ("report", self.say)):
            if not callable(function):
                raise InvalidParameterValue(name, type(function).__name__, "Must be a function")
        if self.failures is not None and str(self.failures) == str(self.output):
            raise InvalidParameterValue(
                "failures", str(self.failures), "It is the output table", "Name another table for failed messages."
            )
        if self.until not in UNTIL_WORDS:
            raise InvalidParameterValue("until", self.until, f"Must be one of {', '.join(UNTIL_WORDS)}")
        most = self.maximum_receives
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidParameterValue("maximum_receives", most, "Must be a number from 1 on")


def ignore(done: Consumed) -> None:
    """Do nothing with the counts."""


@dataclass(frozen=True)
class Consumption:
    """The arguments of a consumer, as in Queue.consume."""

    handler: Callable[[Any], Any]
    output: Any = None
    concurrency: int = 32
    batch: int | None = None
    processes: int = 1
    max_messages: int | None = None
    visibility_timeout: int | None = None
    attempt_id: str | None = None
    until: str = "empty"
    flush_rows: int = 10_000
    flush_seconds: float = 5.0
    maximum_receives: int | None = None
    retry_after: int = 0
    park: int = 3_600
    schema: Any = None
    cost: str | None = None
    flush_cost: float | None = None
    max_bytes: int = 128 << 20
    group_limits: Limits | None = None
    limits_folder: str | os.PathLike[str] | None = None
    say: Callable[[str], None] = log.info
    warn: Callable[[str], None] = log.warning
    #: Called with the counts so far, after each settlement and each lost claim.
    on_progress: Callable[[Consumed], None] = ignore
    share: Share = ALONE

    def __post_init__(self) -> None:
        require_handler(self.handler)
        if not callable(self.say):
            raise InvalidParameterValue("report", type(self.say).__name__, "Must be a function of a line of text")
        check_whole_number("concurrency", self.concurrency, 1, MOST_CONCURRENCY)
        check_whole_number("processes", self.processes, 1, MOST_PROCESSES)
        check_whole_number("flush_rows", self.flush_rows, 1, None)
        check_whole_number("max_bytes", self.max_bytes, 1, None)
        for name in ("batch", "max_messages", "maximum_receives"):
            if getattr(self, name) is not None:
                check_whole_number(name, getattr(self, name), 1, None)
        _require_positive("flush_seconds", self.flush_seconds, "seconds")
        if self.flush_cost is not None:
            _require_positive("flush_cost", self.flush_cost, "the cost's unit")
            if self.cost is None:
                raise InvalidParameterValue("flush_cost", self.flush_cost, "Needs to know the cost", "Give cost=.")
        if self.group_limits is not None:
            require_limits(self.group_limits)
        if self.limits_folder is not None:
            if self.group_limits is None:
                raise InvalidParameterValue("limits_folder", self.limits_folder, "Is for limits", "Give group_limits=.")
            if not Path(self.limits_folder).is_dir():
                raise InvalidParameterValue("limits_folder", self.limits_folder, "Must be a folder that exists")
        if self.until not in UNTIL_WORDS:
            raise InvalidParameterValue("until", self.until, f"Must be one of {', '.join(UNTIL_WORDS)}")
        if self.cost is not None and not isinstance(self.cost, str):
            raise InvalidParameterValue("cost", self.cost, "Must be the name of a column of the rows")
        for name in ("schema", "cost"):
            if getattr(self, name) is not None and self.output is None:
                bound = "Only rows of an output have it, and there is no output"
                raise InvalidParameterValue(name, str(getattr(self, name)), bound, "Name an output.")

    @property
    def is_async(self) -> bool:
        return _is_async(self.handler)

    @property
    def at_once(self) -> int:
        """The most messages that the handlers of one process work on at once."""
        return self.concurrency * (self.batch or 1)


def _require_positive(name: str, value: Any, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise InvalidParameterValue(name, value, f"Must be a number > 0, of {unit}")


def require_handler(handler: Any) -> None:
    """Raise InvalidParameterValue if a handler is no function of one argument, or is a generator."""
    if not callable(handler):
        raise InvalidParameterValue("handler", type(handler).__name__, "Must be a function")
    called = _find_called_function(handler)
    for is_it, kind in ((inspect.isgeneratorfunction, "generator"), (inspect.isasyncgenfunction, "async generator")):
        if is_it(handler) or is_it(called):
            fix = "Return a list of rows in place of yielding them."
            raise InvalidParameterValue(
                "handler", _name_of_handler(handler), f"Must return its rows, and is a {kind}", fix
            )
    try:
        inspect.signature(handler).bind(None)
    except TypeError as error:
        bound = f"Must take one argument, a message, or with batch= a list of them ({error})"
        raise InvalidParameterValue("handler", _name_of_handler(handler), bound) from None
    except ValueError:
        pass  # Python does not know the arguments of some built-in functions.


def _is_async(handler: Any) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(_find_called_function(handler))


def _find_called_function(handler: Any) -> Any:
    return handler if inspect.isroutine(handler) or inspect.isclass(handler) else type(handler).__call__


def _name_of_handler(handler: Any) -> str:
    return str(getattr(handler, "__qualname__", type(handler).__name__))
