"""Folders for a while, in which delta-rs commits beside a table's log, or sums it up."""

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
#: Whoever made a folder so many seconds ago was killed: no commit takes a day.
ABANDONED = 86_400
#: What a probe writes: more than a file system keeps beside a name.
PROBE = b"0" * 65_536
_swept: set[str] = set()


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Yield a new folder below that for temporary files (TMPDIR), which goes with the context. The first one of a
    process removes those that killed processes of the same user have left.

    Raises OSError, which names the folder for temporary files, where that takes no file.
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
        said = f"the folder for temporary files {place} (TMPDIR) takes no file: {full.strerror}"
        raise OSError(full.errno, said) from error


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > ABANDONED:
                shutil.rmtree(folder)


def _refused(place: str) -> OSError | None:
    """What a folder says to a file; None: it takes it."""
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix="ledger-probe-") as file:
            file.write(PROBE)
            file.flush()
        return None
    except OSError as error:
        return error
