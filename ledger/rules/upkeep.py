"""When upkeep is due and overdue, by the commits and the time since the last round.

A round records the versions of `messages` and `visibility` that it has processed. The difference to the newest versions
is the load.

**Due** after COMMITS_DUE commits. Measured on 2 cores: 2,000 commits took 12 to 20 s, and slowed a receive of 6.3 ms by
some 0.3 ms. A round over them takes 0.4 to 0.6 s of processor time.

With fewer commits, a round is due after AGE_DUE or a quarter of log_retention (a setting), whichever is shorter. After
log_retention, commits that no round has copied into `receipts` may be removed: three quarters are left for further
tries. Without a commit, a round is due after IDLE_DUE, because files and messages may be past their retention. Commits
without any round, or a last round that a wrong clock recorded, make a round due at once.

**Overdue** after COMMITS_OVERDUE commits (some 400 MB; a receive takes 1.5 times as long). With at least one commit,
upkeep is overdue after AGE_OVERDUE or half of log_retention, whichever is shorter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ledger.rules.limits import MILLISECONDS

COMMITS_DUE = 2_000
COMMITS_OVERDUE = 10 * COMMITS_DUE
#: Ages in seconds.
AGE_DUE, IDLE_DUE, AGE_OVERDUE = 3_600, 86_400, 7 * 86_400
#: A round whose start is further in the future than this, in seconds, was recorded by a wrong clock.
FUTURE = 60
#: A restored table's versions continue at a multiple of this number, beyond all earlier versions.
VERSIONS = 1_000_000
COMMAND = "`ledger upkeep`, or `ledger upkeep --every 5m` as a service"


class Round(NamedTuple):
    """The versions that the last round of upkeep processed, and its start in milliseconds."""

    messages: int
    visibility: int
    at: int


class Load(NamedTuple):
    """The commits that upkeep has not processed, and the seconds since the last round began.

    `age` is None without a round, and infinite if a wrong clock recorded the round.
    """

    commits: int
    age: float | None


def gone_over(newest: int, recorded: int) -> int:
    """Return the version of a table up to which upkeep has processed the commits.

    `recorded` is the last round's version. A table that lost its newest commits, or was restored, counts anew.
    """
    is_behind = recorded <= newest and recorded // VERSIONS == newest // VERSIONS
    return recorded if is_behind else newest - newest % VERSIONS


def load_since(last: Round | None, messages: int, visibility: int, now: int) -> Load:
    if last is None:
        return Load(messages % VERSIONS + visibility % VERSIONS, None)
    tables = (messages, last.messages), (visibility, last.visibility)
    commits = sum(newest - gone_over(newest, then) for newest, then in tables)
    age = (now - last.at) / MILLISECONDS
    return Load(commits, math.inf if age < -FUTURE else max(0.0, age))


def why_due(load: Load, log_retention: float) -> str | None:
    """Return why a round is due, in words. `log_retention` is in seconds."""
    if load.commits >= COMMITS_DUE:
        return f"{load.commits:,} commits since the last round"
    longest = min(AGE_DUE, log_retention / 4)
    if load.commits and load.age is None:
        return f"{load.commits:,} commits, and no round on record"
    if load.age == math.inf:
        return "the last round is recorded for a time that has not come: a clock was wrong"
    if load.commits and load.age is not None and load.age >= longest:
        return f"{load.commits:,} commits, and {load.age:,.0f} s since the last round"
    if load.age is not None and load.age >= IDLE_DUE:
        return f"{load.age:,.0f} s since the last round"
    return None


def why_overdue(load: Load, log_retention: float) -> str | None:
    if load.commits >= COMMITS_OVERDUE:
        return (
            f"{load.commits:,} commits since the last round of upkeep; {COMMITS_OVERDUE:,} and more slow down each call"
        )
    longest = min(AGE_OVERDUE, log_retention / 2)
    if load.commits and load.age is not None and longest < load.age < math.inf:
        return f"{load.commits:,} commits, and the last round of upkeep was {load.age / 86_400:,.1f} days ago"
    return None
