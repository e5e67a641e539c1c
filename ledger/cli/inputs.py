"""The inputs of `ledger send`: text, JSON, CSV, Parquet, Delta tables.

A row becomes an entry: a message to send, with SQS's field names. The columns in SQS_FIELDS set fields. The body is the
value of the column `body`, or of the column that --body names.

If no row has a column `body`, the body is the whole row as JSON. Then only the columns in WITH_WHOLE_ROWS set fields,
and only on a FIFO queue.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, NamedTuple

import click

from ledger.cli.opening import WrongInput
from ledger.errors import LedgerError
from ledger.rules.attributes import is_fifo
from ledger.rules.limits import LARGEST_MESSAGE_BYTES
from ledger.rules.message import (
    GIVEN,
    WITH_WHOLE_ROWS,
    explain_wrong_header,
    list_mistaken_columns,
    list_unsent_columns,
    require_columns,
)
from ledger.rules.message_attributes import attributes_of_json
from ledger.rules.text import JSON, parse_json

FORMATS_BY_ENDING = {
    "txt": "text",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
    "parquet": "parquet",
}
#: The CSV reader's own default is shorter.
LONGEST_FIELD_CHARACTERS = LARGEST_MESSAGE_BYTES
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
#: SQS's field name of each column, except for the body.
SQS_FIELDS = {field.name: field.sqs for field in GIVEN if field.sqs is not None and field.name != "body"}


class Row(NamedTuple):
    """A row of an input. In rows of a table, `columns` has the body, and `text`, the whole row, is empty.

    `line` is the line that the row begins in; for a table the number of the row, from 1.
    """

    line: int
    columns: Mapping[str, Any]
    text: str


class Malformed(NamedTuple):
    """A line, or a row of a table, that cannot be read, and the reason."""

    line: int
    why: str


def format_of(source: str, given: str | None) -> str:
    if given is not None:
        return given
    if source == "-":
        return "text"
    if Path(source, "_delta_log").is_dir() or source.rstrip("/").endswith(".delta"):
        return "delta"
    ending = source.rstrip("/").removesuffix(".gz").rpartition(".")[2].lower()
    if ending == "tsv":
        raise click.UsageError(
            f"By its ending {source} has tabs between its columns, and send reads commas: write it as CSV. "
            "--format text sends each line as a body."
        )
    if ending not in FORMATS_BY_ENDING:
        raise click.UsageError(
            f"The ending of {source} does not say what it is: add --format text, json, csv, parquet or delta."
        )
    return FORMATS_BY_ENDING[ending]


class InputContent(NamedTuple):
    """The entries of an input with their lines, and the lines that cannot be read.

    `bodies` is a remark for the user about the whole input.
    """

    entries: list[dict[str, Any]]
    lines: list[int]
    malformed: list[Malformed]
    bodies: str | None = None


def read_input(
    source: str, kind: str, body: str | None, attributes: Mapping[str, str], on_row: Callable[[int], None]
) -> InputContent:
    """Read a whole input for a queue with these `attributes`. After each row, call `on_row` with the number of rows.

    Raise click.ClickException if the input cannot be read, and InvalidParameterValue for wrong columns.
    """
    rows, malformed, names = list[Row](), list[Malformed](), dict[str, None]()
    is_table = kind in ("parquet", "delta")
    for item in _read_table(source, kind, body, attributes, names) if is_table else _read_lines(source, kind, body):
        if isinstance(item, Malformed):
            malformed.append(item)
        else:
            rows.append(item)
            on_row(len(rows))
            if not is_table:
                names.update(dict.fromkeys(item.columns))
    column, fifo = None if is_table else body, is_fifo(attributes)
    entries = list(_make_entries(rows, column, fifo=fifo))
    bodies = _describe_bodies(list(names), body, fifo=fifo) if rows else _describe_empty_input(kind, malformed)
    return InputContent(entries, [row.line for row in rows], malformed, bodies)


def _describe_bodies(names: Sequence[str], body: str | None, *, fifo: bool) -> str | None:
    """Return a remark that rows are sent whole, or which columns are left out."""
    if (body or "body") not in names:
        also = [name for name in WITH_WHOLE_ROWS if fifo and name in names]
        counts = f"; fields are set by {' and '.join(also)}" if also else ""
        near = list_mistaken_columns(names, body, fifo=fifo)
        counts += f"; {', '.join(near)}" if near else ""
        return (
            f"there is no column body: each row is sent whole, as JSON{counts}. --body COLUMN sends that column alone"
        )
    left_out_names = list_unsent_columns(names, body)
    return f"sent is the column {body or 'body'}; left out: {', '.join(left_out_names)}" if left_out_names else None


def _describe_empty_input(kind: str, malformed: Sequence[Malformed]) -> str | None:
    return None if malformed else f"there is no row in it, read as {kind}"


def _make_entries(rows: Sequence[Row], body: str | None, *, fifo: bool) -> Iterator[dict[str, Any]]:
    """Yield an entry for each row. A row without the column of bodies gets an empty body, which the queue refuses."""
    name = body or "body"
    whole = not any(name in row.columns for row in rows)
    if whole and body is not None and rows:
        raise WrongInput(f"No row has a column {body!r}. Nothing was sent.")
    # `arrow_rows.read_rows` has the same rule for tables.
    counted = {column: sqs for column, sqs in SQS_FIELDS.items() if not whole or (fifo and column in WITH_WHOLE_ROWS)}
    for row in rows:
        text = row.text if whole else row.columns.get(name)
        fields = {sqs: row.columns[column] for column, sqs in counted.items() if row.columns.get(column) is not None}
        yield {"MessageBody": "" if text is None else text, **fields}


def _read_lines(source: str, kind: str, body: str | None) -> Iterator[Row | Malformed]:
    reader = {"text": _read_text, "json": _read_json, "csv": _read_csv}[kind]
    try:
        with _open_text(source, newline="" if kind == "csv" else "\n") as file:
            yield from reader(file, body)
    except (OSError, EOFError, zlib.error) as error:
        raise WrongInput(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def _open_text(source: str, newline: str) -> IO[str]:
    """Open a file or stdin as text. Bytes that are not UTF-8 become surrogates, so that errors can name lines."""
    binary: Any = sys.stdin.buffer
    if source != "-":
        binary = gzip.GzipFile(source) if source.endswith(".gz") else io.FileIO(source)
    return io.TextIOWrapper(io.BufferedReader(binary), encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _read_text(file: Iterable[str], body: str | None) -> Iterator[Row | Malformed]:
    if body is not None:
        raise click.UsageError("--body names a column, and lines of text have none.")
    for number, line in enumerate(file, 1):
        text = line.removesuffix("\n").removesuffix("\r")
        if _NOT_UTF8.search(text):
            yield Malformed(number, "is not UTF-8")
        elif text:
            yield Row(number, {"body": text}, text)


def _read_json(file: Iterable[str], body: str | None) -> Iterator[Row | Malformed]:
    """Yield the rows of JSON lines, or the elements of one array.

    The input is one array if its first line begins with `[`, and that line is the only one or is not JSON by itself.
    """
    lines: Iterator[tuple[int, str]] = filter(itemgetter(1), enumerate(map(str.strip, file), 1))
    for number, text in lines:
        if text.startswith("["):
            more_lines = list(lines)
            if not more_lines or isinstance(_parse_json(text), ValueError):
                yield from _read_json_array([(number, text), *more_lines], body)
                return
            lines = iter(more_lines)
        yield _parse_json_row(number, text, _parse_json(text), body)
        break
    for number, text in lines:
        yield _parse_json_row(number, text, _parse_json(text), body)


def _read_json_array(lines: Sequence[tuple[int, str]], body: str | None) -> Iterator[Row | Malformed]:
    """Yield the elements of an array as rows. A syntax error is the last item."""
    text, starts = "\n".join(line for _, line in lines), [0]
    for _, line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def line_of(place: int) -> int:
        return lines[min(bisect_right(starts, place), len(lines)) - 1][0]

    def broken(place: int, why: object) -> Malformed:
        return Malformed(line_of(place), f"is not JSON: {why}. The rest of the array is not read")

    place, element = _skip_space(text, 1), 0
    while text[place : place + 1] != "]":
        try:
            value, end = JSON.raw_decode(text, place)
        except json.JSONDecodeError as error:
            yield broken(error.pos, f"{error.msg}: column {error.colno}")
            return
        except (ValueError, RecursionError) as error:
            yield broken(place, error)
            return
        row, element = _parse_json_row(line_of(place), text[place:end], value, body), element + 1
        yield Malformed(row.line, f"(element {element} of the array) {row.why}") if isinstance(row, Malformed) else row
        place = _skip_space(text, end)
        if text[place : place + 1] == ",":
            place = _skip_space(text, place + 1)
        elif text[place : place + 1] != "]":
            yield broken(place, "a comma or the end of the array is missing")
            return
    if text[place + 1 :].strip():
        yield broken(_skip_space(text, place + 1), "there is more text behind the array")


def _skip_space(text: str, place: int) -> int:
    while text[place : place + 1].isspace():
        place += 1
    return place


def _parse_json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        return error


def _parse_json_row(number: int, text: str, value: Any, body: str | None) -> Row | Malformed:
    if _NOT_UTF8.search(text):
        return Malformed(number, "is not UTF-8")
    if isinstance(value, ValueError):
        # The line was parsed alone: the error's line number is always 1.
        why = f"{value.msg}: column {value.colno}" if isinstance(value, json.JSONDecodeError) else value
        return Malformed(number, f"is not JSON: {why}")
    if isinstance(value, str):
        value = {body or "body": value}
    if not isinstance(value, dict):
        return Malformed(number, "is neither an object nor a text")
    require_columns(value, body)
    return Row(number, value, text)


def _read_csv(file: Iterable[str], body: str | None) -> Iterator[Row | Malformed]:
    csv.field_size_limit(LONGEST_FIELD_CHARACTERS)
    reader = csv.reader(file, strict=True)
    header: list[str] | None = None
    before = 0
    while True:
        line, before = reader.line_num + 1, reader.line_num
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Malformed(line, f"is no CSV: {error}")
            # At the end of the file, the reader would raise this error for ever.
            if reader.line_num == before:
                return
            continue
        if not cells:
            continue
        if header is None:
            header = cells
            _require_header(header, body)
        elif any(_NOT_UTF8.search(cell) for cell in cells):
            yield Malformed(line, "is not UTF-8")
        elif len(cells) != len(header):
            yield Malformed(line, f"has {len(cells)} fields, and the header has {len(header)}")
        else:
            try:
                columns = {name: _convert_cell(name, cell) for name, cell in zip(header, cells)}
            except ValueError as error:
                yield Malformed(line, str(error))
                continue
            yield Row(line, columns, json.dumps(dict(zip(header, cells)), ensure_ascii=False, separators=(",", ":")))


def _require_header(header: list[str], body: str | None) -> None:
    if header[0].lstrip()[:1] in ("[", "{") and header[0] != body:
        raise WrongInput("The first line is JSON, and no header of CSV: --format json reads it. Nothing was sent.")
    if any(_NOT_UTF8.search(name) or "\0" in name for name in header):
        raise WrongInput("The header is not UTF-8 text: is the file no CSV? Nothing was sent.")
    wrong = explain_wrong_header(header, body)
    if wrong is not None:
        raise WrongInput(f"{wrong} Nothing was sent.")
    require_columns(header, body)
    _require_body(header, body)


def _require_body(names: Iterable[str], body: str | None) -> None:
    columns = list(names)
    if body is not None and body not in columns:
        raise WrongInput(f"There is no column {body!r}; there are {', '.join(columns)}. Nothing was sent.")


def _convert_cell(name: str, cell: str) -> Any:
    """Return a cell of CSV as the value of its column. Raise ValueError for attributes that are not JSON."""
    if name not in SQS_FIELDS or not cell:
        return cell if name not in SQS_FIELDS else None
    if name == "delay_seconds":
        return int(cell) if re.fullmatch(r"-?[0-9]{1,9}", cell) else cell
    if name == "message_attributes":
        try:
            return attributes_of_json(cell)
        except ValueError as error:
            raise ValueError(f"message_attributes is not JSON: {error}") from None
    return cell


def _read_table(
    source: str, kind: str, body: str | None, attributes: Mapping[str, str], names: dict[str, None]
) -> Iterator[Row | Malformed]:
    """Yield the rows of a table, with the body in the column `body`. First add the table's columns to `names`."""
    import pyarrow as pa

    from ledger.client import arrow_rows
    from ledger.client.tables import read_arrow_table

    if source == "-":
        raise WrongInput(f"{kind} is not read from stdin: name the file.")
    try:
        table = _read_delta(source) if kind == "delta" else _read_parquet(source)
    except FileNotFoundError:
        raise WrongInput(f"{source}: No such file or folder") from None
    except (OSError, pa.ArrowException) as error:
        raise WrongInput(f"{source} cannot be read as {kind}: {str(error)[:200]}") from None
    names.update(dict.fromkeys(table.column_names))
    for number, columns in enumerate(arrow_rows.read_rows(read_arrow_table("input", table), attributes, body), 1):
        if isinstance(columns, LedgerError):
            yield Malformed(number, f"cannot be read: {columns}")
        else:
            yield Row(number, columns, "")


