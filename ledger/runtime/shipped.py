"""What is shipped beside the package: the jobs and the files of conf/, in a checkout or as a wheel installs them."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from ledger.runtime.cache import RuntimeSetupError

CHECKOUT = Path(__file__).resolve().parents[2]
#: Where a wheel puts them, below the environment's own folder.
SHARED = "share/ledger"


def shipped(folder: str) -> Path:
    """The folder `jobs` or `conf`. Raises RuntimeSetupError where there is none."""
    for place in (CHECKOUT / folder, Path(sysconfig.get_path("data")) / SHARED / folder):
        if place.is_dir():
            return place
    raise RuntimeSetupError(f"{folder}/ is neither in {CHECKOUT} nor installed; install the wheel again")


def job(name: str) -> Path:
    """The script that a command line names: a file, or one of the shipped jobs by its name, as `work` or `work.py`.

    Raises RuntimeSetupError for what is neither, with the names of the jobs.
    """
    given = Path(name)
    if given.is_file():
        return given
    jobs = {path.stem: path for path in sorted(shipped("jobs").glob("*.py")) if path.stem not in ("__init__", "common")}
    found = jobs.get(name.removesuffix(".py"))
    if found is None:
        raise RuntimeSetupError(f"{name} is no file here, and none of the jobs: {', '.join(jobs)}")
    return found
