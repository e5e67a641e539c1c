"""`ledger submit`."""

from __future__ import annotations

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a script under spark-submit on this machine.",
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def submit(script: str, arguments: tuple[str, ...]) -> int:
    """Run SCRIPT under spark-submit on this machine, set up for a ledger: a file, or one of the jobs by its name: work,
    send, create_queue, show, upkeep. Returns the script's exit code.

    \b
    Example:
      ledger submit show ledger-data --in-flight
    """
    import os
    import sys

    from ledger.runtime.cache import RuntimeSetupError
    from ledger.runtime.session import submit_command, submit_environment
    from ledger.runtime.shipped import job

    try:
        command, environment = submit_command(job(script), *arguments), submit_environment()
    except (RuntimeSetupError, ImportError) as error:
        raise click.ClickException(str(error)) from None
    sys.stdout.flush()
    # In its place, so that whoever ends this process ends that one.
    os.execvpe(command[0], command, environment)
