"""The findings of `ledger doctor`: about the machine, the storage, a ledger, and its load.

Packages are imported in functions: people run the doctor where packages are missing.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.rules.limits import LEAST_FREE_BYTES

if TYPE_CHECKING:
    from ledger.runtime.checks import Finding
    from ledger.store.delta.verbs.health import Health
    from ledger.store.delta.verbs.vitals import OldestClaim, Vitals

#: The fields of a Finding: outcome, subject, what was found, advice.
FindingFields = tuple[str, str, str, str]
#: Warn below this many free bytes, or with room for fewer days of writing.
LOW_BYTES, LOW_DAYS = 1_000_000_000, 2
#: Warn about a claim held for this long: a heartbeat also extends the claim of a worker that hangs.
LONG_HELD_SECONDS = 6 * 3_600
#: Receipts that upkeep has not joined make receives slower (docs/explanation/disk.md).
MANY_RECEIPTS = 20_000
MANY_CONFLICTS_A_MINUTE = 60


def judge_vitals(vitals: Vitals) -> Iterator[FindingFields]:
    yield _judge_disk(vitals)
    claim = vitals.oldest_claim
    yield ("OK", "claims", "nothing is in flight", "") if claim is None else _judge_claim(claim)
    oldest = vitals.oldest_message
    found = (
        "none is there" if oldest is None else f"the oldest is in {oldest.queue}, sent {format_time(oldest.age)} ago"
    )
    yield "OK", "messages", found, ""
    receipts = vitals.unjoined_receipts
    found = f"{receipts:,} of acknowledged claims that upkeep has not joined"
    if receipts > MANY_RECEIPTS:
        advice = "run `ledger upkeep` more often, with a shorter keep_deleted_receipts in its settings"
        yield "WARN", "receipts", found, advice
    else:
        yield "OK", "receipts", found, ""
    recent = vitals.recent
    found = f"{recent.conflicts_a_minute:,.1f} a minute in the {recent.commits:,} commits of the last "
    found += format_time(recent.seconds)
    if recent.conflicts_a_minute > MANY_CONFLICTS_A_MINUTE:
        advice = "let fewer processes commit to one queue, or make another queue with more lanes "
        advice += "(`ledger queues create NAME -a Lanes=N`): a queue's own lanes cannot change"
        yield "WARN", "conflicts", found, advice
    else:
        yield "OK", "conflicts", found, ""


def _judge_disk(vitals: Vitals) -> FindingFields:
    disk = vitals.disk
    found = f"{format_bytes(disk.bytes)} in {disk.files:,} files, of these {format_bytes(disk.log_bytes)} of logs; "
    found += f"{format_bytes(disk.written_a_day)} written a day, by the last {format_time(disk.measured_seconds)}"
    if disk.free is None:
        return "OK", "disk", found, ""
    found += f"; {format_bytes(disk.free)} free"
    days = disk.days_left
    is_low = disk.free < LOW_BYTES or (days is not None and days < LOW_DAYS)
    if not is_low:
        return "OK", "disk", found, ""
    found += "" if days is None or days >= LOW_DAYS else f", which is enough for {days * 24:,.0f} h"
    found += f" (enough are {format_bytes(LOW_BYTES)}, and {LOW_DAYS} days at that rate)"
    advice = "free space on this disk, then run `ledger upkeep`; it keeps files for deleted_file_retention and "
    advice += "log_retention: shorter ones (`ledger upkeep --settings FILE`) free more"
    return "FAIL" if disk.free < LEAST_FREE_BYTES else "WARN", "disk", found, advice


def _judge_claim(claim: OldestClaim) -> FindingFields:
    beat = (
        "no beat in the newest commits"
        if claim.beat_age is None
        else f"the last beat {format_time(claim.beat_age)} ago"
    )
    found = f"the oldest is of {claim.queue}, receipt {claim.receipt_id}: held for {format_time(claim.age)}, {beat}"
    if claim.age < LONG_HELD_SECONDS:
        return "OK", "claims", found, ""
    advice = "does its worker still work? If not, end it (SIGTERM twice, or kill -9); then "
    advice += "`ledger release QUEUE --receipt RECEIPT --reason hung` gives its messages to others"
    return "WARN", "claims", found, advice


def format_bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} B"


def format_time(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s"


DAY_SECONDS = 86_400
#: Commits since a table's checkpoint: opening the table reads all of them.
MANY_COMMITS = 2_000
MOST_NAMED = 5
RESTORE_ADVICE = "restore a backup (`ledger restore-backup BACKUP ROOT --replace`)"
#: Calls that fail if the engine refuses a table.
WHAT_FAILS = {
    "queues": "calls fail that make, change or delete queues, and upkeep when messages expire",
    "messages": "sends fail",
    "visibility": "receives, extensions, releases and deletions fail",
    "receipts": "upkeep fails",
    "tasks": "message move tasks fail",
}
#: Unneeded files of all tables.
MANY_ORPHANS = 1_000


def diagnose(
    root: str | None, *, as_json: bool = False, fetch: bool = False, settings: str | None = None, deep: bool = False
) -> int:
    """Print the findings about this machine and the ledger at `root`. Return 1 if any finding is FAIL, else 0.

    With `fetch` first fetch Delta's jars, for a root on S3 also S3's. With `deep` also read each data file.
    """
    from ledger.runtime.checks import Finding, examine

    if fetch:
        _fetch_jars(root)
    all_findings, facts = list[Finding](), dict[str, Any]()
    for finding in _collect_findings(examine(root), root, settings, facts, deep):
        all_findings.append(finding)
        if not as_json:
            print(finding, flush=True)
    failed = any(finding.outcome == "FAIL" for finding in all_findings)
    if as_json:
        versions = {finding.subject: finding.found for finding in all_findings if finding.subject in ("python", "java")}
        findings = [dataclasses.asdict(finding) for finding in all_findings]
        print(
            json.dumps(
                {
                    "healthy": not failed,
                    "root": root,
                    "versions": {**versions_of_engines(), **versions},
                    **facts,
                    "findings": findings,
                }
            )
        )
    return int(failed)


def _collect_findings(
    examined: Iterator[Finding], root: str | None, settings: str | None, facts: dict[str, Any], deep: bool
) -> Iterator[Finding]:
    """Yield all findings. Put the health of the ledger's tables into `facts`."""
    ledger_exists = denied = False
    for finding in examined:
        ledger_exists = ledger_exists or (finding.subject, finding.outcome) == ("ledger", "OK")
        has_files = ledger_exists and finding.subject == "files"
        for one in _examine_access(root, finding) if root and has_files else (finding,):
            denied = denied or (finding.subject == "files" and one.outcome == "FAIL")
            yield one
    reached = True
    for finding in _examine_object_store(root):
        reached = reached and finding.outcome != "FAIL"
        yield finding
    if root is not None and reached and (ledger_exists or "://" in root):
        yield from _examine_ledger(root, settings, facts, deep, is_denied_before=denied)


