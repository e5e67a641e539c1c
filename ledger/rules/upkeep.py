"""When upkeep is due and overdue, by the commits and the time since the last round.

Upkeep removes what commits to `messages` and `visibility` leave behind. A round records the versions of the two tables
that it has processed. The later commits are the difference to the newest versions, so nobody counts files.

**Due.** After COMMITS_DUE commits a round is due. The round then takes 2 to 5 % of the time that those commits took.
All figures were measured on 2 cores. From docs/how-to/operate/upkeep.md: 2,000 commits leave some 40 MB and 4,000
files. A round over 2,000 commits takes 0.4 to 0.6 s of processor time, and a round that finds nothing to do 0.13 s.
From other runs, which no page describes: 2,000 commits took 12 to 20 s. 20,000 commits slowed a receive from 6.3 to 9.2
ms, so 2,000 commits slow a receive by some 0.3 ms. Rounds after fewer commits would take a greater share of the time.
Rounds after more commits would leave receives slow for longer.

Where few commits happen, the time since the last round decides. After at least one commit, a round is due when the
shorter of these times is over:

- AGE_DUE (an hour). This is the default of two settings: keep_deleted_receipts, after which upkeep drops the receipts
  of deleted messages, and open_segment_seconds, after which it closes open segments.
- A quarter of log_retention. A round copies commits into `receipts`, and after log_retention they may be removed. So
  three quarters are left for further tries.

A round is also due after IDLE_DUE (a day) without a commit: files and messages may be past their retention. If no round
is on record, a round is due after the first commit.

**Overdue.** COMMITS_OVERDUE is ten times COMMITS_DUE: some 400 MB, and a receive takes half as long again. With fewer
commits, but at least one, upkeep is overdue a week after the last round, or after half of log_retention if that is
shorter. If log_retention is over before the next round, commits may be removed that were not copied, and `receipts` has
a gap.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ledger.rules.limits import MILLISECONDS

COMMITS_DUE = 2_000
COMMITS_OVERDUE = 10 * COMMITS_DUE
#: Ages in seconds.
AGE_DUE, IDLE_DUE, AGE_OVERDUE = 3_600, 86_400, 7 * 86_400
#: If the recorded start of a round is further in the future than this, in seconds, a wrong clock recorded it.
FUTURE = 60
#: The versions of a restored table continue at a multiple of this number, beyond all earlier versions.
VERSIONS = 1_000_000
#: The command for an operator.
COMMAND = "`ledger upkeep`, or `ledger upkeep --every 5m` as a service"


class Round(NamedTuple):
    """The last round of upkeep: the versions of the two tables that it processed, and its start in milliseconds."""

    messages: int
    visibility: int
    at: int


class Load(NamedTuple):
    """How many commits upkeep has not processed, and how many seconds ago the last round began (`age`).

    The age is None if no round is on record. The age is infinite if the recorded start is more than FUTURE seconds in
    the future. Then a clock was wrong, and a round is due.
    """

    commits: int
    age: float | None


def gone_over(newest: int, recorded: int) -> int:
    """Return the version of a table up to which upkeep has processed the commits.

    `newest` is the table's newest version. `recorded` is the version that the last round recorded, or 0 without a
    round. See `load_since` for tables that lost their newest commits, or were restored.
    """
    is_behind = recorded <= newest and recorded // VERSIONS == newest // VERSIONS
    return recorded if is_behind else newest - newest % VERSIONS


def load_since(last: Round | None, messages: int, visibility: int, now: int) -> Load:
    """Return the load since the round `last` (None: since the beginning).

    `messages` and `visibility` are the newest versions of the two tables. If a table's newest version is before the
    round's, the table lost commits, and all of its commits count. The versions of a restored backup continue at a
    multiple of VERSIONS, and all commits after this multiple count.
    """
    if last is None:
        return Load(messages % VERSIONS + visibility % VERSIONS, None)
    tables = (messages, last.messages), (visibility, last.visibility)
    commits = sum(newest - gone_over(newest, then) for newest, then in tables)
    age = (now - last.at) / MILLISECONDS
    return Load(commits, math.inf if age < -FUTURE else max(0.0, age))


def why_due(load: Load, log_retention: float) -> str | None:
    """Return why a round is due now, in words; None if none is due.

    `log_retention` is how many seconds commits are kept.
    """
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
    """Return why upkeep should have run long ago, in words for an operator; None if it is not overdue."""
    if load.commits >= COMMITS_OVERDUE:
        return (
            f"{load.commits:,} commits since the last round of upkeep; {COMMITS_OVERDUE:,} and more slow down each call"
        )
    longest = min(AGE_OVERDUE, log_retention / 2)
    if load.commits and load.age is not None and longest < load.age < math.inf:
        return f"{load.commits:,} commits, and the last round of upkeep was {load.age / 86_400:,.1f} days ago"
    return None
