"""Settings of a ledger: every one with its default. `conf/ledger.toml` says the same with comments."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ledger.errors import InvalidParameterValue
from ledger.rules import arns
from ledger.rules.limits import MILLISECONDS
from ledger.rules.message_id import SEQ_BOUND

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENGINES = ("auto", "spark", "delta-rs")
MERGES = AUTO, STATEMENT = ("auto", "statement")
#: The settings that are one of some words.
WORDS = {"engine": ENGINES, "merge": MERGES}
#: The table of a settings file that they stand in.
TABLE = "ledger"
YEAR = 31_536_000
#: What a setting that is a text must be, and in words.
TEXTS = {
    "account_id": (arns.ACCOUNT_ID, "Must be 12 digits"),
    "region": (arns.REGION, "Must be 1 to 32 lower-case letters, digits and -"),
}
#: The greatest value of every setting that is a number; all of them are greater than 0, but for MAY_BE_0.
MOST = {
    # The pause between two attempts doubles, and a double-precision number has no room for 1,030 doublings.
    "maximum_attempts": 1_000,
    "losses_before_waiting": 1_000,
    "messages_per_segment": SEQ_BOUND,
    "messages_per_file": SEQ_BOUND,
    # A waiting receive looks once a second anyway.
    "poll_interval": 1,
    "keep_deleted_receipts": YEAR,
    "open_segment_seconds": YEAR,
    "maximum_clock_skew": YEAR,
    "mark_seconds": YEAR,
    "purge_interval": YEAR,
    "deletion_interval": YEAR,
    "log_retention": YEAR,
    "deleted_file_retention": YEAR,
}
#: The smallest values of those that need more than to be greater than 0: what reads a version takes its time.
LEAST = {"log_retention": 3_600, "deleted_file_retention": 3_600}
#: Those that may be 0, which turns off what they are about.
MAY_BE_0 = ("mark_seconds", "purge_interval", "deletion_interval")


@dataclass(frozen=True)
class Settings:
    """How a ledger works; durations in seconds. Raises InvalidParameterValue for a value out of bounds."""

    #: Which engine commits: auto, spark or delta-rs.
    engine: str = "auto"
    #: How verbs commit: auto writes small commits out directly where storage and table allow it; statement runs the
    #: engine's MERGE statement for each.
    merge: str = AUTO
    #: How often a verb is tried before ContentionOutlastedRetries.
    maximum_attempts: int = 60
    #: After so many losses a writer on a local path waits for its turn and then has the table alone.
    losses_before_waiting: int = 3
    #: Most messages of one segment of a bulk send.
    messages_per_segment: int = 1_000_000
    #: Most messages of one data file of a bulk send: a small receive reads one file.
    messages_per_file: int = 250_000
    #: What is answered survives a power cut: files are synced to the disk before. False saves half a millisecond a
    #: verb. Then a power cut loses the answers of the last half minute, or the ledger: for scratch ledgers and tests.
    sync: bool = True
    #: Says that only one driver writes to output tables on S3 that Spark has to commit to.
    single_driver: bool = False
    #: How long a waiting receive sleeps between looks at the tables' versions.
    poll_interval: float = 0.2
    #: Deleted messages keep their receipt this long; then upkeep joins their rows.
    keep_deleted_receipts: int = 3_600
    #: An open segment is no longer appended to once it is this old.
    open_segment_seconds: int = 3_600
    #: How far apart the clocks of drivers may be. Beyond it verbs raise ClocksDisagree.
    maximum_clock_skew: float = 30.0
    #: What upkeep drops for its age it has seen to be so old this long before, by the wall clock and by the time that
    #: passed. 0: one look at the clock is enough.
    mark_seconds: int = 300
    #: The account and the region in ARNs. They name queues to SQS's callers; they neither grant nor refuse anything.
    account_id: str = arns.DEFAULT.account_id
    region: str = arns.DEFAULT.region
    #: M3, queues with Limits=SQS: so long after a purge another one is PurgeQueueInProgress. 0: never.
    purge_interval: int = 60
    #: M3, queues with Limits=SQS: so long after a deletion its name is QueueDeletedRecently. 0: never. Not longer than
    #: log_retention.
    deletion_interval: int = 60
    #: So long commits stay in the tables' logs, and so long files stay that nothing of now needs: which past versions
    #: can be read. An upkeep makes them properties of the tables. None: it leaves the tables as they are; those of a
    #: new ledger say 30 days and 7 days.
    log_retention: int | None = None
    deleted_file_retention: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is field.default is None:
                continue
            bound = _broken_bound(field.name, value, int if field.default is None else type(field.default))
            if bound:
                raise InvalidParameterValue(field.name, value, bound, _default_of(field.default))
        if self.log_retention is not None:
            require_within(self.log_retention, "deletion_interval", self.deletion_interval)
            require_within(self.log_retention, "deleted_file_retention", self.deleted_file_retention)

    @property
    def skew(self) -> int:
        """The setting maximum_clock_skew, in milliseconds."""
        return round(self.maximum_clock_skew * MILLISECONDS)

    @property
    def account(self) -> arns.Account:
        """Whose queues a ledger's are, and where, in ARNs."""
        return arns.Account(self.account_id, self.region)

    @classmethod
    def read(cls, path: str | Path) -> Settings:
        """The settings in a TOML file's table [ledger]; what it leaves out has its default.

        Raises InvalidParameterValue, naming the file, for one that cannot be read, for an unknown setting and for a
        value out of bounds.
        """
        try:
            return cls(**_known(_tables(path)))
        except InvalidParameterValue as error:
            raise InvalidParameterValue(error.field, error.value, error.bound, f"{error.fix} (in {path})") from None


