"""Temporary folders, in which delta-rs makes commits, checkpoints and tables for this package to copy."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from deltalake.exceptions import DeltaError

PREFIX = "ledger-commit-"
#: The age of a folder, in seconds, after which its process counts as dead.
ABANDONED = 86_400
#: More than a file system stores with a name.
PROBE = b"0" * 65_536
_swept: set[str] = set()


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Return a context with a new folder below TMPDIR, removed at its end. Dead processes' folders are removed, too.

    If TMPDIR takes no file, an error in the context becomes an OSError that names it.
    """
    place = tempfile.gettempdir()
    if place not in _swept:
        _swept.add(place)
        _sweep(Path(place))
    try:
        with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
            yield folder
    except (OSError, DeltaError) as error:
        full = _refused(place)
        if full is None:
            raise
        problem = f"the folder for temporary files {place} (TMPDIR) takes no file: {full.strerror}"
        raise OSError(full.errno, problem) from error


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > ABANDONED:
                shutil.rmtree(folder)


def _refused(place: str) -> OSError | None:
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix="ledger-probe-") as file:
            file.write(PROBE)
            file.flush()
        return None
    except OSError as error:
        return error