def _examine_object_store(root: str | None) -> Iterator[Finding]:
    from ledger.runtime.checks import Finding
    from ledger.runtime.storage import find_object_store

    place = None if root is None else find_object_store(root)
    if place is None:
        return
    try:
        from ledger.store.delta.commit.readiness import report
    except ImportError as error:
        yield Finding("FAIL", "storage", f"cannot be looked at: {error}", "install the package with what it needs")
        return
    yield from (Finding(*found) for found in report(place))


def _examine_ledger(
    root: str, settings: str | None, facts: dict[str, Any], deep: bool, *, is_denied_before: bool
) -> Iterator[Finding]:
    """Yield findings about the ledger's tables, or about why the tables cannot be read.

    With `is_denied_before`, an earlier finding named files that this user may not use. This cause is not repeated.
    """
    from ledger.errors import LedgerDoesNotExist, LedgerError, StorageFailed
    from ledger.runtime.checks import Finding
    from ledger.runtime.storage import explain, is_denied, local_path

    try:
        from ledger.ledger import Ledger
        from ledger.settings import Settings

        chosen = Settings.read(settings) if settings else Settings()
        health = Ledger.open(root, read_only=True, settings=chosen).health(deep=deep)
    except ImportError as error:
        yield Finding("FAIL", "tables", f"cannot be looked at: {error}", "install the package with what it needs")
    except LedgerDoesNotExist as error:
        advice = error.fix or "is the root mistyped? `ledger queues create NAME` makes a ledger"
        if error.missing:
            advice = (
                f"bring the tables' folders back, or {RESTORE_ADVICE}; a ledger that is opened anew makes empty ones"
            )
        yield Finding("FAIL", "tables", error.found, advice)
    except LedgerError as error:
        place = local_path(root)
        cause = None if place is None or not isinstance(error, StorageFailed) else explain(error, place)
        if cause is None:
            yield Finding("FAIL", "tables", error.message, error.advice or "see above")
        elif not (is_denied_before and is_denied(error)):
            yield Finding("FAIL", "tables", f"cannot be read: {cause[0]}", cause[1])
    except Exception as error:
        yield Finding(
            "FAIL", "tables", f"cannot be read: {error!r}", f"{RESTORE_ADVICE}, or see `ledger repair --help`"
        )
    else:
        facts["ledger"] = dataclasses.asdict(health)
        yield from _judge_health(health)


