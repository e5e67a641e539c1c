"""What the figures were taken on: the machine, the versions, the day."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from datetime import datetime, timezone
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

VERSIONS = ("pyspark", "delta-spark", "deltalake", "pyarrow", "psycopg")
MODULES = {"delta-spark": "delta"}


def describe(work: Path) -> dict[str, str]:
    """Return the machine's description, in the order in which a reader wants it; `work` is where the tables lie."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": str(len(os.sched_getaffinity(0))),
        "CPU": _line_of("/proc/cpuinfo", "model name") or platform.processor(),
        "memory": f"{int(_line_of('/proc/meminfo', 'MemTotal').split()[0]) / 1024**2:.1f} GiB",
        "disk": f"{_mount_of(work)}, {shutil.disk_usage(work).free / 1024**3:.0f} GiB free",
        "load before the run": f"{os.getloadavg()[0]:.2f}",
        "system": platform.platform(),
        "Python": platform.python_version(),
        **{name: metadata.version(name) for name in VERSIONS if find_spec(MODULES.get(name, name))},
    }


def told(arguments: argparse.Namespace) -> dict[str, object]:
    """The arguments of a run, but for where its files lay."""
    return {name: value for name, value in vars(arguments).items() if name not in ("results", "work")}


def _line_of(file: str, key: str) -> str:
    for line in Path(file).read_text().splitlines():
        if line.startswith(key):
            return line.partition(":")[2].strip()
    return ""


def _mount_of(folder: Path) -> str:
    rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    holding = [row for row in rows if folder.resolve().is_relative_to(row[1])]
    return max(holding, key=lambda row: len(row[1]))[2] if holding else "unknown"