def _read_delta(source: str) -> Any:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError

    try:
        loaded = DeltaTable(source)
        if loaded.metadata().configuration.get("delta.columnMapping.mode", "none") == "none":
            return loaded.to_pyarrow_table()
        # With column mapping, `to_pyarrow_table` would return nulls: the files have other column names.
        return pa.table(QueryBuilder().register("source", loaded).execute("SELECT * FROM source"))
    except DeltaError as error:
        raise WrongInput(f"{source} cannot be read as a Delta table: {error}") from None


def _read_parquet(source: str) -> Any:
    """Return the rows of Parquet files, with a column for each folder named COLUMN=VALUE."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    dataset = ds.dataset(source, format="parquet", partitioning="hive")
    if dataset.partitioning is not None:
        folders = {part for file in dataset.files for part in Path(file).parent.parts if "=" in part}
        named = [(name, value) for name, _, value in (folder.partition("=") for folder in folders)]
        # Arrow would read the value 007 in a folder's name as 7.
        odd = {name for name, value in named if re.fullmatch(r"-?[0-9]+", value) and str(int(value)) != value}
        kinds = [field.with_type(pa.string()) if field.name in odd else field for field in dataset.partitioning.schema]
        dataset = ds.dataset(source, format="parquet", partitioning=ds.partitioning(pa.schema(kinds), flavor="hive"))
    schemas = [dataset.schema, *(file.physical_schema for file in dataset.get_fragments())]
    return dataset.replace_schema(pa.unify_schemas(schemas, promote_options="permissive")).to_table()
