"""What a storage raises, in whatever words, as StorageFailed: the one place that knows the engines' errors apart from
mistakes of our own."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from ledger import forks
from ledger.errors import ForkedProcess, StorageFailed
from ledger.rules.location import recorded

Kind = TypeVar("Kind", bound=type)
#: What of an engine's own words is shown; delta-rs's may go on with a trace of its calls.
SHOWN = 300
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: What the store asks of an engine about the ledger's own tables.
METHODS = (
    *("create", "layout", "configure"),
    *("exists", "version", "load", "merge", "append", "mark", "files", "messages", "delete", "greatest"),
    *("history", "newest_versions"),
    *("transaction_version", "compact", "vacuum", "make_durable"),
)

#: What is asked where there may be no table yet.
BEFORE = ("create", "exists")


def shown(error: BaseException) -> str:
    """What an engine says, in a line: without the colours and the arrows that delta-rs gives to causes, and without
    what obstore has for its own developers."""
    text = _COLOURS.sub("", str(error)).partition("\n\nDebug source:")[0].replace("\u21b3", " ")
    return " ".join(text.split())[:SHOWN] or type(error).__name__


def gone_folder(place: str) -> str | None:
    """Return the outermost folder that is gone, of a `place` on a local path that was there: the ledger's root, say.
    None where the place is there, and elsewhere."""
    known = recorded(place)
    folder = Path(known.text)
    missing = [one for one in (folder, *folder.parents) if not one.exists()] if known.is_local else []
    return str(missing[-1]) if missing else None


@contextlib.contextmanager
def naming(place: str, *kinds: type[Exception], is_open: bool = False) -> Iterator[None]:
    """Turns errors of the storage at `place`, and those of further kinds, into StorageFailed. `is_open`: there was a
    table when this process opened the ledger, so that a folder which is not there is gone, and is named as such."""
    try:
        yield
    except (OSError, pa.ArrowException, *kinds) as error:
        gone = gone_folder(place) if is_open and not isinstance(error, PermissionError) else None
        if gone is not None:
            why = "it was renamed, moved or removed, or its disk is not mounted"
            raise StorageFailed(place, f"there is no folder {gone} any more: {why}") from error
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
    Where its `damage(table)` explains the failure, it raises that LedgerDamaged instead; where its `alteration(table)`
    does, that is the cause."""

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
            with naming(self.place(table), *kinds, is_open=method.__name__ not in BEFORE):
                return method(self, *arguments, **keywords)
        except StorageFailed as failed:
            damage = self.damage(table)
            if damage is not None:
                raise damage from failed
            altered = self.alteration(table)
            if altered is not None:
                raise StorageFailed(self.place(table), altered, failed.verb, unknown=failed.unknown) from failed
            raise

    return named
