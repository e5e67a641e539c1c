"""Sends every row of a table or of files as a message, in one commit: `jobs/send.py ROOT QUEUE INPUT`."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobs import common

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("delta", "parquet", "json", "csv", "table")
#: Finds in the text of Spark's errors the line with a wrong format, or the value of a wrong type.
WRONG_LINE = re.compile(r"\[(?:MALFORMED_(?:CSV_)?RECORD|CAST_INVALID_INPUT)[^\]]*\] ([^\n]*?)(?:\. Correct|\n|$)")


def parser() -> argparse.ArgumentParser:
    arguments = common.arguments(
        "Send every row of a table or of files as a message, all in one commit.", owner=True, json=True
    )
    arguments.add_argument("queue", help="The queue; jobs/create_queue.py makes one.")
    arguments.add_argument(
        "input", help="The path, URI or pattern of the files, or the name of a table in Spark's catalog."
    )
    arguments.add_argument(
        "--format",
        choices=FORMATS,
        help="The format of INPUT (default: by its ending). json has a row a line. csv has a header and commas, and "
        "all of its values are text. If a line cannot be read, nothing is sent.",
    )
    arguments.add_argument(
        "--body", metavar="COLUMN", help="The column of bodies (default: `body`, else the whole row as JSON)."
    )
    arguments.add_argument(
        "--attempt-id",
        metavar="ID",
        help="A second call with the same ID and rows sends nothing twice; the same ID with other rows is an error. "
        f"{common.ATTEMPT_ID}",
    )
    return arguments


def main(options: argparse.Namespace) -> None:
    started = time.monotonic()
    ledger = common.open_ledger(options, spark=True)
    queue = ledger.queue(options.queue)
    from pyspark.sql import SparkSession

    from ledger.rules.attempts import shorten_id

    rows = read(SparkSession.active(), options.input, options.format, options.body)
    attempt_id = shorten_id(options.attempt_id) if options.attempt_id else None
    with wrong_lines_named(options.input):
        sent = queue.send(rows, body=options.body, attempt_id=attempt_id)
    seconds = time.monotonic() - started
    document = {"queue": queue.name, "sent": sent.count, "seconds": round(seconds, 3)}
    common.report(options, document, f"sent {sent.count:,} messages to {queue.name} in {seconds:.1f} s")


def read(spark: SparkSession, source: str, kind: str | None, body: str | None = None) -> DataFrame:
    """Return the rows of a table or of files. Raise InvalidParameterValue if the input cannot be read as this format.

    A line of CSV that cannot be read raises only when Spark computes the rows.
    """
    from pyspark.errors import AnalysisException

    from ledger.errors import InvalidParameterValue
    from ledger.rules.location import name_for_spark

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
        if kind == "csv":
            return read_csv(spark, source, body)
        with wrong_lines_named(source):
            return spark.read.option("mode", "FAILFAST").format(kind).load(name_for_spark(source))
    except AnalysisException as error:
        raise InvalidParameterValue(
            "input", source, f"It cannot be read as {kind}: {str(error).splitlines()[0]}"
        ) from None


def read_csv(spark: SparkSession, source: str, body: str | None) -> DataFrame:
    """Return the rows of CSV files, as `ledger send` reads them.

    All values are text, and an empty value is an empty text. If the body has a column, columns with a meaning have the
    same meaning as in a table. Raise InvalidParameterValue for a header that shows another format, and for a quotation
    that does not end in its line.
    """
    from pyspark.sql import functions as F

    from ledger.errors import InvalidParameterValue
    from ledger.rules.location import name_for_spark
    from ledger.rules.message import GIVEN, explain_wrong_header

    place = name_for_spark(source)
    rows = spark.read.options(header="true", mode="FAILFAST", escape='"').csv(place)
    wrong = explain_wrong_header(rows.columns, body)
    if wrong is not None:
        raise InvalidParameterValue("input", source, wrong)
    # Spark would end an open quotation at the end of the line, without an error.
    lines = spark.read.text(place)
    open_ones = lines.where((F.length("value") - F.length(F.replace("value", F.lit('"')))) % 2 == 1).head(1)
    if open_ones:
        raise unreadable(source, f"A quotation does not end in its line: {open_ones[0].value[:200]}")
    special_columns = (
        {field.name for field in GIVEN if field.name != "body"} if (body or "body") in rows.columns else set()
    )
    rows = rows.fillna("", [name for name in rows.columns if name not in special_columns])
    if "delay_seconds" in special_columns.intersection(rows.columns):
        rows = rows.withColumn("delay_seconds", F.col("delay_seconds").cast("int"))
    return rows


@contextlib.contextmanager
def wrong_lines_named(source: str) -> Iterator[None]:
    """Turn Spark's error about a line that cannot be read into an InvalidParameterValue that shows the line."""
    try:
        yield
    except Exception as error:
        wrong = WRONG_LINE.search(str(error))
        if wrong is None:
            raise
        raise unreadable(source, wrong[1]) from None


def unreadable(source: str, why: str) -> Exception:
    """Return the error for files with a line that cannot be read."""
    from ledger.errors import InvalidParameterValue

    return InvalidParameterValue("input", source, f"A line of it cannot be read, and nothing was sent: {why}")


if __name__ == "__main__":
    sys.exit(common.run(parser(), main))
