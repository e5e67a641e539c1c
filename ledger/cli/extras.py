"""The error of a command whose extra, an optional part of the package, is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def naming_extra(extra: str) -> Iterator[None]:
    """Raise click.ClickException, which names the extra, if an import fails for a package that is not the ledger's."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "ledger":
            raise
        raise click.ClickException(
            f"this needs {error.name}: install the extra `{extra}`, pip install '/path/to/clone[{extra}]'"
        ) from None
