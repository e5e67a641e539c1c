"""The checks of `ledger doctor`. They run even on a machine that lacks what they look for."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from itertools import zip_longest
from pathlib import Path

from ledger.backup_folder import describe_backup
from ledger.place import find_closed_above
from ledger.rules.text import parse_version
from ledger.runtime.cache import RuntimeSetupError
from ledger.runtime.jars import Packages, delta_packages, find_cached_jars, find_half_filled_maven_folders, s3_packages
from ledger.runtime.storage import (
    access_advice,
    check_storage,
    describe_closed,
    explain,
    find_unusable,
    is_s3,
    local_path,
    may_only_read,
    owner_and_user,
)
from ledger.version import __version__

OLDEST_PYTHON = (3, 10)
#: On the package index, `ledger` is another project.
DISTRIBUTION = "ledger-queue"
MOST_FILES_NAMED = 3
#: The packages that the extra `spark` installs.
SPARK_PACKAGES = ("pyspark", "delta-spark", "pandas")
_REQUIREMENT = re.compile(
    r"""([\w.-]+)([<>=][\w.<>=,]*)\s*(?:;\s*python_version\s*<\s*['"]([\d.]+)['"]|;\s*extra\s*==\s*['"]spark['"])?"""
)
_BOUND = re.compile(r"(>=|<|==)([\w.]+)")
#: If this machine's clock and a new file's time are further apart, the finding is a FAIL.
MOST_SECONDS_APART = 15
PREPARE_ADVICE = "run `python3 tests/run.py` in the checkout, or `pip install -e '.[jvm]' -c constraints.lock`"


@dataclass(frozen=True)
class Finding:
    """A line of the doctor's report. `outcome` is OK, WARN or FAIL."""

    outcome: str
    subject: str
    found: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.outcome:<4}  {self.subject}: {self.found}" + (f" -> {self.advice}" if self.advice else "")


def examine(root: str | None = None) -> Iterator[Finding]:
    """Yield a finding for each thing that the ledger needs from this machine, and from the storage of `root`.

    If a check raises an error, its finding is a FAIL.
    """
    folder = local_path(root) if root is not None else None
    closed = None if folder is None else find_closed_above(folder)
    has_spark = importlib.util.find_spec("pyspark") is not None
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("python", _check_python),
        *((name, partial(_check_package, name, wanted)) for name, wanted in _read_requirements()),
        *(_list_spark_checks() if has_spark else ()),
        ("time zone", _check_time_zone),
        ("clock", partial(_check_clock, root if closed is None else None)),
    ]
    if closed is not None:
        checks.append(("storage", partial(_report_closed, closed)))
    elif root is not None:
        checks.append(("storage", partial(_check_storage, root)))
        if is_s3(root) and has_spark:
            checks.append(("s3 jars", partial(_check_jars, "s3 jars", s3_packages, f"--fetch {root}")))
        if folder is not None:
            checks.append(("ledger", partial(_check_ledger, folder)))
            checks.append(("files", partial(_check_files, folder)))
    for subject, check in checks:
        try:
            yield check()
        except RuntimeSetupError as error:
            yield Finding("FAIL", subject, str(error))
        except Exception as error:
            place = local_path(root) if root is not None else None
            why = explain(error, place or Path(tempfile.gettempdir()))
            found, advice = why or (f"the check itself failed with {error!r}", PREPARE_ADVICE)
            yield Finding("FAIL", subject, found, advice)


def _list_spark_checks() -> list[tuple[str, Callable[[], Finding]]]:
    return [
        ("java", _check_java),
        ("delta jars", partial(_check_jars, "delta jars", delta_packages, "--fetch")),
        ("local maven repository", _check_local_maven),
    ]


def _check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Finding("FAIL", "python", f"{version} is too old", "use Python 3.10 or later")
    return Finding("OK", "python", version)


