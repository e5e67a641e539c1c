"""A worker: claims messages, runs your function on them as a DataFrame, writes the results, acknowledges.

    spark-submit --properties-file conf/spark-local.conf jobs/work.py ROOT QUEUE \
        --function my_module:my_function --output PATH

The function of --function gets a DataFrame of messages (message_id, body, message_attributes, message_group_id,
message_deduplication_id, aws_trace_header, sequence_number, sent_at, sender_id, first_received_at, receive_count,
receipt_handle). It returns either
- a DataFrame of rows to write, each with its `message_id`: then the whole claim is acknowledged, also messages without
  a row, or
- the same with --reason COLUMN: if the column has a value, the message failed, and the row is not written, or
- two DataFrames, (done, failed): the job reads `failed` (message_id, reason) only if messages without a row remain.
In the last two cases the job acknowledges messages with rows to write. Every other message has failed: the job releases
it at once, and the table --failed gets a row with the reason. The queue's RedrivePolicy says after how many receives a
failed message is a dead letter. In a queue without this policy the message is parked after 3 receives: it is hidden for
--park seconds. With --max-receives N it is parked after N receives in any case. For jobs of your own, Queue.work has
the same loop.

If the function raises, or Spark raises while it computes the rows, the job tries the claim again in halves. Messages
that raise alone fail as above, each with its own exception as the reason. All others are done. A function that
aggregates over its claim then sees parts of the claim. If everything raises alike (a missing module, no connection),
the job gives the claim back and ends with the error. The receive does not count.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs import common


def parser() -> argparse.ArgumentParser:
    contract = __doc__[__doc__.index("The function of") :]
    arguments = common.arguments(__doc__.split("\n")[0], owner=True, epilog=contract, json=True)
    arguments.add_argument("queue", help="The queue; jobs/create_queue.py makes one.")
    arguments.add_argument(
        "--function", required=True, metavar="MODULE:NAME", help="The function to call with each claim; see below."
    )
    arguments.add_argument(
        "--output",
        required=True,
        metavar="TABLE",
        help="The Delta table of the rows: a path with a /, a URI, or a name in Spark's catalog.",
    )
    arguments.add_argument(
        "--failed",
        metavar="TABLE",
        help="The Delta table with a row for each failed receive and its reason (default: OUTPUT_failed).",
    )
    arguments.add_argument(
        "--reason",
        metavar="COLUMN",
        help="The column of the function's rows that says why a message failed; every value but null is a reason.",
    )
    arguments.add_argument(
        "--schema",
        choices=["widen"],
        help="Add columns, and widen types, where rows need it (default: rows that do not fit are refused).",
    )
    arguments.add_argument(
        "--claim", type=int, metavar="N", help="Most messages of one claim (default: all that are visible)."
    )
    arguments.add_argument(
        "--visibility-timeout",
        type=int,
        metavar="S",
        help="Seconds a claim is held (default: the queue's). A heartbeat extends it in time.",
    )
    arguments.add_argument(
        "--max-receives",
        type=int,
        metavar="N",
        help="Park a message that failed, once it was received N times (default: the queue's RedrivePolicy makes it a "
        "dead letter; without a policy 3).",
    )
    arguments.add_argument("--park", type=int, default=3_600, metavar="S", help="Hide a parked message for S seconds.")
    arguments.add_argument(
        "--attempt-id",
        metavar="ID",
        help=f"A retry with the same ID first gets back what the failed run holds. {common.ATTEMPT_ID}",
    )
    until = arguments.add_mutually_exclusive_group()
    until.add_argument(
        "--until-empty",
        action="store_true",
        help="End when no message is visible, delayed or locked, and no claim expires within the visibility timeout "
        "(the default).",
    )
    until.add_argument("--once", action="store_true", help="End after one claim, or at once if no message is visible.")
    until.add_argument("--forever", action="store_true", help="Wait for messages until SIGTERM or Ctrl-C.")
    return arguments


def main(options: argparse.Namespace) -> None:
    from ledger import errors

    # Report mistakes that need no Spark before Spark starts.
    try:
        function = load(options.function)
    except errors.LedgerError:
        raise
    except Exception:
        # The module may need a session: @pandas_udf("double") at its top level asks the session for the type.
        function = None
    for option, table in (("--output", options.output), ("--failed", options.failed)):
        require_table(option, table)
    ledger, name = common.open_ledger(options, spark=True), options.owner or f"worker {os.getpid()}"
    for option, table in (("--output", options.output), ("--failed", options.failed)):
        require_persistent_table(option, table)

    if function is None:
        function = load(options.function)

    def say(what: str) -> None:
        # With --json, programs read one document from stdout, at the end.
        print(f"{datetime.now():%H:%M:%S} {name} {what}", file=sys.stderr if options.json else sys.stdout, flush=True)

    worked = ledger.queue(options.queue).work(
        function,
        options.output,
        failures=options.failed or options.output.rstrip("/") + "_failed",
        reason=options.reason,
        max_messages=options.claim,
        visibility_timeout=options.visibility_timeout,
        attempt_id=options.attempt_id,
        until="once" if options.once else "forever" if options.forever else "empty",
        maximum_receives=options.max_receives,
        park=options.park,
        stamped=True,
        schema=options.schema,
        report=say,
    )
    failed = f", {worked.failed:,} failed receives" if worked.failed else ""
    lost = f", {worked.lost:,} messages lost to others" if worked.lost else ""
    say(f"ends after {worked.claims:,} claims: {worked.messages:,} messages done{failed}{lost}")
    if options.json:
        from ledger.cli.printing import print_json

        print_json(dataclasses.asdict(worked))


def load(name: str) -> Callable[[Any], Any]:
    """Return the function MODULE:NAME. Raise InvalidParameterValue if it cannot be loaded, or called with one argument.

    Python looks for the module on its path, in the checkout and in the current folder.
    """
    from ledger.errors import InvalidParameterValue

    module, _, attribute = name.partition(":")
    sys.path.append(str(Path.cwd()))
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidParameterValue("--function", name, f"It cannot be loaded as MODULE:NAME ({error})") from error
    if not callable(function):
        raise InvalidParameterValue("--function", name, "It is not a function")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        bound = f"It does not take one argument, the DataFrame of messages ({error})"
        raise InvalidParameterValue("--function", name, bound) from None
    except ValueError:
        pass  # Some built-in functions do not show their parameters.
    return function


def require_table(option: str, table: str | None) -> None:
    """Raise InvalidParameterValue for an impossible table, as far as this can be found without Spark."""
    from ledger.errors import InvalidParameterValue, SparkIsNeeded
    from ledger.outputs.targets import place_of

    try:
        if table is not None:
            place_of(table, None)
    except SparkIsNeeded:
        pass  # The table is a name in Spark's catalog.
    except InvalidParameterValue as error:
        raise InvalidParameterValue(option, table, error.bound, error.fix) from None


def require_persistent_table(option: str, table: str | None) -> None:
    """Raise InvalidParameterValue for a table that would be lost when this job ends, with the results in it."""
    from pyspark.sql import SparkSession

    from ledger.delta_log.spark_sessions import FIX, is_in_memory_only
    from ledger.errors import InvalidParameterValue
    from ledger.rules.location import is_name

    spark = SparkSession.active()
    if table is None or "/" in table or not is_name(table) or spark.catalog.tableExists(table):
        return
    if is_in_memory_only(spark, table.rpartition(".")[0] or "default"):
        bound = "It is a table of Spark's catalog, which is in this job's memory: nobody would find it afterwards"
        raise InvalidParameterValue(option, table, bound, f"A folder here is ./{table}; else {FIX}.")


if __name__ == "__main__":
    sys.exit(common.run(parser(), main))
