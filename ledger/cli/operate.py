"""Commands for operators: `upkeep`, `backup`, `restore-backup`, `repair`, `destroy` and `share`."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from ledger.cli.opening import as_json, open_ledger, require_root, with_root
from ledger.cli.printing import ProgressLine, pluralize, print_json, print_table, report
from ledger.cli.queues import confirm

if TYPE_CHECKING:
    from ledger.ledger import Ledger
    from ledger.store.delta.destruction import Destroyed
    from ledger.store.delta.verbs.clock_repair import ClockRepair
    from ledger.store.delta.verbs.repair import Repair
    from ledger.store.delta.verbs.upkeep import UpkeepReport


@click.command(short_help="Remove what is finished: once, or whenever a round is due.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option(
    "--every", metavar="PERIOD", help="Check every PERIOD (90s, 5m, 1h) whether a round is due, until SIGTERM."
)
@click.option("--if-due", is_flag=True, help="Run a round only if one is due: for cron.")
@click.option("--no-vacuum", is_flag=True, help="Leave unused files in place.")
@as_json
@with_root
def upkeep(
    place: str | None,
    every: str | None,
    if_due: bool,
    no_vacuum: bool,
    json: bool,
    root: str | None,
    settings: str | None,
) -> None:
    """Drop finished messages of the ledger ROOT (default: LEDGER_ROOT), compact and vacuum its tables, and fill the
    table of receipts. Other processes may use the ledger meanwhile.

    Without --every and --if-due, the command runs one round now. With --every, the command checks each period whether
    the commits or the time since the last round make a round due, and runs a round that is due. If several such
    processes share a ledger, one of them runs the round. A round that fails is logged and tried again. The first
    SIGTERM or Ctrl-C ends this loop before the next step of a round, with exit code 0.

    \b
    Example:
      ledger upkeep
      ledger upkeep ledger-data --if-due
    """
    if every is not None and if_due:
        raise click.UsageError("--every runs a round only if it is due: leave --if-due out.")
    if every is not None:
        from ledger.upkeep_daemon import parse_period

        period = parse_period("every", every)
        _run_upkeep(open_ledger(root, settings), require_root(root), period, not no_vacuum, json)
    elif if_due:
        from ledger.upkeep_daemon import Upkeeper

        done = Upkeeper(open_ledger(root, settings), 1.0, vacuum=not no_vacuum).run_if_due()
        if done is not None:
            _print_report(done, json, {"ran": True})
        else:
            idle = "No round is due, or another process runs one."
            report(json, {"ran": False, "reason": idle}, idle)
    else:
        steps = ProgressLine(every=0)
        try:
            done = open_ledger(root, settings).upkeep(not no_vacuum, steps)
        finally:
            steps.done()
        _print_report(done, json)


def _print_report(done: UpkeepReport, json: bool, more: Mapping[str, bool] = MappingProxyType({})) -> None:
    did = dataclasses.asdict(done)
    if json:
        print_json({**more, **did})
    else:
        print_table([{"did": name.replace("_", " "), "how many": count} for name, count in did.items()], "")


def _run_upkeep(ledger: Ledger, root: str, period: float, vacuum: bool, json: bool) -> None:
    from ledger.runtime.termination import draining
    from ledger.upkeep_daemon import Upkeeper, describe_round, format_period

    def say(line: str) -> None:
        click.echo(f"{datetime.now():%H:%M:%S} {line}", err=True)

    def report(done: UpkeepReport) -> None:
        if json:
            print_json(dataclasses.asdict(done))
        else:
            say(describe_round(done))

    with draining() as drain:
        say(f"looks every {format_period(period)} whether upkeep of {root} is due, until SIGTERM or Ctrl-C")
        Upkeeper(ledger, period, vacuum=vacuum, report=report).run(drain.wait, lambda: drain.asked is not None)
        say("ended, as it was told to")


@click.command(short_help="Copy the ledger, as of one moment, into a folder.")
@click.argument("dest")
@as_json
@with_root
def backup(dest: str, json: bool, root: str | None, settings: str | None) -> None:
    """Copy all tables into the folder DEST, each at a version that fits the others. The ledger may be in use.

    DEST must be an empty folder or not exist. Past versions are not copied. The copy is as private as the ledger.

    \b
    Example:
      ledger backup tuesday
    """
    _require_folder("DEST", dest)
    copied = open_ledger(root, settings).backup(dest, lambda step: click.echo(step, err=True))
    if json:
        print_json(dataclasses.asdict(copied))
    else:
        click.echo(f"{copied.files} files, {copied.bytes} bytes, as of {copied.taken_at}")


def _require_folder(name: str, path: str) -> None:
    if path == "-":
        raise click.UsageError(
            f"{name} must be a folder, and - means a stream. For a folder with the name -, write ./-."
        )


@click.command("restore-backup", short_help="Make a ledger from a backup.")
@click.argument("source")
@click.argument("place", metavar="ROOT")
@click.option("--replace", is_flag=True, help="Move a ledger that is at ROOT aside.")
@as_json
def restore_backup(source: str, place: str, replace: bool, json: bool) -> None:
    """Make the ledger ROOT from the backup SOURCE.

    ROOT must be an empty folder or not exist, unless --replace is given. With --replace, what is at ROOT is moved to
    another folder. Processes that have the old ledger open continue with the restored one. The restored ledger keeps
    the group, modes and ACLs of a folder at ROOT. If the user root runs the command, it also keeps the folder's owner.

    \b
    Example:
      ledger restore-backup monday restored
    """
    from ledger.ledger import Ledger

    _require_folder("SOURCE", source)
    _require_folder("ROOT", place)
    aside = Ledger.restore_backup(source, place, replace=replace, report=lambda step: click.echo(step, err=True))
    if json:
        print_json({"root": place, "moved_aside": None if aside is None else str(aside)})
    else:
        click.echo(f"{place} is the ledger of {source}" + ("" if aside is None else f"; what was there is in {aside}"))


@click.command(short_help="Repair a ledger after a power cut or a wrong clock.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option("--clock", is_flag=True, help="Only set back the times of queues that are ahead of this machine's clock.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed or lost.")
@with_root
@as_json
def repair(
    place: str | None, root: str | None, clock: bool, yes: bool, dry_run: bool, settings: str | None, json: bool
) -> None:
    """Repair the ledger at ROOT (default: LEDGER_ROOT), on a local path, after a power failure. A table with a damaged
    log entry or data file is cut back to its last whole version. Two exceptions: if a later checkpoint sums up the
    entry, only versions before that checkpoint become unreadable. From the table messages, the command removes damaged
    data files, and their messages are lost. The command shows what is lost, and asks on a terminal. If stdin is no
    terminal, --yes is needed. Removed files go to the folder _ledger_lost next to the tables. First stop all processes
    that use the ledger.

    With --clock, the command repairs queues whose verbs raise ClocksDisagree. This happens after a machine whose clock
    was ahead has committed. First set this machine's clock right. Other processes may use the ledger meanwhile.

    \b
    Example:
      ledger repair ledger-data --dry-run
      ledger repair ledger-data --yes
      ledger repair --clock ledger-data --yes
    """
    if clock:
        _repair_clock(root, settings, yes, dry_run, json)
    else:
        _repair_damage(require_root(root), yes, dry_run, json)


def _repair_clock(root: str | None, settings: str | None, yes: bool, dry_run: bool, json: bool) -> None:
    ledger = open_ledger(root, settings)
    fixes = ledger.repair_clock(dry_run=True)
    wrong = [fix for fix in fixes if fix]
    if wrong and not dry_run:
        worst = max(fix.ahead for fix in wrong)
        queues = pluralize(len(wrong), "queue")
        confirm(
            f"The time of {queues} is up to {worst:,.1f} s ahead. Set it to {_format_instant(ledger.clock())}?", yes
        )
        fixes = ledger.repair_clock()
    if json:
        print_json(*(dataclasses.asdict(fix) for fix in fixes))
        return
    for fix in fixes:
        for sentence in _describe_fix(fix, dry_run):
            click.echo(f"{fix.queue}: {sentence}")
    if not wrong:
        click.echo("no queue's time is ahead of this machine's clock")


def _describe_fix(fix: ClockRepair, dry_run: bool) -> Iterator[str]:
    would = "would" if dry_run else "has"
    if fix:
        yield f"its latest wrong time {'is' if dry_run else 'was'} {fix.ahead:,.1f} s ahead"
    if fix.lanes:
        records = f", with the records of {pluralize(fix.messages, 'message')}" if fix.messages else ""
        yield f"the repair {would} set back the time of {pluralize(fix.lanes, 'lane')}{records}"
    if fix.refused_sends:
        yield f"sends were refused after a send by a clock that was ahead; they {'would ' if dry_run else ''}go on"
    if fix.changed_ahead:
        changed = "a clock that was ahead made or changed the queue, or noted what has expired"
        yield f"{changed}; the repair {would} set these times by this clock"
    if fix.tasks:
        tasks, go_on = pluralize(fix.tasks, "message move task"), "would continue" if dry_run else "continues"
        yield f"a clock that was ahead started or continued {tasks}; the move {go_on}"
    if fix.sent_ahead:
        sent = pluralize(fix.sent_ahead, "message")
        yield f"a clock that was ahead sent up to {sent}; each becomes visible when its time has come"


def _format_instant(milliseconds: int) -> str:
    from ledger.clock import instant

    return instant(milliseconds).isoformat(timespec="seconds")


def _repair_damage(root: str, yes: bool, dry_run: bool, json: bool) -> None:
    from ledger.ledger import Ledger

    damage = Ledger.repair(root, dry_run=True)
    if damage and not dry_run:
        click.echo("\n".join(_describe_damage(damage)), err=json)
        confirm(f"Make these repairs in the ledger at {root}?", yes)
        damage = Ledger.repair(root)
    if json:
        print_json({"repaired": bool(damage) and not dry_run, **dataclasses.asdict(damage)})
    elif dry_run or not damage:
        click.echo("\n".join(_describe_damage(damage)))
        if damage:
            command = f"ledger repair {shlex.quote(root)} --yes"
            click.echo(f"`{command}` does that. First stop all processes that use the ledger.")
    else:
        click.echo(f"Repaired. What was taken out is in {damage.lost}")


def _describe_damage(damage: Repair) -> Iterator[str]:
    if not damage:
        yield "Nothing is damaged."
    for table in damage.tables:
        if table.commits:
            are = "is" if len(table.commits) == 1 else "are"
            lost = f"{pluralize(len(table.commits), 'commit')} {are} lost"
            yield f"{table.table}: version {table.version} is the last whole one; {lost}"
        for commit in table.commits:
            about = commit.verb or "not known"
            about += "" if commit.messages is None else f", {pluralize(commit.messages, 'message')}"
            yield f"  version {commit.version}: {about}{f' ({commit.flaw})' if commit.flaw else ''}"
        for version, flaw in table.past.items():
            yield f"{table.table}: the entry of version {version} {flaw}; a later checkpoint has its rows"
        if table.past:
            cut = f"versions before {table.readable_from} cannot be read any more"
            yield f"{table.table}: no message is lost with it, but {cut}"
        if table.files:
            held = "an unknown number of" if table.messages is None else f"{table.messages:,}"
            yield f"{table.table}: {len(table.files):,} data files are lost, with {held} messages"
        for path, flaw in table.files.items():
            yield f"  {path} {flaw}"
    if any(table.commits for table in damage.tables):
        yield "What was sent in lost commits is gone. Messages whose acknowledgement is lost are received again."
    for path in damage.checkpoints:
        yield f"{path} cannot be read; the entries have the same content, and nothing is lost"


@click.command(short_help="Remove a ledger for good, with all of its messages.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@with_root
@as_json
def destroy(place: str | None, root: str | None, yes: bool, dry_run: bool, settings: str | None, json: bool) -> None:
    """Remove the ledger ROOT (default: LEDGER_ROOT) for good: its tables, its locks, and the files that repairs put
    aside. The command shows how much is in the ledger, and asks on a terminal. If stdin is no terminal, --yes is
    needed. Other files in the folder stay. First stop all processes that use the ledger. Only a backup brings the
    ledger back (`ledger backup`).

    \b
    Example:
      ledger destroy ledger-data --dry-run
      ledger destroy ledger-data --yes
    """
    from ledger.ledger import Ledger

    where = require_root(root)
    destroyed = Ledger.destroy(where, dry_run=True)
    depth = _count_messages(where, settings)
    content = _describe_content(depth, destroyed)
    if not dry_run:
        confirm(f"Remove the ledger at {destroyed.root} for good, with {content}?", yes)
        destroyed = Ledger.destroy(where)
    if json:
        print_json({"destroyed": not dry_run, **dataclasses.asdict(destroyed), **(depth or {})})
        return
    click.echo(f"{'Would remove' if dry_run else 'Removed'} the ledger at {destroyed.root}, with {content}")
    if destroyed.stays:
        click.echo(
            f"{', '.join(destroyed.stays)}: not the ledger's; {'stays' if len(destroyed.stays) == 1 else 'they stay'}"
        )
    for link in destroyed.links:
        click.echo(f"{link}: a link to it that you may not remove; the link leads nowhere now")


def _count_messages(root: str, settings: str | None) -> dict[str, int] | None:
    """Return the number of queues, messages and messages in flight, if the ledger can be read."""
    from ledger.errors import LedgerError

    try:
        ledger = open_ledger(root, settings, read_only=True)
        rows = ledger.sql("SELECT * FROM queue_depth").to_pylist()
    except LedgerError:
        return None
    in_flight = sum(row["in_flight"] for row in rows)
    stored = sum(row[state] for row in rows for state in ("visible", "delayed", "locked"))
    return {"queues": len(rows), "messages": stored + in_flight, "in_flight": in_flight}


def _describe_content(depth: dict[str, int] | None, destroyed: Destroyed) -> str:
    size = f"{pluralize(destroyed.files, 'file')} of {destroyed.bytes / 1e6:,.1f} MB"
    if depth is None:
        return f"an unknown number of messages (its tables cannot be read), in {size}"
    queues, messages = pluralize(depth["queues"], "queue"), pluralize(depth["messages"], "message")
    return f"{queues} and {messages}, {depth['in_flight']:,} of them in flight, in {size}"


@click.command(short_help="Give a ledger on a local path to a group.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option("--group", required=True, metavar="GROUP", help="The group whose users read and write the ledger.")
@click.option("--everyone", is_flag=True, help="All others may read it.")
@as_json
@with_root
def share(place: str | None, group: str, everyone: bool, json: bool, root: str | None, settings: str | None) -> None:
    """Let all users of GROUP use the ledger ROOT (default: LEDGER_ROOT). Its folders and locks become writable for the
    group, and its files readable. On a file system with ACLs the same holds for later files, whatever the umask of
    their owners. On other file systems every user needs the umask 002.

    Run this command as the user root, or as a member of GROUP who owns all files of the ledger. Once a second user has
    written, only root can run the command. Without --everyone, users outside GROUP cannot read what is written later.

    \b
    Example:
      ledger share ledger-data --group GROUP
    """
    from ledger.ledger import Ledger

    shared = Ledger.share(require_root(root), group=group, everyone=everyone)
    entries = f"{pluralize(shared.folders, 'folder')} and {pluralize(shared.files, 'file')}"
    sentence = f"shared {entries} of {shared.root} with {group}"
    if not shared.is_inherited:
        sentence += ". The file system has no ACLs: every user needs `umask 002` to use the ledger"
    if shared.to_open:
        commands = " and ".join(f"`{command}`" for command in shared.to_open)
        click.echo(f"ledger: a folder above {shared.root} is closed to users: run {commands}", err=True)
    report(json, dataclasses.asdict(shared), sentence)
