"""The command `ledger submit`: a script under spark-submit."""

from __future__ import annotations

import click

#: Jobs whose first arguments are ROOT and QUEUE, and which make neither.
JOBS_ON_QUEUES = ("work", "send")


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a script under spark-submit on this machine.",
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def submit(script: str, arguments: tuple[str, ...]) -> int:
    """Run SCRIPT under spark-submit on this machine, with the settings that a ledger needs. SCRIPT is a file, or the
    name of a job: work, send, create_queue, show, upkeep, serve, or a demonstration (flights, embed). The exit code is
    that of the script.

    Each of these jobs, except the demonstrations, has the option --json. Options of a job come after SCRIPT.

    \b
    Example:
      ledger submit show ledger-data --in-flight
    """
    import os
    import sys

    from ledger.runtime.cache import RuntimeSetupError
    from ledger.runtime.session import submit_command, submit_environment
    from ledger.runtime.shipped import find_script, find_shipped_folder

    try:
        try:
            script_path = find_script(script)
        except RuntimeSetupError as error:
            raise click.UsageError(str(error)) from None
        if script_path.resolve().parent == find_shipped_folder("jobs").resolve() and script_path.stem in JOBS_ON_QUEUES:
            _require_queue(arguments)
        command, environment = submit_command(script_path, *arguments), submit_environment()
    except (RuntimeSetupError, ImportError) as error:
        raise click.ClickException(str(error)) from None
    sys.stdout.flush()
    # The script takes the place of this process, and so gets its signals.
    os.execvpe(command[0], command, environment)


def _require_queue(arguments: tuple[str, ...]) -> None:
    """Raise LedgerDoesNotExist or QueueDoesNotExist before a JVM starts.

    Leave a URI to the job: only Spark's configuration may have the keys of its storage.
    """
    from ledger.errors import LedgerDoesNotExist, LedgerError, QueueDoesNotExist
    from ledger.ledger import Ledger

    root, name = (*arguments[:2], "", "")[:2]
    if not root or not name or root.startswith("-") or name.startswith("-") or ":" in root:
        return
    try:
        Ledger.open(root, create=False, read_only=True).queue(name)
    except (LedgerDoesNotExist, QueueDoesNotExist):
        raise
    except (LedgerError, OSError):
        return
