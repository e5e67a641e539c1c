"""The folders `jobs` and `conf` that the package ships, in a checkout or a wheel."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from ledger.runtime.cache import RuntimeSetupError

CHECKOUT = Path(__file__).resolve().parents[2]
#: Below the data folder of the Python environment.
SHARED_FOLDER = "share/ledger"


def find_shipped_folder(folder: str) -> Path:
    """Return the folder `jobs` or `conf` of the checkout, else of the wheel.

    Raises RuntimeSetupError if there is neither.
    """
    for place in (CHECKOUT / folder, Path(sysconfig.get_path("data")) / SHARED_FOLDER / folder):
        if place.is_dir():
            return place
    raise RuntimeSetupError(f"{folder}/ is neither in {CHECKOUT} nor installed; install the wheel again")


def find_script(name: str) -> Path:
    """Return the script that a command line names: a file, else a shipped job, as `work` or `work.py`.

    Raises RuntimeSetupError, which lists the jobs, for any other name.
    """
    file = Path(name)
    if file.is_file():
        return file
    jobs = {
        path.stem: path
        for path in sorted(find_shipped_folder("jobs").glob("*.py"))
        if path.stem not in ("__init__", "common")
    }
    script = jobs.get(name.removesuffix(".py"))
    if script is None:
        raise RuntimeSetupError(f"{name} is no file here, and none of the jobs: {', '.join(jobs)}")
    return script
