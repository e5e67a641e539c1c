"""The machine's spark-defaults.conf: Spark takes from it each setting that a session or a command does not set."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path


def read_properties(text: str) -> dict[str, str]:
    """Return the settings in a file of spark-defaults format.

    A line that ends with a backslash continues in the next line.
    """
    lines = (line.strip() for line in re.sub(r"\\\n\s*", "", text).splitlines())
    pairs = (re.split(r"\s*=\s*|\s+", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def spark_defaults() -> dict[str, str]:
    """Return the settings of spark-defaults.conf in `$SPARK_CONF_DIR`, else in Spark's conf folder."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if not folder:
        home = os.environ.get("SPARK_HOME") or _pyspark_folder()
        folder = str(Path(home) / "conf") if home else None
    file = Path(folder) / "spark-defaults.conf" if folder else None
    return read_properties(file.read_text()) if file and file.is_file() else {}


def _pyspark_folder() -> str | None:
    spec = importlib.util.find_spec("pyspark")
    return str(Path(spec.origin).parent) if spec and spec.origin else None
