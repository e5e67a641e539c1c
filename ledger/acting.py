"""What a Queue does through receipt handles: delete, change the visibility, settle; of one, of many, of a table."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from ledger.dead_letters import DeadLetters
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.handles import HandleList, Wish, handles_of, outcome_table, wishes_of_list, wishes_of_table
from ledger.results import HandleOutcome
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules.outcomes import error as error_of
from ledger.rules.receipt_handle import decode
from ledger.rules.visibility import Outcome, Verb
from ledger.settling import Settling
from ledger.store import Action
from ledger.tabular import ArrowTable, arrow_table, is_spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ledger.ending import LiveClaims
    from ledger.settling import Handles, HandleSequence, Outcomes, Timeouts
    from ledger.store.delta.verbs.output_writes import Outputs

FIELD = "ReceiptHandle"


class Acting(DeadLetters, Settling):
    """The part of a Queue that acts through receipt handles."""

    #: Those that it handed out.
    _claims: LiveClaims

    @overload
    def delete(self, receipt_handles: str) -> None: ...
    @overload
    def delete(self, receipt_handles: HandleSequence) -> list[HandleOutcome]: ...
    @overload
    def delete(self, receipt_handles: DataFrame) -> DataFrame: ...
    @overload
    def delete(self, receipt_handles: ArrowTable) -> pa.Table: ...
    def delete(self, receipt_handles: str | Handles) -> Outcomes | None:
        """Acknowledges messages, in one commit.

        One handle: raises ReceiptHandleIsInvalid if it is none of this queue; else succeeds (V8, V10, V13).
        A list: a HandleOutcome per handle, in order. A DataFrame with a column `receipt_handle`: a DataFrame of
        receipt_handle, action, outcome, error_code and error_message (strings; both null for a success), a row per
        distinct handle; it is evaluated once, and the outcomes are of the very handles that were acted on. An Arrow
        table (or a pandas or polars DataFrame, or what else has Arrow's PyCapsule interface): a pyarrow.Table of the
        same columns, a row for each row, in order; needs no Spark.
        Through a receipt that a later receive replaced nothing changes; its outcome is "stale".
        """
        if isinstance(receipt_handles, str):
            self._act_on_one(Wish(receipt_handles, Verb.DELETE))
            return None
        # For `_settled` None is nothing to delete.
        return self._settled(handles_of(FIELD, None) if receipt_handles is None else receipt_handles, None, None, None)

    @overload
    def change_visibility(self, receipt_handles: str, visibility_timeout: int) -> None: ...
    @overload
    def change_visibility(
        self, receipt_handles: HandleSequence, visibility_timeout: int | Sequence[int]
    ) -> list[HandleOutcome]: ...
    @overload
    def change_visibility(self, receipt_handles: DataFrame, visibility_timeout: int | str) -> DataFrame: ...
    @overload
    def change_visibility(self, receipt_handles: ArrowTable, visibility_timeout: int | str) -> pa.Table: ...
    def change_visibility(self, receipt_handles: str | Handles, visibility_timeout: Timeouts) -> Outcomes | None:
        """Sets how many seconds from now messages stay hidden; 0 releases them. One commit.

        One handle: raises MessageNotInflight, ReceiptHandleIsInvalid, InvalidParameterValue. A list (with one timeout,
        or one per handle) and a table (with one timeout, or the name of a column of them): outcomes, as `delete`. One
        of several timeouts that is out of bounds, or null, fails its own handle only (M2).
        """
        if isinstance(receipt_handles, str):
            limits = attribute_rules.limits_of(self._record().attributes)
            seconds = bounds.visibility_timeout(visibility_timeout, limits)
            self._act_on_one(Wish(receipt_handles, Verb.CHANGE, seconds))
            return None
        if visibility_timeout is None:
            raise InvalidParameterValue("VisibilityTimeout", None, "Must be seconds", "0 releases.")
        return self._settled(None, None, _read(receipt_handles), visibility_timeout)

    def _settled(
        self, delete: Handles | None, release: Handles | None, extend: Handles | None, timeout: Timeouts | None
    ) -> Outcomes:
        record = self._record()
        limits = attribute_rules.limits_of(record.attributes)
        if timeout is None:
            timeout = int(record.attributes["VisibilityTimeout"])
        given = [(Verb.DELETE, delete, 0), (Verb.CHANGE, release, 0), (Verb.CHANGE, extend, timeout)]
        parts = [(verb, _read(handles), seconds) for verb, handles, seconds in given if handles is not None]
        _require_timeout(timeout, None if extend is None else parts[-1][1], limits)
        if any(is_spark(handles) for _, handles, _ in parts):
            asked = self._spark().wishes(record, parts, limits)
            return asked.outcomes(self._act(asked.actions))
        wishes = [wish for verb, handles, timeout in parts for wish in _wishes(verb, handles, timeout, limits)]
        outcomes = self._act_on_list(wishes, limits)
        return outcomes if all(isinstance(p[1], list) for p in parts) else outcome_table(wishes, outcomes)

    # What claims use.

    def _act(self, actions: Sequence[Action]) -> list[pa.Table]:
        record = self._record()
        limits = attribute_rules.limits_of(record.attributes)
        receipts = attribute_rules.receipts_of(record.attributes)
        with contextlib.ExitStack() as stack:
            # A claim's own verbs say for themselves what they end.
            ending = [
                (number, stack.enter_context(claim.own_endings.ending(action.runs)))
                for number, action in enumerate(actions)
                if not action.whole_claim and action.ends
                for claim in self._claims.of(action.receipt_id)
            ]
            answers = self._store.act(record, actions, limits, receipts, self._clock)
            for number, one in ending:
                one.answered(answers[number])
            return answers

    def _outputs(self) -> Outputs:
        outputs: Outputs | None = getattr(self._store, "outputs", None)
        if outputs is None:
            raise LedgerError("claim.write needs a ledger on Delta tables; this one is in memory")
        return outputs

    def _act_on_list(self, wishes: Sequence[Wish], limits: bounds.Limits) -> list[HandleOutcome]:
        asked = HandleList(self._made, wishes, limits)
        return asked.outcomes(self._act(asked.actions)) if asked.actions else asked.outcomes([])

    def _act_on_one(self, wish: Wish) -> None:
        record = self._record()
        decode(wish.handle, record.id)
        limits = attribute_rules.limits_of(record.attributes)
        outcome = Outcome(self._act_on_list([wish], limits)[0].outcome)
        error = error_of(wish.verb, outcome, wish.handle, wish.timeout, limits.maximum_visibility_timeout)
        if error is not None:
            raise error


def _read(handles: Any) -> Any:
    """A DataFrame of Spark's, a pyarrow.Table, or a list of receipt handles."""
    if is_spark(handles):
        return handles
    table = arrow_table(FIELD, handles)
    return handles_of(FIELD, handles) if table is None else table


def _wishes(verb: Verb, handles: Any, timeout: Any, limits: bounds.Limits) -> list[Wish]:
    if isinstance(handles, list):
        return wishes_of_list(handles, verb, timeout, limits)
    return wishes_of_table(handles, verb, timeout, limits)


def _require_timeout(timeout: Any, extended: Any, limits: bounds.Limits) -> None:
    """Raises InvalidParameterValue for timeouts that `extended` (handles as `_read` answers them, or None) cannot have;
    one timeout for all has to be within the bounds."""
    if isinstance(timeout, Sequence) and not isinstance(timeout, (str, bytes)) and isinstance(extended, list):
        if len(timeout) != len(extended):
            bound = f"Must be one, or one for each of the {len(extended)} handles"
            raise InvalidParameterValue("VisibilityTimeout", len(timeout), bound)
    elif not isinstance(timeout, str) or extended is None or isinstance(extended, list):
        bounds.visibility_timeout(timeout, limits)
