"""What every command has: the ledger's root and how it is opened."""

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

#: The exit code of what was done in part.
IN_PART = 3
Function = TypeVar("Function", bound=Callable[..., Any])


class WrongInput(click.ClickException):
    """What was given cannot be taken: exit code 2, without the usage, which was right."""

    exit_code = 2


def with_root(function: Function) -> Function:
    """Adds --root and --settings to a command."""
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
    """Adds --json to a command."""
    return click.option("--json", "json", is_flag=True, help="For programs: a JSON document a line.")(function)


def given_root(root: str | None) -> str | None:
    """The root that is given, to the command, before it, or by the environment; None when there is none. The argument
    ROOT, where a command has it, comes before all options."""
    context = click.get_current_context()
    place = context.params.get("place")
    if place:
        return str(place)
    of_all = context.find_root().params.get("root")
    # What stands before the command holds, unless the command says otherwise.
    if of_all and context.get_parameter_source("root") != ParameterSource.COMMANDLINE:
        return str(of_all)
    return root or None


def named_root(root: str | None) -> str:
    """The root that is given. Raises what the command line shows when there is none."""
    place = given_root(root)
    if place is None:
        raise click.UsageError("Which ledger? Give --root ROOT, or set the environment variable LEDGER_ROOT.")
    return place


def open_ledger(root: str | None, settings: str | None, *, read_only: bool = False, create: bool = False) -> Ledger:
    """The ledger that the arguments name. `read_only`: to be looked at, where one may not write too."""
    place = named_root(root)
    with _lightly():
        from ledger.ledger import Ledger
        from ledger.settings import Settings

        known = Settings.read(settings) if settings else None
        return Ledger.open(place, create=create, read_only=read_only, settings=known)


@contextmanager
def _lightly() -> Iterator[None]:
    """Imports in the block take half their time: no pandas, no threads for algebra that nobody does, and nothing that
    is garbage yet is looked for."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    was = gc.isenabled()
    gc.disable()
    try:
        _spare_pandas()
        yield
    finally:
        if was:
            gc.enable()


class _NoPandas:
    """Finds pandas nowhere."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError for pandas; knows nothing of all else."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _spare_pandas() -> None:
    """pyarrow imports pandas, which takes longer than all else that a command does, when it makes its first array, to
    tell DataFrames from other values. The command line has none: pyarrow looks once, and does not find it."""
    if "pyarrow" in sys.modules or "pandas" in sys.modules:
        return
    finder: Any = _NoPandas
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow

        pyarrow.array([True])
    finally:
        sys.meta_path.remove(finder)
