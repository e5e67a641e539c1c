"""What a storage raises, in whatever words, as StorageFailed: the one place that knows the engines' errors apart from
mistakes of our own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from ledger.errors import StorageFailed

Kind = TypeVar("Kind", bound=type)
#: What of an engine's own words is shown; delta-rs's may go on with a trace of its calls.
SHOWN = 300


@contextlib.contextmanager
def naming(place: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turns errors of the storage at `place`, and those of further kinds, into StorageFailed."""
    try:
        yield
    except (OSError, pa.ArrowException, *kinds) as error:
        raise StorageFailed(place, " ".join(str(error).split())[:SHOWN] or type(error).__name__) from error
    except Exception as error:
        # delta-rs has no class of its own for some of Arrow's errors; nobody else raises the bare root of all errors.
        if type(error) is Exception:
            raise StorageFailed(place, " ".join(str(error).split())[:SHOWN]) from error
        raise


def names_failures(methods: tuple[str, ...], *kinds: type[Exception]) -> Callable[[Kind], Kind]:
    """Makes these methods of an engine, whose first argument is a table's name, raise StorageFailed; `place(table)` of
    the engine says where the table lies."""

    def decorate(engine: Kind) -> Kind:
        for name in methods:
            setattr(engine, name, _naming(getattr(engine, name), kinds))
        return engine

    return decorate


def _naming(method: Callable[..., Any], kinds: tuple[type[Exception], ...]) -> Callable[..., Any]:
    @functools.wraps(method)
    def named(self: Any, *arguments: Any, **keywords: Any) -> Any:
        table = next((one for one in arguments if isinstance(one, str)), "messages")
        with naming(self.place(table), *kinds):
            return method(self, *arguments, **keywords)

    return named
