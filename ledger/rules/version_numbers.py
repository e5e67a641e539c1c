"""The numbers of a package's version."""

from __future__ import annotations

import re


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, without the suffix of a platform or a release candidate."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))
