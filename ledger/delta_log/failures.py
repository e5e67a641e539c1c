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

from ledger.errors import ForkedProcess, StorageFailed, TableAltered
from ledger.rules.location import recorded
from ledger.runtime import forks

Kind = TypeVar("Kind", bound=type)
#: What of an engine's own words is shown; delta-rs's may go on with a trace of its calls.
SHOWN = 300
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: The methods of DeltaTables that reach the storage.
METHODS = (
    *("create", "exists", "layout", "configure", "version", "load", "rows", "file_facts", "greatest", "history"),
    *("newest_versions", "refusal"),
    *("merge", "add_rows", "mark", "delete", "join_files", "transaction_version", "vacuum", "make_durable"),
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


#: How delta-rs and Delta on Spark say that a constraint of the table refuses a row.
OF_CONSTRAINTS = ("failed validation check", "DELTA_VIOLATE_CONSTRAINT")


def _constraint_causing_failure(table: str, failed: StorageFailed) -> tuple[str, str] | None:
    """Return in words that a table has a constraint which refuses what was to be written, and what to do; None: that is
    not why."""
    if not any(sign in failed.cause for sign in OF_CONSTRAINTS):
        return None
    return (
        f"somebody gave the table {table} a constraint that refuses a row of this commit: {failed.cause}",
        f"Spark takes it back by: ALTER TABLE delta.`{failed.place}` DROP CONSTRAINT and its name",
    )


def translate_storage_errors(
    *kinds: type[Exception], methods: Sequence[str] = METHODS, also: Sequence[str] = (), default: str | None = None
) -> Callable[[Kind], Kind]:
    """Return a decorator that makes methods of a class raise StorageFailed.

    The class has `place(table)`, which says where a table lies, `damage(table)` and `alteration(table)`. Where the
    damage explains a failure, that LedgerDamaged is raised instead; where the alteration does, TableAltered.

    Args:
        kinds: What the engine raises, beside OSError and Arrow's errors.
        methods: The methods. The first text that one is called with is the name of a table.
        also: Further methods.
        default: The table that a method is about which is called without a name; else it is the first of
            `self.locations`.
    """

    def decorate(engine: Kind) -> Kind:
        for name in (*methods, *also):
            setattr(engine, name, _translating(getattr(engine, name), kinds, default))
        return engine

    return decorate


def _translating(
    method: Callable[..., Any], kinds: tuple[type[Exception], ...], default: str | None
) -> Callable[..., Any]:
    @functools.wraps(method)
    def named(self: Any, *arguments: Any, **keywords: Any) -> Any:
        table = next((one for one in arguments if isinstance(one, str)), default) or next(iter(self.locations))
        try:
            with naming(self.place(table), *kinds, is_open=method.__name__ not in BEFORE):
                return method(self, *arguments, **keywords)
        except TableAltered:
            raise
        except StorageFailed as failed:
            damage = self.damage(table)
            if damage is not None:
                raise damage from failed
            altered = self.alteration(table) or _constraint_causing_failure(table, failed)
            if altered is not None:
                what, fix = altered
                raise TableAltered(self.place(table), what, fix, failed.verb, unknown=failed.unknown) from failed
            raise

    return named