def _read_requirements() -> list[tuple[str, str]]:
    """Return the project's requirements that apply here, of no extra or of `spark`, such as (package, ">=1.6,<1.7").

    If the project is not installed, return the project itself.
    """
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return [(DISTRIBUTION, f"=={__version__}")]
    requirements = []
    for requirement in required:
        match = _REQUIREMENT.fullmatch(requirement)
        if match:
            name, wanted, older_than = match.groups()
            if older_than is None or sys.version_info < tuple(map(int, older_than.split("."))):
                requirements.append((name, wanted))
    return requirements


def _check_package(name: str, version_bounds: str) -> Finding:
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        if name in SPARK_PACKAGES:
            return _judge_missing_package(name)
        return Finding("FAIL", name, f"not installed, must be {version_bounds}", PREPARE_ADVICE)
    if all(_is_within(installed, *bound) for bound in _BOUND.findall(version_bounds)):
        return Finding("OK", name, installed)
    return Finding("FAIL", name, f"{installed}, must be {version_bounds}", f"pip install '{name}{version_bounds}'")


def _judge_missing_package(name: str) -> Finding:
    found = "not installed: only DataFrames need it"
    if any(importlib.util.find_spec(module) for module in ("pyspark", "delta")):
        return Finding("WARN", name, found, "pip install 'ledger-queue[spark]'")
    return Finding("OK", name, found)


def _is_within(found: str, relation: str, bound: str) -> bool:
    # 2.1 means 2.1.0.
    version, limit = zip(*zip_longest(parse_version(found), parse_version(bound), fillvalue=0))
    return version == limit if relation == "==" else version < limit if relation == "<" else version >= limit


def _check_java() -> Finding:
    from ledger.runtime.java import find_java

    java = find_java()
    return Finding("OK", "java", f"{java.version} at {java.home} ({java.source})")


def _check_jars(subject: str, packages: Callable[[], Packages], option: str) -> Finding:
    jars = find_cached_jars(packages())
    if jars is None:
        return Finding(
            "WARN", subject, "not fetched yet", f"the first session does it, or `ledger doctor {option}` now"
        )
    return Finding("OK", subject, f"{len(jars)} in {jars[0].parent}")


def _check_local_maven() -> Finding:
    folders = find_half_filled_maven_folders(delta_packages())
    if folders:
        return Finding(
            "WARN",
            "local maven repository",
            f"{len(folders)} of Delta's folders hold a jar without its pom or the reverse, which breaks "
            "`spark-submit --packages` (download failed, or NoClassDefFoundError)",
            f"delete {', '.join(map(str, folders))}",
        )
    return Finding("OK", "local maven repository", "nothing half-filled")


def _check_time_zone() -> Finding:

    name = "spark.sql.session.timeZone"
    chosen = read_spark_defaults().get(name, "UTC")
    if chosen not in ("UTC", "Etc/UTC", "Z", "+00:00", "GMT"):
        return Finding("WARN", "time zone", f"spark-defaults.conf sets {name} to {chosen}", f"set {name} to UTC there")
    return Finding("OK", "time zone", f"sessions use UTC (this machine: {'/'.join(dict.fromkeys(time.tzname))})")


def _check_clock(root: str | None) -> Finding:
    """Compare this process's clock with the clock that stamps new files in the ledger's folder.

    If the folder does not exist, the nearest folder above it counts. Without a local folder in which this user can
    write, the folder for temporary files counts.
    """
    place = local_path(root) if root is not None else None
    while place is not None and not place.is_dir():
        place = place.parent if place != place.parent else None
    if place is None or not os.access(place, os.W_OK):
        place = Path(tempfile.gettempdir())
    with tempfile.NamedTemporaryFile(dir=place, prefix=".ledger-doctor-") as written:
        written.write(b"now")
        written.flush()
        now = time.time()
        apart = abs(Path(written.name).stat().st_mtime - now)
    year = time.gmtime(now).tm_year
    if not 2025 <= year <= 2100:
        return Finding("FAIL", "clock", f"it is the year {year}", "set the system clock: deadlines depend on it")
    if apart > 2:
        refused = (
            f", and verbs are refused beyond half of the setting maximum_clock_skew (by default {MOST_SECONDS_APART} s)"
        )
        return Finding(
            "FAIL" if apart > MOST_SECONDS_APART else "WARN",
            "clock",
            f"files in {place} are stamped {apart:.0f} s away from this machine's clock{refused}",
            "synchronise both clocks (NTP): a deadline is early or late by as much",
        )
    shown = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(now))
    return Finding("OK", "clock", f"{shown}, files agree within {apart:.2f} s")


