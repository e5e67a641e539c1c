"""The settings of a ledger, each with its default. `conf/ledger.toml` explains them."""

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
ALLOWED_WORDS = {"engine": ENGINES, "merge": MERGES}
SETTINGS_TABLE = "ledger"
YEAR_SECONDS = 31_536_000
#: The pattern of each text setting, and its bound in words.
TEXT_PATTERNS = {
    "account_id": (arns.ACCOUNT_ID, "Must be 12 digits"),
    "region": (arns.REGION, "Must be 1 to 32 lower-case letters, digits and -"),
}
#: The greatest value of each number setting.
GREATEST_VALUES = {
    # The bound of the pause between attempts doubles, and a float overflows after about 1,030 doublings.
    "maximum_attempts": 1_000,
    "losses_before_waiting": 1_000,
    "messages_per_segment": SEQ_BOUND,
    "messages_per_file": SEQ_BOUND,
    # A waiting receive looks at least once a second.
    "poll_interval": 1,
    "keep_deleted_receipts": YEAR_SECONDS,
    "open_segment_seconds": YEAR_SECONDS,
    "maximum_clock_skew": YEAR_SECONDS,
    "mark_seconds": YEAR_SECONDS,
    "purge_interval": YEAR_SECONDS,
    "deletion_interval": YEAR_SECONDS,
    "log_retention": YEAR_SECONDS,
    "deleted_file_retention": YEAR_SECONDS,
}
#: A reader of a version needs its commits and files for as long as it reads.
SMALLEST_VALUES = {"log_retention": 3_600, "deleted_file_retention": 3_600}
#: 0 turns the rules of these settings off.
MAY_BE_0 = ("mark_seconds", "purge_interval", "deletion_interval")


@dataclass(frozen=True)
class Settings:
    """How a ledger works. Durations are in seconds. Raises InvalidParameterValue for a value out of bounds."""

    #: Which engine commits.
    engine: str = "auto"
    #: statement: the engine runs a statement, such as MERGE, for each commit. auto: the ledger itself writes the files
    #: of small commits, where it can.
    merge: str = AUTO
    maximum_attempts: int = 60
    #: After this many lost commits in a row, a writer on a local path takes the table's turn alone.
    losses_before_waiting: int = 3
    messages_per_segment: int = 1_000_000
    messages_per_file: int = 250_000
    #: With False a power cut may lose the commits of about the last half minute, or the whole ledger: Linux writes
    #: files to the disk after 30 s by default.
    sync: bool = True
    #: True promises that only one driver writes to output tables on S3 to which Spark commits, and to a local path that
    #: machines share. There, commits of several drivers could get lost.
    single_driver: bool = False
    poll_interval: float = 0.2
    #: How long deleted messages keep their receipts.
    keep_deleted_receipts: int = 3_600
    open_segment_seconds: int = 3_600
    #: How far apart the clocks of two drivers may be.
    maximum_clock_skew: float = 30.0
    #: Upkeep drops messages for their age only if the clock was read at least this long before. 0: at once.
    mark_seconds: int = 300
    account_id: str = arns.DEFAULT.account_id
    region: str = arns.DEFAULT.region
    #: Only with Limits=SQS, like the next setting. 0: never.
    purge_interval: int = 60
    #: At most log_retention.
    deletion_interval: int = 60
    #: Upkeep that vacuums sets both as properties of the tables. None: the property stays as it is.
    log_retention: int | None = None
    deleted_file_retention: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is field.default is None:
                continue
            bound = _find_broken_bound(field.name, value, int if field.default is None else type(field.default))
            if bound:
                raise InvalidParameterValue(field.name, value, bound, _advice_of_default(field.default))
        if self.log_retention is not None:
            require_within(self.log_retention, "deletion_interval", self.deletion_interval)
            require_within(self.log_retention, "deleted_file_retention", self.deleted_file_retention)

    @property
    def skew(self) -> int:
        """The setting maximum_clock_skew, in milliseconds."""
        return round(self.maximum_clock_skew * MILLISECONDS)

    @property
    def account(self) -> arns.Account:
        """The account and the region in the queues' ARNs."""
        return arns.Account(self.account_id, self.region)

    @classmethod
    def read(cls, path: str | Path) -> Settings:
        """Return the settings of a TOML file's table [ledger]. A setting that the file leaves out has its default.

        Raises:
            InvalidParameterValue: The file cannot be read, a setting is unknown, or a value is out of bounds. The error
                names the file.
        """
        try:
            return cls(**_require_ledger_table(_read_tables(path)))
        except InvalidParameterValue as error:
            raise InvalidParameterValue(error.field, error.value, error.bound, f"{error.fix} (in {path})") from None


