"""The command `ledger`: its subcommands, and a line on stderr and an exit code for each error."""

from __future__ import annotations

import io
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import click

from ledger.cli import INTERRUPTED, consume, doctor, look, messages, operate, queues, send, serve, submit, transfer
from ledger.cli.diagnosis import versions_of_engines
from ledger.cli.words import error_text
from ledger.errors import (
    InvalidAttributeName,
    InvalidMessageContents,
    InvalidParameterValue,
    LedgerError,
    MissingParameter,
)

FAILED, USAGE = 1, 2
#: Errors whose exit code is USAGE.
USAGE_ERRORS = (InvalidAttributeName, InvalidMessageContents, InvalidParameterValue, MissingParameter)
EPILOG = """\b
Exit codes: 0 all done; 1 an error or a failed check; 2 wrong arguments or values;
3 done in part (rows refused, handles that nothing was done for); 130 Ctrl-C; 143 SIGTERM.

\b
The ledger is named by --root or the environment variable LEDGER_ROOT, its settings by --settings FILE
or LEDGER_SETTINGS. With --json a command prints one JSON document a line. LEDGER_LOG=debug logs to stderr.

\b
Example:
  export LEDGER_ROOT=./my-ledger
  ledger queues create work
  echo hello | ledger send work -
  ledger receive work
"""


def _print_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if not is_asked or context.resilient_parsing:
        return
    versions = versions_of_engines()
    engines = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "ledger")
    click.echo(f"ledger, version {versions['ledger']} (Python {platform.python_version()}, {engines})")
    context.exit()


@click.group(
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    invoke_without_command=False,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the versions of the ledger, of Python and of the engines.",
)
@click.option("-r", "--root", metavar="ROOT", help="The ledger; most commands take --root, too.")
def application(root: str | None) -> None:
    """SQS visibility timeouts on Delta tables: queues, messages, receipts, from the command line."""


for command in (
    queues.queues,
    send.send,
    messages.receive,
    messages.peek,
    messages.extend,
    messages.release,
    messages.delete,
    consume.consume,
    messages.redrive,
    messages.restore,
    look.history,
    look.explain,
    look.sql,
    look.top,
    operate.repair,
    operate.upkeep,
    transfer.copy,
    transfer.export,
    transfer.import_,
    operate.backup,
    operate.restore_backup,
    operate.destroy,
    operate.share,
    doctor.doctor,
    submit.submit,
    serve.serve,
):
    application.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Run a command line, and return the exit code. `ledger submit` replaces the process."""
    _configure_log()
    if sys.stdout is None:
        click.echo("ledger: stdout is closed: nothing was done", err=True)
        return FAILED
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        result: Any = application.main(list(arguments), prog_name="ledger", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nledger: interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # The reader of stdout has closed the pipe, as `head` does.
        _discard_output()
        return FAILED
    except (OSError, MemoryError) as error:
        # For example, the disk behind stdout is full. The command's commit stays.
        click.echo(f"ledger: {error or type(error).__name__}", err=True)
        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
        return FAILED
    except LedgerError as error:
        click.echo(f"ledger: {error_text(error)}", err=True)
        return USAGE if isinstance(error, USAGE_ERRORS) else FAILED


def _discard_output() -> None:
    """Discard what stdout still buffers: otherwise Python would exit with code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _configure_log() -> None:
    level = os.environ.get("LEDGER_LOG")
    if level:
        import logging

        # An unknown name of a level counts as INFO.
        number = logging.getLevelName(level.upper())
        logging.basicConfig(
            level=number if isinstance(number, int) else logging.INFO, format="%(levelname)s %(name)s: %(message)s"
        )
