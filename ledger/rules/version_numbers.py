"""The numbers of a package's version, to be compared."""

from __future__ import annotations

import re


def version_numbers(version: str) -> tuple[int, ...]:
    """Those that a version begins with; what a platform or a release candidate adds behind them does not count."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))
