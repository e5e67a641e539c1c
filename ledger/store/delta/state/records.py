"""The distinct records of some rows of `visibility`, each a code: of many, read as objects only where somebody asks.

A queue with many claims has many records, and most decisions are about few of them: what is asked about all of them is
asked of columns. Few rows are read as objects at once: to tell them apart as columns takes as long for ten as for a
thousand.
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
#: The number of what is not recorded. All that are recorded are greater.
NONE = -1
#: Up to so many are few.
FEW = 200
#: Up to so many are told apart by their receipts once; of more, a receipt is looked for whenever it is asked for.
MOST_INDEXED = 20_000


class Records:
    """Records by their codes, from 0 on: those of the rows, then those that are met later. Equal ones share a code."""

    def __init__(self, rows: pa.Table) -> None:
        self._codes: dict[Record, int] = {}
        self._read: list[Record | None] = []
        #: Those that are read when they are asked for: the first ones.
        self._stored = _NOTHING
        #: By receipt, the codes of these; None: nobody has asked yet.
        self._by_receipt: dict[str | None, list[int]] | None = None
        #: What was asked of a field of these.
        self._columns: dict[tuple[str, object], np.ndarray] = {}
        #: The fields of the others, and of how many records that was.
        self._fields, self._fields_of = list[Sequence[Any]](), -1
        #: By row, its record's code.
        self.codes: np.ndarray
        if rows.num_rows <= FEW:
            self.codes = np.array([self.code(record) for record in _records(rows)], dtype=np.int64)
        else:
            self.codes, some_row = numbered([rows[name] for name in RECORD_COLUMNS], rows.num_rows)
            self._stored = rows.select(RECORD_COLUMNS).take(pa.array(some_row))
            self._read = [None] * len(some_row)

    def record(self, code: int) -> Record:
        """The record behind a code; that of an untouched message for ABSENT."""
        if code == ABSENT:
            return UNTOUCHED
        found = self._read[code]
        return self._read_all([code])[0] if found is None else found

    def read(self, codes: Iterable[int]) -> None:
        """Read the records of some codes at once, before they are asked for one by one."""
        self._read_all([code for code in codes if code != ABSENT])

    def all(self) -> list[Record]:
        """All of them."""
        return self._read_all(range(len(self._read)))

    def code(self, record: Record) -> int:
        """The code of a record, new or known."""
        code = self._codes.get(record)
        if code is None:
            if self._stored.num_rows:
                # Of those that nobody has asked for yet, only one of the same receipt can be equal.
                self._read_all(self._under(record.receipt_id))
            code = self._codes.setdefault(record, len(self._read))
            if code == len(self._read):
                self._read.append(record)
        return code

    def per_code(
        self, codes: np.ndarray, rule: Callable[[Record], Any], kind: Any, among: np.ndarray | None = None
    ) -> np.ndarray:
        """`rule` of each piece's record, asked once per distinct record. `among`, a mask by code (see `is_there`): of
        all others the rule's answer is 0, and they are not asked."""
        if among is None and len(codes) <= FEW_CODES:
            each = distinct_codes(codes)
            self.read(each)
            answer_of = {code: rule(self.record(code)) for code in each}
            return np.array([answer_of[code] for code in codes.tolist()], dtype=kind)
        # Codes count from ABSENT up: a table of answers, where sorting the codes would cost more than all the rest.
        used = np.flatnonzero(np.bincount(codes - ABSENT)) if len(codes) else codes
        answers = np.zeros(int(used[-1]) + 1 if len(used) else 0, dtype=kind)
        if among is not None:
            used = used[among[used]]
        asked = (used + ABSENT).tolist()
        self._read_all([code for code in asked if code != ABSENT])
        answers[used] = [rule(self.record(code)) for code in asked]
        per_piece: np.ndarray = answers[codes - ABSENT]
        return per_piece

    def numbers(self, name: str) -> np.ndarray:
        """A field of all records that is a number or an instant, the untouched one's first: NONE where there is none.
        To be looked up by `code - ABSENT`."""
        met = [NONE if field is None else field for field in self._met(name)]
        return self._column((name, None), met, lambda: pc.fill_null(_as_numbers(self._stored[name], name), NONE))

    def is_there(self, name: str, value: str | None = None) -> np.ndarray:
        """Whether a field of all records is recorded, as `value` if that is given, the untouched one's first."""
        if value is None:
            met = [field is not None for field in self._met(name)]
            return self._column((name, True), met, lambda: pc.is_valid(self._stored[name]))
        met = [field == value for field in self._met(name)]
        return self._column((name, value), met, lambda: pc.fill_null(pc.equal(self._stored[name], value), False))

    def _column(self, asked: tuple[str, object], met: list[Any], of_stored: Callable[[], Any]) -> np.ndarray:
        """What is `asked` of all: of those that were `met`, and before them of those that are stored."""
        answers = np.array(met)
        if not self._stored.num_rows:
            return answers
        if asked not in self._columns:
            self._columns[asked] = of_stored().to_numpy()
        return np.concatenate([answers[:1], self._columns[asked], answers[1:]])

    def _met(self, name: str) -> Sequence[Any]:
        """A field of the untouched record, and of those that are not stored."""
        if self._fields_of != len(self._read):
            self._fields = list(
                zip(UNTOUCHED, *(one for one in self._read[self._stored.num_rows :] if one is not None))
            )
            self._fields_of = len(self._read)
        return self._fields[_POSITION[name]]

    def _under(self, receipt_id: str | None) -> list[int]:
        """The codes of what is stored under a receipt, or none, and was not read yet."""
        return [code for code in self._stored_under(receipt_id) if self._read[code] is None]

    def _stored_under(self, receipt_id: str | None) -> list[int]:
        column = self._stored["receipt_id"]
        if len(column) > MOST_INDEXED:
            same = pc.is_null(column) if receipt_id is None else pc.equal(column, receipt_id)
            found: list[int] = np.flatnonzero(pc.fill_null(same, False).to_numpy()).tolist()
            return found
        if self._by_receipt is None:
            self._by_receipt = {}
            for code, receipt in enumerate(column.to_pylist()):
                self._by_receipt.setdefault(receipt, []).append(code)
        return self._by_receipt.get(receipt_id, [])

    def _read_all(self, codes: Sequence[int]) -> list[Record]:
        """The records of codes."""
        missing = [code for code in codes if self._read[code] is None]
        if missing:
            if self._stored.num_rows <= FEW:
                # All of them take no longer than a few, one by one.
                missing = [code for code, one in enumerate(self._read) if one is None]
            for code, record in zip(missing, _records(self._stored.take(pa.array(missing)))):
                self._read[code] = record
                self._codes[record] = code
        return [one for one in (self._read[code] for code in codes) if one is not None]


def _records(rows: pa.Table) -> Iterable[Record]:
    """What is recorded in each row."""
    columns = ((name, rows[name]) for name in RECORD_COLUMNS)
    nothing = [None] * rows.num_rows
    values = (nothing if one.null_count == len(one) else _as_numbers(one, name).to_pylist() for name, one in columns)
    return map(Record, *values)


def _as_numbers(column: Any, name: str) -> Any:
    """A column of instants in milliseconds; any other as it is."""
    return milliseconds(column) if name in INSTANT_COLUMNS else column
