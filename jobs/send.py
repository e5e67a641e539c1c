"""Sends every row of a table or of files as a message, in one commit: `jobs/send.py ROOT QUEUE INPUT`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs import common

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("delta", "parquet", "json", "csv", "table")


def parser() -> argparse.ArgumentParser:
    arguments = common.arguments("Send every row of a table or of files as a message, all in one commit.", owner=True)
    arguments.add_argument("queue", help="the queue; jobs/create_queue.py makes one")
    arguments.add_argument("input", help="path, URI or pattern of the files, or the name of a table of the catalog")
    arguments.add_argument(
        "--format",
        choices=FORMATS,
        help="what the input is (default: by its ending; json has a row a line, csv a header)",
    )
    arguments.add_argument(
        "--body", metavar="COLUMN", help="the column of bodies (default: `body`, else the whole row as JSON)"
    )
    arguments.add_argument(
        "--attempt-id",
        metavar="ID",
        help="makes a retry safe: what was sent under this id is not sent again, and anything else under it is an "
        f"error. {common.ATTEMPT_ID}",
    )
    return arguments


def main(options: argparse.Namespace) -> None:
    started = time.monotonic()
    ledger = common.open_ledger(options, spark=True)
    queue = ledger.queue(options.queue)
    from pyspark.sql import SparkSession

    from ledger.rules.attempts import shortened

    rows = read(SparkSession.active(), options.input, options.format)
    attempt_id = shortened(options.attempt_id) if options.attempt_id else None
    sent = queue.send(rows, body=options.body, attempt_id=attempt_id)
    print(f"sent {sent.count:,} messages to {queue.name} in {time.monotonic() - started:.1f} s")


def read(spark: SparkSession, source: str, kind: str | None) -> DataFrame:
    """The rows of a table or of files; raises InvalidParameterValue when there is nothing of this kind."""
    from pyspark.errors import AnalysisException

    from ledger.errors import InvalidParameterValue
    from ledger.rules.storage import for_spark

    if kind is None:
        ending = source.rstrip("/*").removesuffix(".gz").rpartition(".")[2]
        is_delta = Path(source, "_delta_log").is_dir()
        kind = "delta" if is_delta else ending if ending in FORMATS else None
        if kind is None:
            raise InvalidParameterValue(
                "input", source, "Its ending does not say what it is", f"Add --format {'|'.join(FORMATS)}."
            )
    try:
        if kind == "table":
            return spark.table(source)
        reader = spark.read.option("header", "true").option("inferSchema", "true") if kind == "csv" else spark.read
        return reader.format(kind).load(for_spark(source))
    except AnalysisException as error:
        raise InvalidParameterValue(
            "input", source, f"It cannot be read as {kind}: {str(error).splitlines()[0]}"
        ) from None


if __name__ == "__main__":
    sys.exit(common.run(parser(), main))
