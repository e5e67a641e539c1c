"""Copies of a folder of Delta tables that cost next to nothing, so that every repeat starts from the same state."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

_numbers = itertools.count()


def linked_copy(template: Path) -> Path:
    """A copy beside `template` under a name never used before: data files as hard links, the log as a true copy.

    Delta never changes a data file in place, so the links are safe; a new name keeps caches from mixing copies up.
    """
    copy = template.parent / f"copy-{next(_numbers)}"
    shutil.copytree(template, copy, copy_function=_link_data)
    return copy


def _link_data(source: str, target: str) -> None:
    if "_delta_log" not in source and source.endswith((".parquet", ".parquet.crc")):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)


def remove(folder: Path | None) -> None:
    """Deletes a folder, if there is one."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
