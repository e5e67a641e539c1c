"""The versions of the tables that make up a view of the past.

Each commit to `visibility` notes the version that it was decided on. It also notes the newest versions of `messages`
and `queues`, unless these cannot be read. A view of the past reads each table as of the version that goes with one
commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from ledger.clock import instant, milliseconds_of
from ledger.delta_log.damage import find_first_readable
from ledger.delta_log.protocol import Commit
from ledger.errors import InvalidParameterValue, show_value
from ledger.store.delta.engine import Tables

#: `receipts` is filled later, so its versions show no moment.
VERSIONED = ("visibility", "messages", "queues")
KEPT = (
    "Those of the last days can be read, for as long as the settings deleted_file_retention and log_retention of "
    "upkeep say, and only after what a repair has cut off."
)


class PastMoment(NamedTuple):
    """The moment that a view shows, and the version of each table (None: the newest)."""

    now: int
    versions: Mapping[str, int] | None = None

    @property
    def until(self) -> int | None:
        return None if self.versions is None else self.versions["visibility"]


def find_moment(tables: Tables, now: int, version: int | None, timestamp: datetime | str | None) -> PastMoment:
    """Return the moment of a `version` of `visibility`, of a `timestamp`, or the present.

    Raises InvalidParameterValue for both together, for a wrong type or form, and for a moment that the logs do not
    have.
    """
    if timestamp is not None:
        return _find_moment_at(tables, now, version, timestamp)
    if version is None:
        return PastMoment(now)
    if type(version) is not int:
        bound = "Must be a number, as in the view receipts and in Claim.version"
        raise InvalidParameterValue("version", version, bound, "An instant is given as timestamp=.")
    commits = tables.history("visibility", -1)
    then = next((commit for commit in commits if commit.version == version), None)
    if then is None:
        bound = (
            f"The visibility table has the versions from {commits[0].version if commits else 0} "
            f"to {tables.version('visibility')}"
        )
        raise InvalidParameterValue("version", version, bound, KEPT)
    _require_all_noted(then, commits, None)
    return PastMoment(_instant_of(then), _versions(tables, then, commits, None))


def _find_moment_at(tables: Tables, now: int, version: int | None, timestamp: datetime | str) -> PastMoment:
    if version is not None:
        raise InvalidParameterValue("timestamp", show_value(timestamp), "Is given with a version", "Give one of them.")
    at = _parse_timestamp(timestamp)
    if at > now:
        raise InvalidParameterValue(
            "timestamp", show_value(timestamp), f"Is later than now, {instant(now).isoformat()}"
        )
    commits = tables.history("visibility", -1)
    by_then = _commits_until(commits, at)
    then = by_then[-1] if by_then else None
    if then is None or not then.version:
        first = _instant_of(commits[0]) if then is None and commits else _beginning(tables)
        if then is None or at < first:
            bound = f"Must be {instant(first).isoformat()} or later: of what was before, nothing is known"
            raise InvalidParameterValue("timestamp", show_value(timestamp), bound, KEPT)
    _require_all_noted(then, commits, at)
    return PastMoment(at, _versions(tables, then, commits, at))


def _parse_timestamp(timestamp: datetime | str) -> int:
    parsed = timestamp
    if isinstance(timestamp, str):
        # Python 3.10 does not parse Z.
        with contextlib.suppress(ValueError):
            parsed = datetime.fromisoformat(timestamp[:-1] + "+00:00" if timestamp.endswith(("Z", "z")) else timestamp)
    if not isinstance(parsed, datetime) or parsed.tzinfo is None:
        bound = "Must be a datetime with a time zone, or its text in ISO 8601"
        fix = "Write 2026-01-31T12:00:00+00:00, or pass datetime(..., tzinfo=timezone.utc)."
        raise InvalidParameterValue("timestamp", show_value(timestamp), bound, fix)
    # The ledger's clocks have milliseconds.
    return milliseconds_of(parsed.replace(microsecond=parsed.microsecond // 1_000 * 1_000))


def _instant_of(commit: Commit) -> int:
    at: int = commit.metadata.get("at", commit.timestamp)
    return at


def _beginning(tables: Tables) -> int:
    return min(_instant_of(commit) for name in VERSIONED for commit in tables.history(name, -1))


def _commits_until(commits: Sequence[Commit], at: int) -> list[Commit]:
    """Return the commits before the first commit with a later instant than `at`.

    Version 0 made the table, and always counts.
    """
    return list(takewhile(lambda commit: not commit.version or _instant_of(commit) <= at, commits))


def _versions(tables: Tables, then: Commit, commits: Sequence[Commit], at: int | None) -> dict[str, int]:
    versions = {"visibility": then.version}
    versions |= {name: _find_version_beside(tables, name, then, commits, at) for name in VERSIONED[1:]}
    for name, version in versions.items():
        first = find_first_readable(tables.place(name))
        if version < first:
            raise _error_of_cut_log(name, first, version, then, at)
    return versions


def _find_version_beside(tables: Tables, name: str, then: Commit, commits: Sequence[Commit], at: int | None) -> int:
    """Return the version of a table that goes with the commit `then` to `visibility`.

    Without `at`, this is the newest version that `then` or an earlier commit notes. If the ledger's commit `then` notes
    none, or no commit up to `then` does, the commits' timestamps decide. With `at`, it is the newest version by that
    instant. No result is below the newest version noted up to `then`, or above the first that a later commit notes.
    Different clocks may have written the timestamps.
    """
    noted = [(commit.version, _read_noted(commit, name)) for commit in commits]
    noted_by_then = max((read for version, read in noted if version <= then.version and read is not None), default=None)
    noted_next = next((read for version, read in noted if version > then.version and read is not None), None)
    if at is None and (_read_noted(then, name) is not None or not then.metadata):
        noted_next = noted_by_then
    history = tables.history(name, -1 if noted_by_then is None else noted_by_then - 1)
    if at is None:
        by_then = [commit.version for commit in history if commit.timestamp <= then.timestamp]
    else:
        by_then = [commit.version for commit in _commits_until(history, at)]
    if noted_next is not None:
        by_then = [version for version in by_then if version <= noted_next]
    version = max(by_then, default=history[0].version if noted_by_then is None else noted_by_then)
    if version < history[0].version:
        raise _error_of_cut_log(name, history[0].version, version, then, at)
    return version


def _require_all_noted(then: Commit, commits: Sequence[Commit], at: int | None) -> None:
    """Raise InvalidParameterValue if the log has lost a commit between `then` and the version that it was decided on.

    The lost commit may have noted newer versions.
    """
    decided_on = (_read_noted(commit, "visibility") for commit in reversed(commits) if commit.version <= then.version)
    since = next((version for version in decided_on if version is not None), None)
    if since is None and not then.metadata and then.version == commits[0].version > 0:
        since = then.version - 2
    if since is not None and since + 1 < commits[0].version:
        raise _error_of_cut_log("visibility", commits[0].version, since + 1, then, at)


def _error_of_cut_log(name: str, first: int, wanted: int, then: Commit, at: int | None) -> InvalidParameterValue:
    bound = f"The log of the table {name} begins at version {first}, and version {wanted} is needed"
    if at is None:
        return InvalidParameterValue("version", then.version, bound, KEPT)
    return InvalidParameterValue("timestamp", instant(at).isoformat(), bound, KEPT)


def _read_noted(commit: Commit, name: str) -> int | None:
    version: int | None = commit.metadata.get("read", {}).get(name)
    return version
