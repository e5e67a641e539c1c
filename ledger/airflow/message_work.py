"""Work on one claim without Spark: call a function with the claim's messages, under a heartbeat."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ledger.claim import Claim
from ledger.errors import InvalidParameterValue, LeaseLost
from ledger.results import Settled
from ledger.rules.visibility import Outcome, clean_any_reason

#: Returns whether a claim stays held after an error ended its work.
Keeps = Callable[[Claim, BaseException], bool]
FAILED_REASON = "the function says that it failed"
#: For each claim.
MOST_REASONS_LOGGED = 10


def never_keeps(claim: Claim, error: BaseException) -> bool:
    return False


@dataclass(frozen=True)
class MessageWork:
    """Work on a claim. `say` gets a line of text for each step.

    The other arguments are those of LedgerWorkOperator. `output` is the place of the operator's `output_table`.
    """

    function: Callable[[Any], Any]
    output: str | os.PathLike[str] | None
    reason: str | None
    hide_failed: int
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidParameterValue("function", type(self.function).__name__, "Must be a function")
        if self.reason is not None and self.output is None:
            bound = "Only rows of an output have it, and there is no output"
            raise InvalidParameterValue("reason", self.reason, bound, "Name an output, or return {message_id: reason}.")

    def on(self, claim: Claim, keeps: Keeps = never_keeps) -> tuple[int, int]:
        """Work on one claim and settle it. Return how many messages are done, and how many failed.

        After an error other than LeaseLost, give back the messages that are still held, unless `keeps` returns True.
        """
        try:
            self.say(f"works on {claim.count:,} messages (receipt {claim.receipt_id}, version {claim.version})")
            with claim.heartbeat() as beat:
                answer = self.function(claim.messages())
                beat.check()
                settled = self._write(claim, answer) if self.output is not None else self._settle(claim, answer)
        except LeaseLost:
            raise
        except BaseException as error:
            if not keeps(claim, error):
                self._give_back(claim)
            raise
        lost = f", lost {settled.lost:,} to others" if settled.lost else ""
        self.say(f"acknowledged {settled.messages:,}, {settled.failed:,} failed{lost}")
        return settled.messages, settled.failed

    def _write(self, claim: Claim, answer: Any) -> Settled:
        if answer is None or isinstance(answer, (str, Mapping)):
            bound = "With an output it must return rows: an Arrow table, or a list of dictionaries"
            raise InvalidParameterValue("function", type(answer).__name__, bound)
        rows = table_of(answer) if isinstance(answer, Sequence) else answer
        assert self.output is not None
        if isinstance(rows, pa.Table) and not rows.num_columns:
            # No columns to write, and no message failed.
            return claim.delete()
        if self.reason is None:
            return claim.write(rows, self.output)
        return claim.write(rows, self.output, failed=self.reason, visibility_timeout=self.hide_failed)

    def _settle(self, claim: Claim, answer: Any) -> Settled:
        """Acknowledge the claim except for the messages that failed, in one commit."""
        if answer is not None and not isinstance(answer, Mapping):
            bound = "Without an output it must return None, or {message_id: reason} of the messages that failed"
            raise InvalidParameterValue("function", type(answer).__name__, bound)
        if not answer:
            return claim.delete()
        handles = {message.message_id: str(message.receipt_handle) for message in claim.messages()}
        unknown_ids = sorted(str(name) for name in set(answer) - set(handles))
        if unknown_ids:
            bound = f"It named {len(unknown_ids):,} messages that are not of the claim"
            raise InvalidParameterValue("function", unknown_ids[0], bound, "Its keys must be message ids of the claim.")
        for name, reason in list(answer.items())[:MOST_REASONS_LOGGED]:
            self.say(f"failed {name}: {reason}")
        failed = [handles.pop(name) for name in answer]
        reasons = [clean_any_reason(reason) or FAILED_REASON for reason in answer.values()]
        done = list(handles.values())
        if self.hide_failed:
            hidden_for = self.hide_failed
            outcomes = claim.settle(delete=done, extend=failed, visibility_timeout=hidden_for, reason=reasons)
        else:
            outcomes = claim.settle(delete=done, release=failed, reason=reasons)
        changed = [outcome.outcome in (Outcome.DELETED, Outcome.CHANGED) for outcome in outcomes]
        deleted, hidden = sum(changed[: len(done)]), sum(changed[len(done) :])
        return Settled(deleted, len(changed) - deleted - hidden, hidden)

    def _give_back(self, claim: Claim) -> None:
        try:
            self.say(f"gives back {claim.release().messages:,} messages")
        except Exception as error:
            self.say(f"could not give the claim back; its deadline is {claim.deadline}: {error}")


def table_of(rows: Sequence[Any]) -> pa.Table:
    """Return rows as a table with the columns of all rows."""
    for row in rows:
        if not isinstance(row, Mapping) or not row:
            bound = "Each row that it returns must be a dictionary, of a column at least"
            raise InvalidParameterValue("function", type(row).__name__, bound)
    columns = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})