def require_within(
    log_retention: int, name: str, value: int | None, fix: str = "Lower it, or raise log_retention."
) -> None:
    if value is not None and value > log_retention:
        bound = f"Must be at most log_retention, which is {log_retention}: the log must reach back as far"
        raise InvalidParameterValue(name, value, bound, fix)


def _find_broken_bound(name: str, value: object, kind: type) -> str | None:
    """Return the bound that a value breaks, in words, or None."""
    if name in ALLOWED_WORDS:
        return None if value in ALLOWED_WORDS[name] else f"Must be one of {', '.join(ALLOWED_WORDS[name])}"
    if name in TEXT_PATTERNS:
        pattern, bound = TEXT_PATTERNS[name]
        return None if isinstance(value, str) and re.fullmatch(pattern, value) else bound
    if kind is bool:
        return None if isinstance(value, bool) else "Must be true or false"
    kinds = (int,) if kind is int else (int, float)
    # NaN is within no bounds: each comparison with it is false.
    if (
        isinstance(value, kinds)
        and not isinstance(value, bool)
        and max(0, SMALLEST_VALUES.get(name, 0) - 1) < value <= GREATEST_VALUES[name]
    ):
        return None
    if value == 0 and isinstance(value, int) and not isinstance(value, bool) and name in MAY_BE_0:
        return None
    least = f">= {SMALLEST_VALUES[name]}" if name in SMALLEST_VALUES else ">= 0" if name in MAY_BE_0 else "> 0"
    return f"Must be a {'whole ' * (kind is int)}number {least} and <= {GREATEST_VALUES[name]}"


def _read_tables(path: str | Path) -> dict[str, Any]:
    try:
        tables: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return tables
    except OSError as error:
        bound, fix = f"It cannot be read ({error.strerror})", "Name a file like conf/ledger.toml."
    except ValueError as error:
        bound, fix = f"It is no TOML ({error})", "Compare it with conf/ledger.toml."
    raise InvalidParameterValue("settings", str(path), bound, fix)


def _require_ledger_table(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in sorted(set(tables) - {SETTINGS_TABLE}):
        raise InvalidParameterValue(
            name,
            tables[name],
            f"Settings belong in the table [{SETTINGS_TABLE}]",
            f"Put it below a line [{SETTINGS_TABLE}].",
        )
    table = tables.get(SETTINGS_TABLE, {})
    if not isinstance(table, Mapping):
        raise InvalidParameterValue(
            SETTINGS_TABLE, table, "Must be a table", f"Write a line [{SETTINGS_TABLE}] and settings below it."
        )
    names = [field.name for field in fields(Settings)]
    for name in sorted(set(table) - set(names)):
        close = difflib.get_close_matches(name, names, 1)
        fix = f"Is it {close[0]}?" if close else "Remove it."
        raise InvalidParameterValue(name, table[name], f"No such setting; there are {', '.join(names)}", fix)
    return table


def _advice_of_default(value: object) -> str:
    if value is None:
        return "Leave it out, and the tables stay as they are."
    text = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else f"{value:_}"
    return f"Its default is {text}."
