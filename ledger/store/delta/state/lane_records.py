"""The state of a queue's lanes in `visibility`, and the edits (rows of a MERGE into this table) that change it.

If there are more than FEW rows, their records are *stored*: they stay in Arrow columns, and become objects when needed.

An edit of a head row names the count that the decision read. If another commit has counted up the lane since, this
commit conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION
from ledger.delta_log.rewrite import number_rows
from ledger.delta_log.statements import to_milliseconds
from ledger.rules.visibility import UNTOUCHED, Record
from ledger.store.delta.model.message_runs import (
    ABSENT,
    FEW_CODES,
    Pieces,
    Runs,
    SetRows,
    distinct_codes,
    find_difference,
    make_stored_runs,
)
from ledger.store.delta.model.tables import BITS, HEAD, INSTANT_COLUMNS, RECORD_COLUMNS, VISIBILITY, instant_column
from ledger.store.protocol import RUNS

_NOTHING = VISIBILITY.empty_table().select(RECORD_COLUMNS)
_POSITION = {name: number for number, name in enumerate(RECORD_COLUMNS)}
NONE = -1
FEW = 200
#: After this many searches for a receipt, the stored records are indexed, unless there are more than MOST_INDEXED.
SEARCHES, MOST_INDEXED = 30, 20_000


class Records:
    """Records by their codes, which begin at 0. Equal records share a code."""

    def __init__(self, rows: pa.Table) -> None:
        self._codes: dict[Record, int] = {}
        self._read: list[Record | None] = []
        #: The stored records have the first codes.
        self._stored = _NOTHING
        #: By receipt, the codes of the stored records (None: not indexed).
        self._by_receipt: dict[str | None, list[int]] | None = None
        self._searches = 0
        #: Answers about the stored records, by field and question.
        self._columns: dict[tuple[str, object], np.ndarray] = {}
        #: A cache: the fields of the records that are not stored. It is valid while there are `_fields_of` records in
        #: all.
        self._fields, self._fields_of = list[Sequence[Any]](), -1
        #: The code of each row's record.
        self.codes: np.ndarray
        if rows.num_rows <= FEW:
            self.codes = np.array([self.code(record) for record in _records(rows)], dtype=np.int64)
        else:
            self.codes, some_row = number_rows([rows[name] for name in RECORD_COLUMNS], rows.num_rows)
            self._stored = rows.select(RECORD_COLUMNS).take(pa.array(some_row))
            self._read = [None] * len(some_row)

    def record(self, code: int) -> Record:
        if code == ABSENT:
            return UNTOUCHED
        record = self._read[code]
        return self._read_all([code])[0] if record is None else record

    def read(self, codes: Iterable[int]) -> None:
        """Read the records of some codes at once, before they are used one by one."""
        self._read_all([code for code in codes if code != ABSENT])

    def all(self) -> list[Record]:
        return self._read_all(range(len(self._read)))

    def code(self, record: Record) -> int:
        """Return the code of a record. A new record gets the next code."""
        code = self._codes.get(record)
        if code is None:
            if self._stored.num_rows:
                # Only a stored record with the same receipt can be equal.
                self._read_all(self._find_unread_codes(record.receipt_id))
            code = self._codes.setdefault(record, len(self._read))
            if code == len(self._read):
                self._read.append(record)
        return code

    def per_code(
        self, codes: np.ndarray, rule: Callable[[Record], Any], kind: Any, among: np.ndarray | None = None
    ) -> np.ndarray:
        """Return, for each code in `codes`, `rule` of its record, which is evaluated once per distinct record.

        `among` is a mask by code (see `is_there`). An excluded code gets 0.
        """
        if among is None and len(codes) <= FEW_CODES:
            each = distinct_codes(codes)
            self.read(each)
            answer_of = {code: rule(self.record(code)) for code in each}
            return np.array([answer_of[code] for code in codes.tolist()], dtype=kind)
        # Faster than sorting the codes.
        used = np.flatnonzero(np.bincount(codes - ABSENT)) if len(codes) else codes
        answers = np.zeros(int(used[-1]) + 1 if len(used) else 0, dtype=kind)
        if among is not None:
            used = used[among[used]]
        codes_used = (used + ABSENT).tolist()
        self._read_all([code for code in codes_used if code != ABSENT])
        answers[used] = [rule(self.record(code)) for code in codes_used]
        per_piece: np.ndarray = answers[codes - ABSENT]
        return per_piece

    def numbers(self, name: str) -> np.ndarray:
        """Return one field of all records as numbers (an instant in milliseconds), NONE where a record lacks it.

        The untouched record comes first: look a value up by `code - ABSENT`.
        """
        values = [NONE if field is None else field for field in self._field_of_unstored(name)]
        return self._answer_column(
            (name, None), values, lambda: pc.fill_null(_as_numbers(self._stored[name], name), NONE)
        )

    def is_there(self, name: str, value: str | None = None) -> np.ndarray:
        """Return for each record, the untouched record first, whether it has the field, or this `value` of it."""
        if value is None:
            answers = [field is not None for field in self._field_of_unstored(name)]
            return self._answer_column((name, True), answers, lambda: pc.is_valid(self._stored[name]))
        answers = [field == value for field in self._field_of_unstored(name)]
        return self._answer_column(
            (name, value), answers, lambda: pc.fill_null(pc.equal(self._stored[name], value), False)
        )

    def _answer_column(
        self, question: tuple[str, object], of_unstored: list[Any], of_stored: Callable[[], Any]
    ) -> np.ndarray:
        """Return the answers to `question` for all records: untouched, stored, others."""
        answers = np.array(of_unstored)
        if not self._stored.num_rows:
            return answers
        if question not in self._columns:
            self._columns[question] = of_stored().to_numpy()
        return np.concatenate([answers[:1], self._columns[question], answers[1:]])

    def _field_of_unstored(self, name: str) -> Sequence[Any]:
        if self._fields_of != len(self._read):
            self._fields = list(
                zip(UNTOUCHED, *(one for one in self._read[self._stored.num_rows :] if one is not None))
            )
            self._fields_of = len(self._read)
        return self._fields[_POSITION[name]]

    def _find_unread_codes(self, receipt_id: str | None) -> list[int]:
        return [code for code in self._find_stored_codes(receipt_id) if self._read[code] is None]

    def _find_stored_codes(self, receipt_id: str | None) -> list[int]:
        column = self._stored["receipt_id"]
        self._searches += 1
        if self._searches <= SEARCHES or len(column) > MOST_INDEXED:
            same = pc.is_null(column) if receipt_id is None else pc.equal(column, receipt_id)
            codes: list[int] = np.flatnonzero(pc.fill_null(same, False).to_numpy()).tolist()
            return codes
        if self._by_receipt is None:
            self._by_receipt = {}
            for code, receipt in enumerate(column.to_pylist()):
                self._by_receipt.setdefault(receipt, []).append(code)
        return self._by_receipt.get(receipt_id, [])

    def _read_all(self, codes: Sequence[int]) -> list[Record]:
        missing = [code for code in codes if self._read[code] is None]
        if missing:
            if self._stored.num_rows <= FEW:
                # Reading all is as fast as reading a few one by one.
                missing = [code for code, one in enumerate(self._read) if one is None]
            for code, record in zip(missing, _records(self._stored.take(pa.array(missing)))):
                self._read[code] = record
                self._codes[record] = code
        return [one for one in (self._read[code] for code in codes) if one is not None]


def _records(rows: pa.Table) -> Iterable[Record]:
    columns = ((name, rows[name]) for name in RECORD_COLUMNS)
    nulls = [None] * rows.num_rows
    values = (nulls if one.null_count == len(one) else _as_numbers(one, name).to_pylist() for name, one in columns)
    return map(Record, *values)


def _as_numbers(column: Any, name: str) -> Any:
    """Return a column of instants in milliseconds; any other column as it is."""
    return to_milliseconds(column) if name in INSTANT_COLUMNS else column


EDITS = pa.schema([*VISIBILITY, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])
NO_EDITS = EDITS.empty_table()


def edit_rows(count: int, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return `count` edits (rows of a MERGE) with these columns, and null in all others."""
    arrays = [columns[one.name] if one.name in columns else pa.nulls(count, one.type) for one in EDITS]
    return pa.Table.from_arrays(arrays, schema=EDITS)


