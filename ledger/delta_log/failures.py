"""Errors of storages and engines, turned into errors of this package."""

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
from ledger.runtime import threads

Kind = TypeVar("Kind", bound=type)
#: The most characters of an engine's message: it may end with a trace of calls.
SHOWN = 300
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: The methods that reach the storage.
METHODS = (
    *("create", "exists", "layout", "configure", "version", "load", "rows", "file_facts", "greatest", "history"),
    "files_above",
    *("newest_versions", "refusal", "why_not_direct"),
    *("merge", "add_rows", "mark", "delete", "join_files", "transaction_version", "vacuum", "make_durable"),
)
#: The methods that may find no table.
BEFORE = ("create", "exists")


def message_of(error: BaseException) -> str:
    text = _COLOURS.sub("", str(error)).partition("\n\nDebug source:")[0].replace("\u21b3", " ")
    return " ".join(text.split())[:SHOWN] or type(error).__name__


def find_gone_folder(place: str) -> str | None:
    """Return the outermost missing folder of a `place`; None: the place exists, or is not a local path."""
    location = recorded(place)
    folder = Path(location.text)
    missing = [path for path in (folder, *folder.parents) if not path.exists()] if location.is_local else []
    return str(missing[-1]) if missing else None


@contextlib.contextmanager
def translating_errors(place: str, *kinds: type[Exception], is_open: bool = False) -> Iterator[None]:
    """Turn errors of the storage at `place`, and errors of further `kinds`, into StorageFailed.

    `is_open`: the table existed when this process opened the ledger, so the error names a folder that is missing.
    """
    try:
        yield
    except (OSError, pa.ArrowException, *kinds) as error:
        gone = find_gone_folder(place) if is_open and not isinstance(error, PermissionError) else None
        if gone is not None:
            why = "it was renamed, moved or removed, or its disk is not mounted"
            raise StorageFailed(place, f"there is no folder {gone} any more: {why}") from error
        raise StorageFailed(place, message_of(error)) from error
    except BaseException as error:
        if threads.is_panic(error):
            raise ForkedProcess("delta-rs") from None
        # delta-rs raises a bare Exception for some of Arrow's errors. A panic of delta-rs or obstore is no Exception at
        # all.
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise StorageFailed(place, message_of(error)) from error
        raise


#: The engines' messages when a constraint of the table refuses a row.
OF_CONSTRAINTS = ("failed validation check", "DELTA_VIOLATE_CONSTRAINT")


def _constraint_causing_failure(table: str, failed: StorageFailed) -> tuple[str, str] | None:
    if not any(sign in failed.cause for sign in OF_CONSTRAINTS):
        return None
    return (
        f"somebody gave the table {table} a constraint that refuses a row of this commit: {failed.cause}",
        f"remove the constraint through Spark: ALTER TABLE delta.`{failed.place}` DROP CONSTRAINT <its name>",
    )


def advise_nothing(failed: StorageFailed) -> str:
    """Return no advice."""
    return ""


def translate_storage_errors(
    *kinds: type[Exception], methods: Sequence[str] = METHODS, also: Sequence[str] = (), default: str | None = None
) -> Callable[[Kind], Kind]:
    """Return a class decorator: in the named methods, the engine's errors become StorageFailed.

    If the class's method `damage` returns an error, this error is raised instead. If `alteration`, or a constraint,
    explains the failure, TableAltered is raised. `advise` returns advice on a StorageFailed, or "".

    Args:
        kinds: The errors that the engine raises, apart from OSError and Arrow's errors.
        methods: The names of the methods. A call's first text argument names the table.
        also: Further methods.
        default: The table of a call that names none; None: the first of `self.locations`.
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
        try:
            return method(self, *arguments, **keywords)
        except TableAltered:
            raise
        except BaseException:
            table = next((argument for argument in arguments if isinstance(argument, str)), default) or next(
                iter(self.locations)
            )
            try:
                with translating_errors(self.place(table), *kinds, is_open=method.__name__ not in BEFORE):
                    raise
            except StorageFailed as failed:
                _raise_explained(self, table, failed)
                raise

    return named


def _raise_explained(engine: Any, table: str, failed: StorageFailed) -> None:
    """Raise the damage or the alteration of a table that explains a failure. Else give the failure its advice."""
    damage = engine.damage(table)
    if damage is not None:
        raise damage from failed
    altered = engine.alteration(table) or _constraint_causing_failure(table, failed)
    if altered is not None:
        what, fix = altered
        raise TableAltered(engine.place(table), what, fix, failed.verb, unknown=failed.unknown) from failed
    if not failed.advice:
        failed.advised(engine.advise(failed))