def _report_closed(folder: Path) -> Finding:
    return Finding("FAIL", "storage", *describe_closed(folder))


def _check_storage(root: str) -> Finding:
    return Finding(*check_storage(root))


def _check_files(folder: Path) -> Finding:
    """Look for files and folders of the tables that this user cannot use."""
    tables, is_reader = sorted(log.parent for log in folder.glob("*/_delta_log")), may_only_read(folder)
    unusable_files = [find_unusable(table, MOST_FILES_NAMED, is_reader=is_reader) for table in tables]
    count = sum(number for number, _ in unusable_files)
    named = [path for _, some in unusable_files for path in some][:MOST_FILES_NAMED]
    if not named and is_reader:
        found = "this user may read all of them, and write none: `read_only=True` opens the ledger"
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            # The check of the storage reports the read-only mount.
            return Finding("OK", "files", found)
        advice = f"processes that only read need no more; to write: {access_advice(folder, owner_and_user(folder)[0])}"
        return Finding("WARN", "files", found, advice)
    if not named:
        return Finding("OK", "files", "this user may read and write all of them" if tables else "there are none")
    owner, me = owner_and_user(named[0])
    return Finding(
        "FAIL",
        "files",
        f"{count:,} below {folder} cannot be used by {me}, such as {named[0]} of {owner}",
        access_advice(folder, owner) + ("" if is_reader else "; processes that only read need no right to write"),
    )


def _check_ledger(folder: Path) -> Finding:
    """Look for tables, or for a backup, at the root: a mistyped root can be a writable folder that is no ledger."""
    backup = describe_backup(folder)
    if backup is not None:
        is_whole, state, fix = backup
        if is_whole:
            return Finding("OK", "backup", f"{folder}: {state}", fix)
        return Finding("FAIL", "ledger", f"there is none at {folder}: {state}", fix)
    if any(folder.glob("*/_delta_log")):
        return Finding("OK", "ledger", f"there are tables at {folder}")
    what = "other things in the folder" if folder.is_dir() and any(folder.iterdir()) else "nothing there"
    if folder.exists() and not folder.is_dir():
        what = "a file"
    return Finding(
        "FAIL",
        "ledger",
        f"there is none at {folder} ({what})",
        "is the root mistyped, or not mounted? `ledger queues create NAME` makes one",
    )


def read_properties(text: str) -> dict[str, str]:
    """Return the settings in a file of spark-defaults format.

    A line that ends with a backslash continues in the next line.
    """
    lines = (line.strip() for line in re.sub(r"\\\n\s*", "", text).splitlines())
    pairs = (re.split(r"\s*=\s*|\s+", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def read_spark_defaults() -> dict[str, str]:
    """Return the settings of spark-defaults.conf in `$SPARK_CONF_DIR`, else in Spark's conf folder."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if not folder:
        home = os.environ.get("SPARK_HOME") or _find_pyspark_folder()
        folder = str(Path(home) / "conf") if home else None
    file = Path(folder) / "spark-defaults.conf" if folder else None
    return read_properties(file.read_text()) if file and file.is_file() else {}


def _find_pyspark_folder() -> str | None:
    spec = importlib.util.find_spec("pyspark")
    return str(Path(spec.origin).parent) if spec and spec.origin else None
