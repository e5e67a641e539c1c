"""The error of a command whose extra is not installed.

A command with an extra imports the extra's packages inside `naming_extra`, as `serve` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def naming_extra(extra: str) -> Iterator[None]:
    """Turn an import that fails in the block into an error that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "ledger":
            raise
        raise click.ClickException(
            f"this needs {error.name}: install the extra `{extra}`, pip install '/path/to/clone[{extra}]'"
        ) from None
