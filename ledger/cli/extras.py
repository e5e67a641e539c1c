"""Commands whose imports are an extra: each is here, with the name of the extra to install, and is imported when run.

A command with an extra is a function that imports inside `of_extra`, as `serve` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def of_extra(extra: str) -> Iterator[None]:
    """Turns an import that fails in the block into the line that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "ledger":
            raise
        raise click.ClickException(
            f"this needs {error.name}: install the extra `{extra}`, pip install '/path/to/clone[{extra}]'"
        ) from None
