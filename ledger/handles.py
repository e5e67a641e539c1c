"""Lists of receipt handles: read into actions for the store, and the store's outcomes read back, one per handle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ledger.errors import InvalidParameterValue, ReceiptHandleIsInvalid
from ledger.message import HandleOutcome
from ledger.rules import message_id as ids
from ledger.rules.receipt_handle import ReceiptHandle, decode
from ledger.rules.visibility import ERRORS, Outcome, Verb
from ledger.store import RUNS, Action, QueueRecord


@dataclass(frozen=True)
class Wish:
    """What to do through one receipt handle."""

    handle: str
    verb: Verb
    timeout: int = 0


class HandleList:
    """Wishes grouped into the fewest actions. A handle that cannot be read is answered as INVALID, beside the rest."""

    def __init__(self, queue: QueueRecord, wishes: Sequence[Wish]) -> None:
        self._wishes = wishes
        self._read = [_read(wish.handle, queue) for wish in wishes]
        groups: dict[tuple[Verb, str, int], set[ReceiptHandle]] = {}
        for wish, handle in zip(wishes, self._read):
            if handle is not None:
                groups.setdefault((wish.verb, handle.receipt_id, wish.timeout), set()).add(handle)
        self.actions = [
            Action(verb, receipt_id, _runs(handles), timeout) for (verb, receipt_id, timeout), handles in groups.items()
        ]

    def outcomes(self, answers: Sequence[pa.Table]) -> list[HandleOutcome]:
        """One outcome per wish, in order, from the store's answers to `actions`."""
        found: dict[tuple[Verb, str, int, str, int], str] = {}
        for action, answer in zip(self.actions, answers):
            for run in answer.to_pylist():
                for seq in range(run["first_seq"], run["last_seq"] + 1):
                    found[action.verb, action.receipt_id, action.timeout, run["segment"], seq] = run["outcome"]
        answered = []
        for wish, handle in zip(self._wishes, self._read):
            outcome = Outcome.INVALID.value
            if handle is not None:
                outcome = found[wish.verb, handle.receipt_id, wish.timeout, handle.segment, handle.seq]
            error = ERRORS.get((wish.verb, Outcome(outcome)))
            answered.append(HandleOutcome(wish.handle, outcome, error.code if error else None))
        return answered


def listed(field: str, value: Any) -> list[Any]:
    """`value` as a list; raises InvalidParameterValue for a single text and for what is no list."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidParameterValue(field, value, "Must be a list or a DataFrame", "Put one value into a list.")
    return list(value)


def runs_of_ids(message_ids: Sequence[object]) -> pa.Table:
    """Message ids as RUNS; the lanes are not known (-1). Raises InvalidParameterValue."""
    places = {ids.place(identifier) for identifier in message_ids}
    return _runs({ReceiptHandle("", -1, segment, seq, "") for segment, seq in places}) if places else RUNS.empty_table()


def _read(handle: object, queue: QueueRecord) -> ReceiptHandle | None:
    try:
        return decode(handle, queue.id)
    except ReceiptHandleIsInvalid:
        return None


def _runs(handles: set[ReceiptHandle]) -> pa.Table:
    """Neighbouring handles joined into runs."""
    runs: list[list] = []
    for handle in sorted(handles, key=lambda h: (h.lane, h.segment, h.seq)):
        if runs and runs[-1][:2] == [handle.lane, handle.segment] and runs[-1][3] + 1 == handle.seq:
            runs[-1][3] = handle.seq
        else:
            runs.append([handle.lane, handle.segment, handle.seq, handle.seq])
    return pa.table([list(column) for column in zip(*runs)], schema=RUNS)
