"""The operator that works on a claim that its task was handed, in the task's own process, without Spark."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, AirflowTaskTimeout

from ledger.airflow.claims import require_told, was_acknowledged
from ledger.airflow.message_work import MessageWork, never
from ledger.airflow.operators import LedgerOperator, has_another_try
from ledger.claim import Claim
from ledger.errors import LeaseLost, LedgerError
from ledger.message import Message

if TYPE_CHECKING:
    from airflow.sdk import Context

CLEAR = "Clear the task that received it, and this one with it"
#: What a process ends with that SIGTERM ended.
TERMINATED = 143


class LedgerWorkOperator(LedgerOperator):
    """Runs `function` on the list of messages of a claim, under a heartbeat, and acknowledges them.

    The `claim` is one of a LedgerReceiveOperator, to be expanded over. (A task that receives by itself is a
    LedgerConsumeOperator.) `function` returns
    - without `output_table`: None, and all are done, or {message_id: reason} of those that failed;
    - with `output_table`, a Delta table: the rows to write, as an Arrow table or a list of dictionaries. The whole
      claim is done, and its rows are in the table once, wherever a worker dies; or `reason` names a column of the rows,
      which also have a column message_id: where that has a value, the message failed, and is not written.
    What failed is hidden for `hide_failed` seconds, and received again then; a RedrivePolicy says how often.

    When the function raises, the task fails. The claim is kept for its next try, if there is one, and given back by the
    last. SIGTERM (on_kill) ends the function and gives the claim back. Beats hold it for `visibility_timeout` seconds,
    or for as long as it was received for.
    Run again when its claim is finished, the task does nothing; when others have the claim's messages by then, or it
    was given back, the task fails for good: clear the task that received it, too.
    A relative `output_table` begins at the folder that the ledger's root lies in: the log says where that is.
    Returns how many `claims`, `messages` that are done, and `failed` ones; and, where the `output_table` is relative,
    the place that it stands for. Raises what `function` raises.
    """

    template_fields: Sequence[str] = (*LedgerOperator.template_fields, "claim", "output_table")

    def __init__(
        self,
        *,
        function: Callable[[list[Message]], Any],
        claim: Mapping[str, Any],
        ledger_queue: str = "",
        output_table: str | os.PathLike[str] | None = None,
        reason: str | None = None,
        visibility_timeout: int | None = None,
        hide_failed: int = 300,
        **more: Any,
    ) -> None:
        super().__init__(ledger_queue=ledger_queue, **more)
        self.function, self.reason, self.hide_failed = function, reason, hide_failed
        self.claim, self.visibility_timeout = claim, visibility_timeout
        self.output_table = output_table
        self._works, self._try_number = False, 1

    def execute(self, context: Context) -> dict[str, Any]:
        """Works on the claim."""
        place = None if self.output_table is None else self.hook.place.output(self.output_table)
        anchored = place is not None and place != os.fspath(self.output_table or "")
        if anchored:
            self.log.info("the output table %s is %s", self.output_table, place)
        work = MessageWork(self.function, place, self.reason, self.hide_failed, self.log.info)
        self._works = True
        try:
            done = self._carry_on(work, require_told(self.claim), context)
        finally:
            self._works = False
        return {**done, **({"output_table": place} if anchored else {})}

    def on_kill(self) -> None:
        """Airflow calls it where SIGTERM interrupted the work, and would let it go on then: this ends it, and on its
        way out the claim in hand is given back. Beside finished work it does nothing."""
        if self._works and threading.current_thread() is threading.main_thread():
            raise SystemExit(TERMINATED)

    def _carry_on(self, work: MessageWork, told: Mapping[str, Any], context: Context) -> dict[str, int]:
        queue = self.hook.get_queue(self.ledger_queue or told["ledger_queue"])
        claim = queue.claim(told["receipt_id"])
        if not claim:
            if was_acknowledged(queue, told):
                self.log.warning("the claim %s was finished before: nothing is left to do", told["receipt_id"])
                return {"claims": 0, "messages": 0, "failed": 0}
            raise AirflowFailException(f"The claim {told['receipt_id']} was given back, or others have it. {CLEAR}")
        self._try_number = context["ti"].try_number
        claim.visibility_timeout = self.visibility_timeout or told["visibility_timeout"]
        try:
            # What is left of the timeout may be less than the first beat takes.
            claim.extend()
            done, failed = work.on(claim, self._keeps if has_another_try(context) else never)
        except LeaseLost as lost:
            raise AirflowFailException(f"{lost}. {CLEAR}") from lost
        return {"claims": 1, "messages": done, "failed": failed}

    def _keeps(self, claim: Claim, error: BaseException) -> bool:
        """Keeps the claim until the next try has begun; not when there will be none, or somebody ended the task."""
        retried = isinstance(error, (Exception, AirflowTaskTimeout))
        if not retried or isinstance(error, (AirflowFailException, AirflowSkipException)):
            return False
        try:
            claim.extend(claim.visibility_timeout + math.ceil(self._longest_delay().total_seconds()))
            self.log.info("keeps the claim for the next try, until %s", claim.deadline)
        except LedgerError as beyond:
            self.log.warning("the claim cannot be kept beyond %s for the next try: %s", claim.deadline, beyond)
        return True

    def _longest_delay(self) -> timedelta:
        """Within which the next try begins, where a worker is free."""
        delay = self.retry_delay if isinstance(self.retry_delay, timedelta) else timedelta(seconds=self.retry_delay)
        if not self.retry_exponential_backoff:
            return delay
        longest = delay * max(2.0, float(self.retry_exponential_backoff)) ** self._try_number
        return longest if self.max_retry_delay is None else min(longest, self.max_retry_delay)
