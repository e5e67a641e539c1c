"""Code that the jobs share: their environment, arguments, ledger, errors and exit codes."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.ledger import Ledger

CHECKOUT = Path(__file__).resolve().parents[1]
#: For the help of jobs that take an attempt id. Its recipe repeats ledger.rules.attempts.RECIPE.
ATTEMPT_ID = (
    "Give every task an ID of its own, in Airflow {{ dag.dag_id }}.{{ run_id }}.{{ task.task_id }}.{{ ti.map_index }}. "
    "An ID of more than 128 characters is shortened by its SHA-256."
)
NEEDED = ("pyspark", "delta", "deltalake")


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """A formatter that keeps the lines of an epilog, and shows defaults.

    A default is not shown if it is empty, or if the help names it.
    """

    def _get_help_string(self, action: argparse.Action) -> str | None:
        is_left_out = "default" in (action.help or "") or not action.default
        return action.help if is_left_out else super()._get_help_string(action)


def arguments(
    description: str, *, owner: bool = False, epilog: str | None = None, json: bool = False
) -> argparse.ArgumentParser:
    """Return a parser with the arguments of every job: the ledger's root, and how to open the ledger.

    With `json` the parser has the option --json. With `owner` it has the option --owner.
    """
    parser = argparse.ArgumentParser(description=textwrap.fill(description, 100), epilog=epilog, formatter_class=_Help)
    parser.add_argument(
        "root",
        help="The ledger: a path, a URI such as s3://bucket/ledger, or schema:NAME for a schema of Spark's catalog.",
    )
    engines = ("auto", "spark", "delta-rs")
    parser.add_argument("--engine", choices=engines, help="The engine that commits (default: from the settings).")
    merges = ("auto", "statement")
    parser.add_argument("--merge", choices=merges, help="How verbs commit (default: from the settings).")
    parser.add_argument(
        "--settings",
        metavar="FILE",
        default=os.environ.get("LEDGER_SETTINGS"),
        help="A TOML file of settings, like conf/ledger.toml (default: the environment variable LEDGER_SETTINGS).",
    )
    if json:
        parser.add_argument("--json", action="store_true", help="For programs: print JSON, a document a line.")
    if owner:
        parser.add_argument(
            "--owner", help="The name of this process in the receipts ledger (default: user, machine and process)."
        )
    return parser


def run(parser: argparse.ArgumentParser, job: Callable[[argparse.Namespace], int | None]) -> int:
    """Run a job, and return its exit code.

    The exit code is the number that the job returns, or 0. It is 1 for an error of the ledger, 2 for wrong arguments,
    130 for Ctrl-C, and 143 for SIGTERM.
    """
    options = parser.parse_args()
    prepare()
    from ledger import errors

    signal.signal(signal.SIGTERM, _terminate)
    # py4j also logs the traceback of each error that it raises.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        return job(options) or 0
    except (
        errors.InvalidAttributeName,
        errors.InvalidMessageContents,
        errors.InvalidParameterValue,
        errors.MissingParameter,
    ) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except (errors.LedgerError, FileNotFoundError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from ledger.runtime.termination import describe_end, has_jvm_ended, is_termination

        if not is_termination(error) and not has_jvm_ended(error):
            raise
        # The worker has given its claims back, or has printed that it could not.
        print(f"{parser.prog}: {describe_end(error)}", file=sys.stderr)
        return 128 + signal.SIGTERM if is_termination(error) else 1


def prepare() -> None:
    """Continue in an environment that has the ledger's packages: this one, spark-submit's, or a new `.venv`."""
    if os.environ.get("PYSPARK_GATEWAY_PORT") or all(map(importlib.util.find_spec, NEEDED)):
        return
    from ledger.runtime.bootstrap import ensure_environment

    ensure_environment(["spark", "jvm"])


def open_ledger(options: argparse.Namespace, *, spark: bool = False, make: bool = False) -> Ledger:
    """Open the ledger that the arguments name. Start Spark if `spark` says so, or if the root or the engine needs it.

    Without `make`, a root without a ledger is an error: a mistyped root must not become a new ledger.
    """
    from ledger.errors import LedgerDoesNotExist, LedgerError, SparkIsNeeded
    from ledger.ledger import Ledger
    from ledger.rules.location import SCHEMA_PREFIX
    from ledger.settings import Settings

    settings = Settings.read(options.settings) if options.settings else Settings()
    root = options.root
    session = None
    if spark or options.engine == "spark" or root.startswith(SCHEMA_PREFIX):
        from ledger.runtime.session import spark_session
        from ledger.runtime.storage import is_s3

        session = spark_session(f"ledger {Path(sys.argv[0]).stem}", s3=is_s3(root))
    owner = getattr(options, "owner", None)
    try:
        return Ledger.open(
            root, session, options.engine, create=make, settings=settings, merge=options.merge, owner=owner
        )
    except LedgerDoesNotExist as error:
        raise LedgerError(
            f"There is no ledger at {root}: {error.found}. Is it mistyped? jobs/create_queue.py {root} QUEUE makes one"
        ) from error
    except SparkIsNeeded as error:
        raise LedgerError(f"Only Spark can commit to {root}: add --engine spark") from error


def pairs(arguments: list[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE arguments as a dictionary. Raise InvalidParameterValue for an argument without `=`."""
    from ledger.errors import InvalidParameterValue

    for text in arguments:
        if "=" not in text:
            raise InvalidParameterValue(option, text, "Must be NAME=VALUE")
    return dict(text.split("=", 1) for text in arguments)


def report(options: argparse.Namespace, document: Mapping[str, object], text: str) -> None:
    """Print what a job did: with --json as a document, else as text."""
    from ledger.cli.printing import print_json

    if options.json:
        print_json(document)
    else:
        print(text)


def table(rows: list[dict[str, object]]) -> str:
    """Return rows as text in aligned columns, numbers to the right, thousands separated."""
    from ledger.cli.printing import format_table

    return format_table(rows, _cell)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def _terminate(number: int, frame: object) -> None:
    """End the job on SIGTERM by an exception, so that the job releases the messages that it holds."""
    raise SystemExit(128 + number)