class _Edit(NamedTuple):
    operation: str
    lane: int
    at: int
    expected: int | None
    revision: int


class Heads:
    def __init__(self, queue: str, rows: pa.Table) -> None:
        self._queue = queue
        lanes, first, revision = (rows[name].to_pylist() for name in ("lane", "first_seq", "revision"))
        received, deleted = (to_milliseconds(rows[name]).to_pylist() for name in ("received_at", "deleted_at"))
        highest_last = sorted(zip(revision, (-at for at in first), lanes))
        #: The count by lane. Of a lane with several head rows, it is the highest count, until upkeep has made one row
        #: of them. Commits to the lane fail while another head row shares the ordinal of the row with this count.
        self.revisions = {lane: revision for revision, _, lane in highest_last}
        self._at = {lane: -below for _, below, lane in highest_last}
        self._all = list(zip(lanes, first))
        #: When the queue was last purged.
        self.purged_at = max((at for lane, at in zip(lanes, deleted) if not lane and at is not None), default=None)
        #: The time of the last commit to each lane, and (`latest`) to any lane.
        self.times = {lane: at for at, lane in sorted((at, lane) for lane, at in zip(lanes, received) if at)}
        self.latest = max(self.times.values(), default=0)

    def edits(self, lanes: Iterable[int], now: int) -> pa.Table:
        """Return the edits that count up the head rows of some lanes at the time `now`."""
        return self._rows([self._count_up(lane) for lane in lanes], now)

    def add_head_row(self, lane: int, now: int) -> pa.Table:
        """Return the edit that adds a head row to a lane, above the highest revision and below the lowest ordinal."""
        lowest = min(at for one, at in self._all if one == lane)
        return self._rows([_Edit("insert", lane, lowest - 1, None, self.revisions[lane] + 1)], now)

    def _count_up(self, lane: int) -> _Edit:
        revision = self.revisions.get(lane)
        return _Edit(
            "insert" if revision is None else "update", lane, self._at.get(lane, -1), revision, (revision or 0) + 1
        )

    def _rows(self, edits: Sequence[_Edit], now: int) -> pa.Table:
        if not edits:
            return NO_EDITS
        count, (operations, lanes, at, expected, revisions) = len(edits), zip(*edits)
        at = pa.array(at, pa.int64())
        columns = {
            "queue": pa.repeat(self._queue, count),
            "lane": pa.array(lanes, pa.int32()),
            "segment": pa.repeat(HEAD, count),
            "first_seq": at,
            "last_seq": at,
            "received_at": instant_column([now] * count),
            "revision": pa.array(revisions, pa.int64()),
            OPERATION: pa.array(operations),
            EXPECTED_REVISION: pa.array(expected, pa.int64()),
        }
        if self.purged_at is not None and 0 in lanes:
            columns["deleted_at"] = instant_column(None if lane else self.purged_at for lane in lanes)
        return edit_rows(count, columns)


