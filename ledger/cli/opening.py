"""Options that commands share, and the function that opens the ledger."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from ledger.ledger import Ledger

IN_PART = 3
Function = TypeVar("Function", bound=Callable[..., Any])


class WrongInput(click.ClickException):
    """An input cannot be used: exit code 2, and no usage text."""

    exit_code = 2


def with_root(function: Function) -> Function:
    for option in (
        click.option(
            "--settings",
            envvar="LEDGER_SETTINGS",
            metavar="FILE",
            help="A TOML file of settings, like conf/ledger.toml.  [env var: LEDGER_SETTINGS]",
        ),
        click.option(
            "-r",
            "--root",
            envvar="LEDGER_ROOT",
            metavar="ROOT",
            help="The ledger: a path, or a URI such as s3://bucket/ledger.  [env var: LEDGER_ROOT]",
        ),
    ):
        function = option(function)
    return function


def as_json(function: Function) -> Function:
    return click.option("--json", "json", is_flag=True, help="For programs: print JSON, a document a line.")(function)


def find_root(root: str | None) -> str | None:
    """Return the root: the argument ROOT of a command, else --root, else LEDGER_ROOT, else None.

    Raises click.UsageError if the argument and an option name two different ledgers.
    """
    context = click.get_current_context()
    place = context.params.get("place")
    root_of_all = context.find_root().params.get("root")
    if place:
        options = (root_of_all, context.params.get("root"))
        for one, where in zip(options, (context.find_root(), context)):
            is_typed = where.get_parameter_source("root") == ParameterSource.COMMANDLINE
            if one and is_typed and os.path.realpath(one) != os.path.realpath(place):
                raise click.UsageError(f"Which ledger, {place} or {one}? Name one: as ROOT, or by --root.")
        return str(place)
    # --root after the command's name overrides --root before it.
    if root_of_all and context.get_parameter_source("root") != ParameterSource.COMMANDLINE:
        return str(root_of_all)
    return root or None


def require_root(root: str | None) -> str:
    place = find_root(root)
    if place is None:
        raise click.UsageError("Which ledger? Give --root ROOT, or set the environment variable LEDGER_ROOT.")
    return place


def open_ledger(root: str | None, settings: str | None, *, read_only: bool = False, create: bool = False) -> Ledger:
    place = require_root(root)
    with _fast_imports():
        from ledger.ledger import Ledger
        from ledger.settings import Settings

        chosen_settings = Settings.read(settings) if settings else None
        return Ledger.open(place, create=create, read_only=read_only, settings=chosen_settings)


@contextmanager
def _fast_imports() -> Iterator[None]:
    """Make imports faster: no garbage collection in the block, one thread of OpenBLAS, pyarrow without pandas."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        _import_arrow_without_pandas()
        yield
    finally:
        if was_enabled:
            gc.enable()


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _import_arrow_without_pandas() -> None:
    """Import pyarrow so that it takes pandas as not installed, unless either was imported before.

    With its first array, pyarrow would import pandas, which may take longer than the rest of a command.
    """
    if "pyarrow" in sys.modules or "pandas" in sys.modules:
        return
    finder: Any = _NoPandas
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow

        pyarrow.array([True])
    finally:
        sys.meta_path.remove(finder)