def _examine_access(root: str, files: Finding) -> Iterator[Finding]:
    """Yield what file permissions on a local path forbid this user (`files`) and other users of the ledger.

    In a ledger that is not shared, if `files` is not OK, a second finding could only repeat `files`. In a shared ledger
    the second finding replaces a failed `files`, if the second names all paths of the first.
    """
    from ledger.errors import LedgerError
    from ledger.runtime.checks import Finding
    from ledger.runtime.storage import find_unusable_paths

    try:
        from ledger.store.delta.permissions import look_over

        permissions = look_over(root)
    except (ImportError, LedgerError):
        # `_examine_ledger` finds the same cause.
        permissions = None
    if permissions is not None and permissions.closed_above:
        found = f"users that this ledger is shared with may not enter {', '.join(permissions.closed_above)}"
        yield Finding("WARN", "permissions", found, permissions.opening)
    if permissions is None or not permissions.faults:
        yield files
        return
    is_shared = permissions.is_shared
    if not (is_shared and files.outcome == "FAIL" and find_unusable_paths(Path(root)) <= permissions.paths):
        yield files
    if not is_shared and files.outcome != "OK":
        return
    more = f"; and {len(permissions.faults) - MOST_NAMED:,} more" if len(permissions.faults) > MOST_NAMED else ""
    named = "; ".join(permissions.faults[:MOST_NAMED])
    advice = (
        permissions.command
        if is_shared
        else f"users who only read need no more; for users who write: {permissions.command} (with --everyone, all "
        "others may still read it)"
    )
    yield Finding("FAIL" if is_shared else "WARN", "permissions", f"{named}{more}", advice)


def _judge_health(health: Health) -> Iterator[Finding]:
    from ledger.runtime.checks import Finding

    tables = health.tables
    size = sum(table.bytes for table in tables.values())
    files = sum(table.files for table in tables.values())
    yield Finding("OK", "tables", f"{health.queues:,} queues, {files:,} data files, {size / 1e6:,.1f} MB")
    yield from _judge_damage(health)
    for name, table in tables.items():
        if table.refused:
            what = "upkeep fails when it has messages to drop" if table.takes_appends else WHAT_FAILS[name]
            yield Finding("FAIL", "altered", f"{what}: {table.refused}", table.refused_fix)
    if health.clocks:
        named = ", ".join([*health.clocks][:MOST_NAMED])
        found = f"verbs of {len(health.clocks):,} queues raise ClocksDisagree ({named}): "
        found += next(iter(health.clocks.values()))
        yield Finding("FAIL", "clocks", found, "see `ledger repair --help`; set this machine's clock right before")
    if health.lost_dead_letter_queues:
        yield _judge_dead_letters(health.lost_dead_letter_queues)
    if not any(table.refused and not table.takes_appends for table in tables.values()):
        yield _judge_commit_paths(health)
    if health.vitals is not None:
        yield from (Finding(*found) for found in judge_vitals(health.vitals))
    age, kept = health.oldest_without_upkeep or 0, health.log_retention
    found = f"{health.commits_without_upkeep:,} commits since the last round"
    found += f"; the oldest of them is {age / 3_600:,.1f} h old" if age else ""
    advice = "run `ledger upkeep` now, and `ledger upkeep --every 5m` as a service, so that it runs when it is due. "
    advice += (
        f"A commit that no round copies within log_retention ({kept / DAY_SECONDS:g} days) leaves a gap in the receipts"
    )
    overdue = health.upkeep_overdue or age > min(7 * DAY_SECONDS, kept / 2)
    outcome = "FAIL" if age > kept else "WARN" if overdue else "OK"
    found = f"overdue: {health.upkeep_overdue}" if health.upkeep_overdue else found
    yield Finding(outcome, "upkeep", found, "" if outcome == "OK" else advice)
    longest = max(tables, key=lambda name: tables[name].since_checkpoint)
    found = f"{tables[longest].since_checkpoint:,} commits of {longest} since its checkpoint"
    found += f", {sum(table.log_files for table in tables.values()):,} files in all logs"
    if tables[longest].since_checkpoint > MANY_COMMITS:
        yield Finding("WARN", "log length", found, "run `ledger upkeep`, and look why writers write no checkpoint")
    else:
        yield Finding("OK", "log length", found)
    orphans = sum(table.orphans for table in tables.values())
    found = f"{orphans:,} that nothing within the retention needs"
    if orphans > MANY_ORPHANS:
        yield Finding("WARN", "orphan files", found, "`ledger upkeep` removes them")
    else:
        yield Finding("OK", "orphan files", found)


