"""The user's cache folder, for files that are made or fetched once."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.errors import LedgerError


class RuntimeSetupError(LedgerError, RuntimeError):
    """The machine lacks something that the ledger needs. The message names it, and the fix."""


def cache_folder() -> Path:
    """Return the cache folder, and make it if it is missing. Raises RuntimeSetupError."""
    own = os.environ.get("LEDGER_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    folder = Path(own) if own else (Path(shared) if shared else Path.home() / ".cache") / "ledger"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RuntimeSetupError(
            f"cache folder {folder} cannot be made ({error.strerror}): set LEDGER_CACHE to a folder you may write"
        ) from error
    return folder.resolve()


def make_once(name: str, fill: Callable[[Path], None], is_whole: Callable[[Path], bool] = Path.exists) -> Path:
    """Return the cache's folder `name`. If it is not whole, replace it by a draft that `fill` has filled.

    One process fills its draft while others wait. Raises RuntimeSetupError for a PermissionError.
    """
    finished = cache_folder() / name
    if is_whole(finished):
        return finished
    try:
        with _lock(finished):
            if not is_whole(finished):
                draft = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=finished.parent))
                try:
                    fill(draft)
                    draft.chmod(0o755)
                    shutil.rmtree(finished, ignore_errors=True)
                    draft.rename(finished)
                finally:
                    shutil.rmtree(draft, ignore_errors=True)
    except PermissionError as error:
        raise RuntimeSetupError(
            f"cache folder {finished.parent} cannot be written: set LEDGER_CACHE to a folder you may write"
        ) from error
    return finished


def say(message: str) -> None:
    print(f"ledger: {message}", file=sys.stderr, flush=True)


@contextmanager
def _lock(finished: Path) -> Iterator[None]:
    with (finished.parent / f".{finished.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
