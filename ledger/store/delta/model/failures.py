"""What a storage raises, in whatever words, as StorageFailed: the one place that knows the engines' errors apart from
mistakes of our own."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from ledger import forks
from ledger.errors import ForkedProcess, StorageFailed

Kind = TypeVar("Kind", bound=type)
#: What of an engine's own words is shown; delta-rs's may go on with a trace of its calls.
SHOWN = 300
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: What the store asks of an engine about the ledger's own tables.
METHODS = (
    *("create", "layout", "configure"),
    *("exists", "version", "load", "merge", "append", "mark", "files", "messages", "delete", "greatest"),
    "history",
    *("transaction_version", "compact", "vacuum", "make_durable"),
)


def shown(error: BaseException) -> str:
    """What an engine says, in a line: without the colours and the arrows that delta-rs gives to causes, and without
    what obstore has for its own developers."""
    text = _COLOURS.sub("", str(error)).partition("\n\nDebug source:")[0].replace("\u21b3", " ")
    return " ".join(text.split())[:SHOWN] or type(error).__name__


@contextlib.contextmanager
def naming(place: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turns errors of the storage at `place`, and those of further kinds, into StorageFailed."""
    try:
        yield
    except (OSError, pa.ArrowException, *kinds) as error:
        raise StorageFailed(place, shown(error)) from error
    except BaseException as error:
        if forks.is_panic(error):
            raise ForkedProcess("delta-rs") from None
        # delta-rs has no class of its own for some of Arrow's errors; nobody else raises the bare root of all errors.
        if type(error) is Exception:
            raise StorageFailed(place, shown(error)) from error
        raise


def names_failures(*kinds: type[Exception], also: Sequence[str] = ()) -> Callable[[Kind], Kind]:
    """Makes an engine's METHODS, and what it has `also`, raise StorageFailed; its `place(table)` says where a table
    lies.
    Where its `damage(table)` explains the failure, it raises that LedgerDamaged instead."""

    def decorate(engine: Kind) -> Kind:
        for name in (*METHODS, *also):
            setattr(engine, name, _naming(getattr(engine, name), kinds))
        return engine

    return decorate


def _naming(method: Callable[..., Any], kinds: tuple[type[Exception], ...]) -> Callable[..., Any]:
    @functools.wraps(method)
    def named(self: Any, *arguments: Any, **keywords: Any) -> Any:
        # `files` and `messages` are about that one table, and name none.
        table = next((one for one in arguments if isinstance(one, str)), "messages")
        try:
            with naming(self.place(table), *kinds):
                return method(self, *arguments, **keywords)
        except StorageFailed as failed:
            damage = self.damage(table)
            if damage is None:
                raise
            raise damage from failed

    return named
