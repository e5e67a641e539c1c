"""The command `ledger serve`, which needs the extra `endpoint`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ledger.cli.opening import as_json, open_ledger, require_root, with_root
from ledger.cli.printing import print_json
from ledger.errors import LedgerDoesNotExist

if TYPE_CHECKING:
    from ledger.ledger import Ledger


@contextmanager
def naming_extra(extra: str) -> Iterator[None]:
    """Raise click.ClickException, which names the extra, if an import fails for a package that is not the ledger's."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "ledger":
            raise
        raise click.ClickException(
            f"this needs {error.name}: install the extra `{extra}`, pip install '/path/to/clone[{extra}]'"
        ) from None


@click.command(short_help="Serve a ledger over HTTP, as SQS.")
@click.argument("place", metavar="[ROOT]", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=9324, show_default=True, help="The port to listen on; 0 takes a free one and prints it."
)
@click.option(
    "--keys", metavar="FILE", help="A TOML file of the keys that requests are signed with; SIGHUP reads it again."
)
@click.option("--without-signatures", is_flag=True, help="Take every request, but only from this machine.")
@click.option("--certificate", metavar="FILE", help="Serve with TLS: the certificate, in PEM.")
@click.option("--certificate-key", metavar="FILE", help="Its key, in PEM.")
@click.option(
    "--receipts",
    type=click.Choice(["fenced", "recorded"]),
    default="fenced",
    show_default=True,
    help="How newly created queues treat late and replaced receipts: as the documentation of SQS says, or as "
    "recorded answers of SQS show.",
)
@click.option(
    "--url", help="The beginning of queue URLs, if clients reach the endpoint by another address, such as a proxy."
)
@click.option("--threads", default=36, show_default=True, help="Threads that work on the tables.")
@click.option("--open-metrics", is_flag=True, help="Let other machines read /metrics, too.")
@click.option(
    "--access-log", metavar="FILE", help="Append a line of JSON for each request, without its body; - is stdout."
)
@click.option(
    "--upkeep-every",
    default="5m",
    show_default=True,
    metavar="PERIOD",
    help="Check once in each PERIOD whether upkeep is due, and run it in a thread; 0 leaves upkeep to others.",
)
@click.option("--create", is_flag=True, help="Make the ledger if there is none.")
@as_json
@with_root
def serve(
    place: str | None, root: str | None, settings: str | None, create: bool, json: bool, **options: object
) -> None:
    """Serve the ledger ROOT over HTTP, in both protocols of SQS, until SIGTERM or Ctrl-C. Clients of SQS only change
    their endpoint URL and their keys.

    Unless --without-signatures is given, requests must be signed with a key. The file --keys has a table [ID] with
    secret = "..." for each key. If there is no --keys, the key is in LEDGER_ACCESS_KEY_ID and LEDGER_SECRET_ACCESS_KEY.
    With --json, the command prints {"url": ..., "root": ..., "pid": ...} as the first line on stdout as soon as the
    endpoint serves.

    \b
    Example:
      ledger serve ledger-data --keys keys.toml
      ledger serve ledger-data --create --without-signatures
    """
    with naming_extra("endpoint"):
        from ledger.endpoint.command import Options, run
    option_values: dict[str, object] = options

    def opened() -> Ledger:
        try:
            return open_ledger(root, settings, create=create)
        except LedgerDoesNotExist as error:
            raise error if error.fix else error.advised("--create makes one here") from None

    run(
        opened,
        Options(**option_values),  # type: ignore[arg-type]
        lambda line: click.echo(f"ledger: {line}", err=True),
        (lambda url: print_json({"url": url, "root": require_root(root), "pid": os.getpid()})) if json else None,
    )
