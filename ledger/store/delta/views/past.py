"""Which versions of the tables a view of the past is made of."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from ledger.clock import instant, milliseconds_of
from ledger.delta_log.damage import find_first_readable
from ledger.delta_log.protocol import Commit
from ledger.errors import InvalidParameterValue, shown
from ledger.store.delta.engine import Tables

#: Those whose versions are noted, or found. `receipts` is filled later than the commits that it tells of, and says of
#: which version each entry is: its own versions say nothing.
VERSIONED = ("visibility", "messages", "queues")
KEPT = (
    "Those of the last days can be read, for as long as the settings deleted_file_retention and log_retention of "
    "upkeep say, and behind what a repair has cut off."
)


class PastMoment(NamedTuple):
    """What a view is of: an instant, and the version of each table; None: the newest."""

    now: int
    versions: Mapping[str, int] | None = None

    @property
    def until(self) -> int | None:
        """The last commit of `visibility` that counts; None: all do."""
        return None if self.versions is None else self.versions["visibility"]


def moment(tables: Tables, now: int, version: int | None, timestamp: datetime | str | None) -> PastMoment:
    """Now; or a version of `visibility`, by the clock of that commit; or an instant, as it was by then.

    Raises InvalidParameterValue for a version that is not there, and an instant that is in the future or before all.
    """
    if timestamp is not None:
        return _at(tables, now, version, timestamp)
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
    return PastMoment(_at_of(then), _versions(tables, then, commits, None))


def _at(tables: Tables, now: int, version: int | None, timestamp: datetime | str) -> PastMoment:
    if version is not None:
        raise InvalidParameterValue("timestamp", shown(timestamp), "Is given beside a version", "Give one of them.")
    at = _milliseconds(timestamp)
    if at > now:
        raise InvalidParameterValue("timestamp", shown(timestamp), f"Is later than now, {instant(now).isoformat()}")
    commits = tables.history("visibility", -1)
    by_then = _by(commits, at)
    then = by_then[-1] if by_then else None
    if then is None or not then.version:
        first = _at_of(commits[0]) if then is None and commits else _beginning(tables)
        if then is None or at < first:
            bound = f"Must be {instant(first).isoformat()} or later: of what was before, nothing is known"
            raise InvalidParameterValue("timestamp", shown(timestamp), bound, KEPT)
    _require_all_noted(then, commits, at)
    return PastMoment(at, _versions(tables, then, commits, at))


def _milliseconds(given: datetime | str) -> int:
    moment = given
    if isinstance(given, str):
        # Python 3.10 knows no Z.
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(given[:-1] + "+00:00" if given.endswith(("Z", "z")) else given)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        bound = "Must be a datetime with a time zone, or such a text"
        fix = "Write 2026-01-31T12:00:00+00:00, or pass datetime(..., tzinfo=timezone.utc)."
        raise InvalidParameterValue("timestamp", shown(given), bound, fix)
    # Clocks here have milliseconds: what is between two of them is told as of the first.
    return milliseconds_of(moment.replace(microsecond=moment.microsecond // 1_000 * 1_000))


def _at_of(commit: Commit) -> int:
    at: int = commit.metadata.get("at", commit.timestamp)
    return at


def _beginning(tables: Tables) -> int:
    """The instant of the first commit to any of the tables."""
    return min(_at_of(commit) for name in VERSIONED for commit in tables.history(name, -1))


def _by(commits: Sequence[Commit], at: int) -> list[Commit]:
    """The commits before the first that is of a later instant: who decided later landed later, and so did all behind
    it, even what was decided before. The first one made the table, and there was nothing before."""
    return list(takewhile(lambda commit: not commit.version or _at_of(commit) <= at, commits))


def _versions(tables: Tables, then: Commit, commits: Sequence[Commit], at: int | None) -> dict[str, int]:
    """The versions of the tables that go with a commit. Raises InvalidParameterValue for one that cannot be read."""
    versions = {"visibility": then.version}
    versions |= {name: _beside(tables, name, then, commits, at) for name in VERSIONED[1:]}
    for name, version in versions.items():
        first = find_first_readable(tables.place(name))
        if version < first:
            raise _cut_below(name, first, version, then, at)
    return versions


def _beside(tables: Tables, name: str, then: Commit, commits: Sequence[Commit], at: int | None) -> int:
    """Which version of a table a commit to `visibility` goes with: the newest that it or one before it notes.

    As of an instant `at` it is the newest one by then, and none older than that; nor any that landed behind the next
    commit to `visibility`, which was decided later and notes what was there. A commit of others', which changes no row
    and notes none, goes by what is noted before it. One that could not ask for them goes by the timestamps of the
    commits, which clocks of several machines write, within the same bounds.
    """
    noted = [(commit.version, _noted(commit, name)) for commit in commits]
    seen = max((read for version, read in noted if version <= then.version and read is not None), default=None)
    next_seen = next((read for version, read in noted if version > then.version and read is not None), None)
    if at is None and (_noted(then, name) is not None or not then.metadata):
        next_seen = seen
    history = tables.history(name, -1 if seen is None else seen - 1)
    if at is None:
        by_then = [commit.version for commit in history if commit.timestamp <= then.timestamp]
    else:
        by_then = [commit.version for commit in _by(history, at)]
    if next_seen is not None:
        by_then = [version for version in by_then if version <= next_seen]
    found = max(by_then, default=history[0].version if seen is None else seen)
    if found < history[0].version:
        raise _cut_below(name, history[0].version, found, then, at)
    return found


def _require_all_noted(then: Commit, commits: Sequence[Commit], at: int | None) -> None:
    """Raises InvalidParameterValue where the log has lost a commit that may note newer versions than `then` does and
    all that are left before it: one that landed between the version that `then` was decided on and itself."""
    decided_on = (_noted(commit, "visibility") for commit in reversed(commits) if commit.version <= then.version)
    since = next((version for version in decided_on if version is not None), None)
    if since is None and not then.metadata and then.version == commits[0].version > 0:
        since = then.version - 2
    if since is not None and since + 1 < commits[0].version:
        raise _cut_below("visibility", commits[0].version, since + 1, then, at)


def _cut_below(name: str, first: int, wanted: int, then: Commit, at: int | None) -> InvalidParameterValue:
    bound = f"The log of the table {name} begins at version {first}, and version {wanted} belongs to it"
    if at is None:
        return InvalidParameterValue("version", then.version, bound, KEPT)
    return InvalidParameterValue("timestamp", instant(at).isoformat(), bound, KEPT)


def _noted(commit: Commit, name: str) -> int | None:
    noted: int | None = commit.metadata.get("read", {}).get(name)
    return noted
