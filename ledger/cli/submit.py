"""`ledger submit`."""

from __future__ import annotations

import click

#: Jobs whose first arguments are ROOT QUEUE, and that make neither.
ON_QUEUES = ("work", "send")


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a script under spark-submit on this machine.",
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def submit(script: str, arguments: tuple[str, ...]) -> int:
    """Run SCRIPT under spark-submit on this machine, set up for a ledger: a file, or one of the jobs by its name: work,
    send, create_queue, show, upkeep, serve, and flights, the demonstration. Returns the script's exit code.

    The jobs print what they find and do. All but flights take --json among their own options, behind SCRIPT.

    \b
    Example:
      ledger submit show ledger-data --in-flight
    """
    import os
    import sys

    from ledger.runtime.cache import RuntimeSetupError
    from ledger.runtime.session import submit_command, submit_environment
    from ledger.runtime.shipped import job, shipped

    try:
        try:
            found = job(script)
        except RuntimeSetupError as error:
            raise click.UsageError(str(error)) from None
        if found.resolve().parent == shipped("jobs").resolve() and found.stem in ON_QUEUES:
            _require_queue(arguments)
        command, environment = submit_command(found, *arguments), submit_environment()
    except (RuntimeSetupError, ImportError) as error:
        raise click.ClickException(str(error)) from None
    sys.stdout.flush()
    # In its place, so that whoever ends this process ends that one.
    os.execvpe(command[0], command, environment)


def _require_queue(arguments: tuple[str, ...]) -> None:
    """Raises what opening a queue does where there is none, before a JVM is started to say so. What only the job can
    tell is left to it: options before ROOT, and roots that are not on this machine, whose keys may be Spark's."""
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
