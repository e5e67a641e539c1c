"""When upkeep is due and overdue, by the commits since the last round.

A timetable does not decide. Upkeep removes what the commits of `messages` and `visibility` leave behind, so their
number decides. Both tables number their commits, and a round records the versions that it went up to. Two differences
of numbers tell the load, and no file is counted.

**Due.** At COMMITS_DUE a round is worth its price. Measured on 2 cores (see docs/how-to/operate/upkeep.md): 2,000
commits take 40 MB and 4,000 files. They slow a receive by some 0.3 ms (6.3 ms before, 9.2 ms after 20,000). A round
over them takes 0.4 to 0.6 s of a processor, of which 0.13 s are a round that finds nothing to do. The commits
themselves took 12 to 20 s. A round therefore costs 2 to 5 % of the work that it follows. With fewer commits its share
grows; with more of them verbs are slower for longer than they need be.

Time decides where few commits happen, because records and files grow old without another commit:

- After AGE_DUE (an hour) deleted messages may lose their receipts, and open segments are closed: the defaults of the
  settings keep_deleted_receipts and open_segment_seconds.
- A round has to copy commits into `receipts` before log_retention removes them. A quarter of it leaves three more
  tries.
- After IDLE_DUE (a day) without any commit, files and messages may still have reached the end of their retention.

**Overdue.** COMMITS_OVERDUE is ten times COMMITS_DUE: some 400 MB, and a receive takes half as long again. A ledger
with few commits is overdue after a week, or after half of log_retention: a missed round then leaves a gap in
`receipts`. Before that nothing is wrong, so nobody is told.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ledger.rules.limits import MILLISECONDS

COMMITS_DUE = 2_000
COMMITS_OVERDUE = 10 * COMMITS_DUE
#: Ages in seconds.
AGE_DUE, IDLE_DUE, AGE_OVERDUE = 3_600, 86_400, 7 * 86_400
#: A round on record that lies further in the future than this, in seconds, began by a wrong clock.
FUTURE = 60
#: The versions of a restored backup's table continue at a multiple of this number, beyond all earlier versions.
VERSIONS = 1_000_000
#: The command for an operator.
COMMAND = "`ledger upkeep`, or `ledger upkeep --every 5m` as a service"


class Round(NamedTuple):
    """The last round of upkeep: the versions of the two tables that it went up to, and when it began (milliseconds)."""

    messages: int
    visibility: int
    at: int


class Load(NamedTuple):
    """How many commits upkeep has not gone over, and how many seconds ago the last round began.

    The age is None without a round on record. It is infinite for a record in the future: nobody knows how long ago that
    round was. So a wrong clock never delays the next round.
    """

    commits: int
    age: float | None


def gone_over(newest: int, then: int) -> int:
    """Return the version of a table up to which upkeep has gone over it.

    `newest` is the table's newest version. `then` is the version that the last round went up to, 0 without a round. See
    `load_since` for tables that were cut back or restored.
    """
    is_behind = then <= newest and then // VERSIONS == newest // VERSIONS
    return then if is_behind else newest - newest % VERSIONS


def load_since(last: Round | None, messages: int, visibility: int, now: int) -> Load:
    """Return the commits since a round, by the newest versions of the two tables.

    A repair cut a table back if its newest version is before the round's: all of its commits count. A restored backup
    continues at the next multiple of VERSIONS: the versions between are no commits.
    """
    if last is None:
        return Load(messages % VERSIONS + visibility % VERSIONS, None)
    tables = (messages, last.messages), (visibility, last.visibility)
    commits = sum(newest - gone_over(newest, then) for newest, then in tables)
    age = (now - last.at) / MILLISECONDS
    return Load(commits, math.inf if age < -FUTURE else max(0.0, age))


def why_due(load: Load, log_retention: float) -> str | None:
    """Return why a round is due now, in words; None if it is not.

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
        return f"{load.commits:,} commits since the last round of upkeep; from {COMMITS_OVERDUE:,} on verbs get slow"
    longest = min(AGE_OVERDUE, log_retention / 2)
    if load.commits and load.age is not None and longest < load.age < math.inf:
        return f"{load.commits:,} commits, and the last round of upkeep was {load.age / 86_400:,.1f} days ago"
    return None
