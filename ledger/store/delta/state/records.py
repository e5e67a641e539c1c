"""The distinct records of some rows of `visibility`, each with a code.

The *stored* records, those of more than FEW rows, stay in Arrow columns and become objects when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.rewrite import numbered
from ledger.delta_log.values import milliseconds
from ledger.rules.state import UNTOUCHED, Record
from ledger.store.delta.model.run_algebra import ABSENT, FEW_CODES, distinct_codes
from ledger.store.delta.model.tables import INSTANT_COLUMNS, RECORD_COLUMNS, VISIBILITY

_NOTHING = VISIBILITY.empty_table().select(RECORD_COLUMNS)
_POSITION = {name: number for number, name in enumerate(RECORD_COLUMNS)}
NONE = -1
FEW = 200
#: After this many searches for a receipt, the stored records are indexed, unless there are more than MOST_INDEXED. An
#: index takes as long as some 40 searches.
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
        #: The fields of the records that are not stored, as of `_fields_of` records.
        self._fields, self._fields_of = list[Sequence[Any]](), -1
        #: The code of each row's record.
        self.codes: np.ndarray
        if rows.num_rows <= FEW:
            self.codes = np.array([self.code(record) for record in _records(rows)], dtype=np.int64)
        else:
            self.codes, some_row = numbered([rows[name] for name in RECORD_COLUMNS], rows.num_rows)
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
                self._read_all(self._under(record.receipt_id))
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
        # An array with a place for each code from ABSENT up is faster than sorting the codes.
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
        """Return one field of all records as numbers (an instant in milliseconds), NONE where it is not recorded.

        The untouched record comes first: look a value up by `code - ABSENT`.
        """
        values = [NONE if field is None else field for field in self._field_of_unstored(name)]
        return self._column((name, None), values, lambda: pc.fill_null(_as_numbers(self._stored[name], name), NONE))

    def is_there(self, name: str, value: str | None = None) -> np.ndarray:
        """Return a mask of all records, the untouched one first: which have the field, or this `value` of it."""
        if value is None:
            answers = [field is not None for field in self._field_of_unstored(name)]
            return self._column((name, True), answers, lambda: pc.is_valid(self._stored[name]))
        answers = [field == value for field in self._field_of_unstored(name)]
        return self._column((name, value), answers, lambda: pc.fill_null(pc.equal(self._stored[name], value), False))

    def _column(self, question: tuple[str, object], of_unstored: list[Any], of_stored: Callable[[], Any]) -> np.ndarray:
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

    def _under(self, receipt_id: str | None) -> list[int]:
        return [code for code in self._stored_with_receipt(receipt_id) if self._read[code] is None]

    def _stored_with_receipt(self, receipt_id: str | None) -> list[int]:
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
                # As fast as reading a few one by one.
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
    return milliseconds(column) if name in INSTANT_COLUMNS else column