def _judge_dead_letters(lost: Mapping[str, str]) -> Finding:
    from ledger.runtime.checks import Finding

    named = ", ".join(f"{target} of {name}" for name, target in [*lost.items()][:MOST_NAMED])
    name, target = next(iter(lost.items()))
    exist = "queue does not exist" if len(lost) == 1 else "queues do not exist"
    found = f"{len(lost):,} dead-letter {exist} ({named}): messages that fail are received again and again"
    advice = f"make it (`ledger queues create {target}`), or take the policy away "
    advice += f"(`ledger queues set {name} -a RedrivePolicy=`)"
    return Finding("WARN", "dead letters", found, advice)


def _judge_commit_paths(health: Health) -> Finding:
    from ledger.runtime.checks import Finding

    merges = {} if health.vitals is None else health.vitals.recent.merges
    direct, statements = merges.get("direct", 0), merges.get("statement", 0)
    lately = f"of the newest MERGEs into visibility {direct:,} were direct, {statements:,} by statements"
    why = {name: table.by_statement for name, table in health.tables.items() if table.by_statement}
    if not why:
        return Finding("OK", "commits", f"verbs commit small changes directly; {lately}")
    same = len(set(why.values())) == 1 and len(why) == len(health.tables)
    named = next(iter(why.values())) if same else "; ".join(f"{name}: {reason}" for name, reason in why.items())
    found = f"verbs run the engine's statements, which take longer ({named}); {lately}"
    if all(reason.startswith("setting") for reason in why.values()):
        return Finding("OK", "commits", found)
    ways = dict.fromkeys(table.altered for table in health.tables.values() if table.altered)
    advice = "undo the alterations, if nobody needs them: "
    return Finding("WARN", "commits", found, advice + ("; ".join(ways) or "see the tables' history"))


def _judge_damage(health: Health) -> Iterator[Finding]:
    from ledger.runtime.checks import Finding

    wrong = [f"{name}/{file}" for name, table in health.tables.items() for file in table.damaged]
    if wrong:
        more = f"; and {len(wrong) - MOST_NAMED:,} more" if len(wrong) > MOST_NAMED else ""
        found = f"{len(wrong):,} of those that the logs name are damaged: {'; '.join(wrong[:MOST_NAMED])}{more}"
        yield Finding("FAIL", "data files", found, f"{RESTORE_ADVICE}, or see `ledger repair --help`")
    else:
        yield Finding("OK", "data files", "all that the logs name are there, as large as written")
    unreadable = [f"{name}/{path}" for name, table in health.tables.items() for path in table.unreadable_checkpoints]
    if unreadable:
        found = f"{len(unreadable)} cannot be read: {', '.join(unreadable[:MOST_NAMED])}"
        yield Finding(
            "WARN", "checkpoints", found, "the log's entries have the same content; `ledger repair` takes these out"
        )


def versions_of_engines() -> dict[str, str]:
    from importlib import metadata

    import ledger

    versions = {"ledger": ledger.__version__}
    for name in ("deltalake", "pyarrow", "pyspark", "delta-spark"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _fetch_jars(root: str | None) -> None:
    from ledger.runtime.cache import RuntimeSetupError
    from ledger.runtime.jars import delta_packages, find_or_fetch_jars, s3_packages
    from ledger.runtime.storage import is_s3

    try:
        find_or_fetch_jars(delta_packages())
        if root is not None and is_s3(root):
            find_or_fetch_jars(s3_packages())
    except RuntimeSetupError as error:
        print(f"ledger: {error}", file=sys.stderr)