UNKNOWN = -1
_WRITTEN = pa.array(["update", "insert"])


class Lanes:
    """Rows of `visibility` of one queue, as runs on one line of numbers, the axis (see `message_runs`)."""

    def __init__(self, queue: str, rows: pa.Table) -> None:
        self.queue = queue
        self.segments: list[str] = []
        self.lane_of: list[int] = []
        self._index: dict[str, int] = {}
        is_head = pc.equal(rows["segment"], HEAD)
        self.heads = Heads(queue, rows.filter(is_head))
        #: The time of the last commit that these rows show (0: none).
        self.latest = self.heads.latest
        rows = rows.filter(pc.invert(is_head))
        self.records = records = Records(rows)
        self.record, self.code, self.per_code = records.record, records.code, records.per_code
        recorded = Runs.from_arrow(rows, self.register(rows["segment"], rows["lane"]), records.codes)
        self._stored = make_stored_runs(recorded, rows[BITS])
        #: Codes of records in doubt whose output table gave no answer.
        self.undecided: set[int] = set()
        #: The runs that `visibility` has, with replacements on top.
        self.runs = self._stored.runs

    def register(self, segments: Any, lanes: Any) -> np.ndarray:
        """Return the number of each segment in an Arrow column. A new segment gets the next number, and its lane in
        `lanes`."""
        names, which = _list_distinct_names(segments)
        lane_of_name = np.zeros(len(names), dtype=np.int64)
        lane_of_name[which] = np.asarray(lanes)
        numbers = [self._register_one(name, int(lane)) for name, lane in zip(names, lane_of_name)]
        number_of_each: np.ndarray = np.array(numbers, dtype=np.int64)[which]
        return number_of_each

    def look_up(self, segments: Any) -> np.ndarray:
        """Return the number of each segment in an Arrow column, or UNKNOWN."""
        names, which = _list_distinct_names(segments)
        number_of_each: np.ndarray = np.array([self._index.get(name, UNKNOWN) for name in names], dtype=np.int64)[which]
        return number_of_each

    def cut(self, rows: pa.Table) -> Pieces:
        """Cut the messages of `rows` (RUNS) at the borders of the current runs. Register their segments."""
        runs = Runs.from_arrow(rows, self.register(rows["segment"], rows["lane"]), np.full(rows.num_rows, ABSENT))
        return self.runs.cut(runs.first, runs.last)

    def lanes(self, runs: Runs) -> np.ndarray:
        lane_of_each: np.ndarray = np.array(self.lane_of, dtype=np.int64)[runs.segment]
        return lane_of_each

    def to_arrow(self, runs: Runs) -> list[pa.Array]:
        segment = runs.segment
        if len(runs) < len(self.segments):
            names = pa.array([self.segments[number] for number in segment.tolist()], pa.string())
        else:
            names = pa.array(self.segments, pa.string()).take(pa.array(segment))
        seq = runs.first_seq
        return [pa.array(self.lanes(runs), pa.int32()), names, pa.array(seq), pa.array(seq + runs.lengths - 1)]

    def knows(self, segment: str) -> bool:
        return segment in self._index

    def lane_of_segment(self, segment: str) -> int:
        return self.lane_of[self._index[segment]]

    def supersede(self, replacement: Runs) -> None:
        self.runs = self.runs.paint(replacement)

    def edits(self, replacement: Runs, now: int) -> pa.Table:
        """Return the edits that turn the runs in `visibility` into `runs` with `replacement` on top."""
        return self.replace_runs(self.runs.paint(replacement), now)

    def replace_runs(self, new: Runs, now: int) -> pa.Table:
        """Return the edits that turn the runs in `visibility` into `new`.

        No two edits have the same key (`find_difference`). The edits count up the head row of each lane that
        changes, so that concurrent decisions about the lane conflict.
        """
        change = find_difference(self._stored, new)
        if not len(change.written) and not len(change.gone):
            return NO_EDITS
        changed = np.unique(np.concatenate([self.lanes(change.written), self.lanes(change.gone)])).tolist()
        rows = [self._make_written_edits(change.written, change.is_new), self._make_delete_edits(change.gone)]
        return pa.concat_tables([self.heads.edits(changed, now), *rows])

    def _register_one(self, segment: str, lane: int) -> int:
        if segment not in self._index:
            self._index[segment] = len(self.segments)
            self.segments.append(segment)
            self.lane_of.append(lane)
        return self._index[segment]

    def _make_written_edits(self, runs: SetRows, is_new: np.ndarray) -> pa.Table:
        used, inverse = np.unique(runs.code, return_inverse=True)
        inverse = pa.array(inverse, pa.int64())
        columns = self._places(runs, _WRITTEN.take(pa.array(is_new.astype(np.int8))))
        for name, values in zip(RECORD_COLUMNS, zip(*map(self.record, used.tolist()))):
            if any(value is not None for value in values):
                is_instant = name in INSTANT_COLUMNS
                column = instant_column(values) if is_instant else pa.array(values, VISIBILITY.field(name).type)
                columns[name] = column.take(inverse)
        if runs.size.any():
            columns[BITS] = runs.bits()
        return edit_rows(len(runs), columns)

    def _make_delete_edits(self, runs: SetRows) -> pa.Table:
        return edit_rows(len(runs), self._places(runs, pa.repeat("delete", len(runs)))) if len(runs) else NO_EDITS

    def _places(self, runs: Runs, operations: pa.Array) -> dict[str, pa.Array]:
        places = dict(zip(RUNS.names, self.to_arrow(runs)))
        return {"queue": pa.repeat(self.queue, len(runs)), **places, OPERATION: operations}


def _list_distinct_names(segments: Any) -> tuple[list[str], np.ndarray]:
    """Return the distinct names in an Arrow column, and the number of each row's name."""
    encoded = pc.dictionary_encode(segments)
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
