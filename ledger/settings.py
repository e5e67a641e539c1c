"""Settings of a ledger: every one with its default. `conf/ledger.toml` says the same with comments."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path

from ledger.errors import InvalidParameterValue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENGINES = ("auto", "spark", "delta-rs")


@dataclass(frozen=True)
class Settings:
    """How a ledger works; durations in seconds."""

    #: Which engine commits: auto, spark or delta-rs.
    engine: str = "auto"
    #: How often a verb is tried before ContentionOutlastedRetries.
    maximum_attempts: int = 60
    #: After so many losses a writer on a local path waits for its turn and then has the table alone.
    losses_before_waiting: int = 3
    #: Most messages of one segment of a bulk send.
    messages_per_segment: int = 1_000_000
    #: Most messages of one data file of a bulk send: a small receive reads one file.
    messages_per_file: int = 250_000
    #: Says that only one driver writes to an s3a: path that has no multi-writer log store.
    single_driver: bool = False
    #: How long a waiting receive sleeps between looks at the tables' versions.
    poll_interval: float = 0.2
    #: Deleted messages keep their receipt this long; then upkeep joins their rows.
    keep_deleted_receipts: int = 3_600
    #: An open segment is no longer appended to once it is this old.
    open_segment_seconds: int = 3_600

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InvalidParameterValue("engine", self.engine, f"Must be one of {', '.join(ENGINES)}")
        for field in fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if kind in (int, float) and (not number or value <= 0 or (kind is int and not isinstance(value, int))):
                raise InvalidParameterValue(field.name, value, f"Must be a positive {'whole ' * (kind is int)}number")
            if kind is bool and not isinstance(value, bool):
                raise InvalidParameterValue(field.name, value, "Must be true or false")


def read_settings(path: str | Path) -> Settings:
    """The settings in a TOML file's table [ledger]; what it leaves out has its default."""
    given = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("ledger", {})
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise InvalidParameterValue(
            unknown[0], given[unknown[0]], f"No such setting; there are {', '.join(sorted(known))}"
        )
    return Settings(**given)