def require_within(
    log_retention: int, name: str, value: int | None, fix: str = "Lower it, or raise log_retention."
) -> None:
    """Raises InvalidParameterValue for a setting that is longer than the log reaches back."""
    if value is not None and value > log_retention:
        bound = f"Must be at most log_retention, which is {log_retention}: what is kept is found by the log"
        raise InvalidParameterValue(name, value, bound, fix)


def _broken_bound(name: str, value: object, kind: type) -> str | None:
    """The bound that a value breaks, in words, or None."""
    if name in WORDS:
        return None if value in WORDS[name] else f"Must be one of {', '.join(WORDS[name])}"
    if name in TEXTS:
        pattern, bound = TEXTS[name]
        return None if isinstance(value, str) and re.fullmatch(pattern, value) else bound
    if kind is bool:
        return None if isinstance(value, bool) else "Must be true or false"
    kinds = (int,) if kind is int else (int, float)
    # Not a number (NaN) is neither above nor below anything.
    if (
        isinstance(value, kinds)
        and not isinstance(value, bool)
        and max(0, LEAST.get(name, 0) - 1) < value <= MOST[name]
    ):
        return None
    if value == 0 and isinstance(value, int) and not isinstance(value, bool) and name in MAY_BE_0:
        return None
    least = f">= {LEAST[name]}" if name in LEAST else ">= 0" if name in MAY_BE_0 else "> 0"
    return f"Must be a {'whole ' * (kind is int)}number {least} and <= {MOST[name]}"


def _tables(path: str | Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return found
    except OSError as error:
        bound, fix = f"It cannot be read ({error.strerror})", "Name a file like conf/ledger.toml."
    except ValueError as error:
        bound, fix = f"It is no TOML ({error})", "Compare it with conf/ledger.toml."
    raise InvalidParameterValue("settings", str(path), bound, fix)


def _known(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table [ledger], if it and only it is there and names settings only."""
    for name in sorted(set(tables) - {TABLE}):
        raise InvalidParameterValue(
            name, tables[name], f"Settings stand in the table [{TABLE}]", f"Put it below a line [{TABLE}]."
        )
    given = tables.get(TABLE, {})
    if not isinstance(given, Mapping):
        raise InvalidParameterValue(TABLE, given, "Must be a table", f"Write a line [{TABLE}] and settings below it.")
    known = [field.name for field in fields(Settings)]
    for name in sorted(set(given) - set(known)):
        close = difflib.get_close_matches(name, known, 1)
        meant = f"Is it {close[0]}?" if close else "Remove it."
        raise InvalidParameterValue(name, given[name], f"No such setting; there are {', '.join(known)}", meant)
    return given


def _default_of(value: object) -> str:
    if value is None:
        return "Leave it out, and the tables stay as they are."
    said = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else f"{value:_}"
    return f"Its default is {said}."
