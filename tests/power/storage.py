"""A storage that forgets: what a power cut leaves of a folder, by what was synced in it (see forgetful.c)."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("forgetful.c")


def build(folder: Path) -> Path:
    """Compile the library that takes the place of fsync, and return its path."""
    library = folder / "forgetful.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True)
    return library


class Storage:
    """A folder `disk`, and what was synced in it. What is there at first survives."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.disk, self._library = folder / "disk", library
        self._journal, self._store = folder / "journal", folder / "store"
        self._store.mkdir()
        self.disk.mkdir(exist_ok=True)
        self._journal.touch()
        #: The sizes of files that survive, by inode, and the names in folders, by path.
        self._sizes: dict[int, int] = {}
        self._names: dict[str, dict[str, int]] = {}
        for path, _, files in os.walk(self.disk):
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
            for name in files:
                known = Path(path, name).stat()
                self._sizes[known.st_ino] = known.st_size
                os.link(Path(path, name), self._store / str(known.st_ino))

    def environment(self) -> dict[str, str]:
        """What makes a process, and those that it starts, write down what they sync."""
        return {
            **os.environ,
            "LD_PRELOAD": str(self._library),
            "FORGETFUL_ROOT": str(self.disk),
            "FORGETFUL_JOURNAL": str(self._journal),
            "FORGETFUL_STORE": str(self._store),
        }

    def cut(self, target: Path, dice: random.Random) -> None:
        """Make `target` what the disk is after a power cut, which happens now: nobody runs any more.

        Everything that was synced is there. Of the rest each name and each file's bytes are there or not, as luck has
        it: a file may be empty, a part of it, or as long as it was and full of zeros.
        """
        self._read()
        #: In some cuts all is lost, in some nothing, in some a part.
        luck = dice.choice([0.0, 0.0, 0.5, 0.9])
        self._make(self.disk, target, dice, luck)

    def _read(self) -> None:
        folder = ""
        for line in self._journal.read_text().splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "F":
                inode, size, _ = rest.split(" ", 2)
                self._sizes[int(inode)] = int(size)
            elif kind == "D":
                folder, self._names[rest] = rest, {}
            elif kind == "N":
                inode, name = rest.split(" ", 1)
                self._names[folder][name] = int(inode)

    def _make(self, path: Path, target: Path, dice: random.Random, luck: float) -> None:
        target.mkdir()
        there = {entry.name: entry.inode() for entry in os.scandir(path)} if path.is_dir() else {}
        synced = self._names.get(str(path), {})
        for name in sorted({*there, *synced}):
            chosen = there if there.get(name) == synced.get(name) or dice.random() < luck else synced
            if name not in chosen:
                continue
            known, inode = path / name, chosen[name]
            if known.is_dir():
                self._make(known, target / name, dice, luck)
            else:
                kept = known if there.get(name) == inode else self._store / str(inode)
                content = kept.read_bytes() if kept.exists() else b""
                (target / name).write_bytes(self._left(content, self._sizes.get(inode, 0), dice, luck))

    def _left(self, content: bytes, size: int, dice: random.Random, luck: float) -> bytes:
        """What is left of a file of which so many bytes were synced."""
        if size >= len(content) or dice.random() < luck:
            return content
        return dice.choice([content[:size], content[:size], content[:size] + b"\0" * (len(content) - size)])
