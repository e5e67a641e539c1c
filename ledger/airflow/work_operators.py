"""Operators that work on messages: on a claim or on each message alone, or with Spark."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, AirflowTaskTimeout

from ledger.airflow.claims import give_back, require_description, was_acknowledged
from ledger.airflow.message_work import MessageWork, never_keeps
from ledger.airflow.operators import LedgerOperator, has_another_try
from ledger.airflow.processes import TaskProcess
from ledger.claim import Claim
from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError
from ledger.message import Message

if TYPE_CHECKING:
    from airflow.sdk import Context

CLEAR_ADVICE = "Clear the task that received the claim, and this task"
TERMINATED_EXIT_CODE = 143


class LedgerWorkOperator(LedgerOperator):
    """Runs `function` on the list of messages of a claim, under a heartbeat, and acknowledges the messages.

    `claim` is one of the descriptions that a LedgerReceiveOperator returns: expand over them. `function` returns

    - without `output_table`: None if all messages are done, or {message_id: reason} of the messages that failed;
    - with `output_table`, a Delta table: the rows to write, as an Arrow table or a list of dictionaries. The rows are
      in the table once, wherever a worker dies. `reason` may name a column of the rows, which then also need a column
      message_id. If a row has a value in this column, its message failed, and the row is not written.

    Failed messages are hidden for `hide_failed` seconds. Then they can be received again, as the queue's RedrivePolicy
    allows.

    When the function raises, so does the task. If another try follows, the claim is kept for that try, as long as the
    queue's MaximumVisibilityTimeout allows. Otherwise the claim is given back: at the last try, or after
    AirflowFailException or AirflowSkipException. SIGTERM (on_kill) ends the function and gives the claim back. Each
    beat of the heartbeat holds the claim for `visibility_timeout` seconds, by default the timeout of its receive.

    If the claim is finished when the task runs again, the task does nothing. If the claim ran out, was given back
    or lost, the task fails for good. To run it again, clear also the task that received the claim.

    A relative `output_table` begins at the folder that holds the ledger's root. Returns the numbers of `claims`, of
    done `messages` and of `failed` ones, and the place of a relative `output_table`.
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
        place = None if self.output_table is None else self.hook.place.output(self.output_table)
        anchored = place is not None and place != os.fspath(self.output_table or "")
        if anchored:
            self.log.info("the output table %s is %s", self.output_table, place)
        work = MessageWork(self.function, place, self.reason, self.hide_failed, self.log.info)
        self._works = True
        try:
            done = self._work_on_claim(work, require_description(self.claim), context)
        finally:
            self._works = False
        return {**done, **({"output_table": place} if anchored else {})}

    def on_kill(self) -> None:
        """End the work by SystemExit, which gives the claim back.

        Airflow calls this at SIGTERM. Without the SystemExit, Airflow would let the task continue.
        """
        if self._works and threading.current_thread() is threading.main_thread():
            raise SystemExit(TERMINATED_EXIT_CODE)

    def _work_on_claim(self, work: MessageWork, description: Mapping[str, Any], context: Context) -> dict[str, int]:
        queue = self.hook.get_queue(self.ledger_queue or description["ledger_queue"])
        claim = queue.claim(description["receipt_id"])
        if not claim:
            if was_acknowledged(queue, description, self.hook.get_queue):
                self.log.warning("the claim %s was finished before: nothing is left to do", description["receipt_id"])
                return {"claims": 0, "messages": 0, "failed": 0}
            lost = "was given back, others have it, or its messages are dead letters"
            raise AirflowFailException(f"The claim {description['receipt_id']} {lost}. {CLEAR_ADVICE}")
        self._try_number = context["ti"].try_number
        claim.visibility_timeout = self.visibility_timeout or description["visibility_timeout"]
        try:
            # The claim may run out before the heartbeat's first beat.
            claim.extend()
            done, failed = work.on(claim, self._keep_for_next_try if has_another_try(context) else never_keeps)
        except LeaseLost as lost:
            raise AirflowFailException(f"{lost}. {CLEAR_ADVICE}") from lost
        return {"claims": 1, "messages": done, "failed": failed}

    def _keep_for_next_try(self, claim: Claim, error: BaseException) -> bool:
        """Hold the claim until the next try can begin, or, if the ceiling is earlier, until its present deadline.

        Return False if no try follows this error.
        """
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
        """Return the longest delay before the next try, without the wait for a free worker."""
        delay = self.retry_delay if isinstance(self.retry_delay, timedelta) else timedelta(seconds=self.retry_delay)
        if not self.retry_exponential_backoff:
            return delay
        longest = delay * max(2.0, float(self.retry_exponential_backoff)) ** self._try_number
        return longest if self.max_retry_delay is None else min(longest, self.max_retry_delay)


OWN_ARGUMENTS = ("handler", "output", "attempt_id", "report", "bar")


class LedgerConsumeOperator(LedgerOperator):
    """Runs `Queue.consume`: calls `handler` for each message, writes its rows to `output_table`, and acknowledges.

    `options` are further keyword arguments of `Queue.consume`. A message for which the handler raises fails alone. If
    the handler raises for all messages alike, the task fails, and these receives do not count. If a worker was killed,
    the retry first gets back what the worker still holds. SIGTERM (on_kill) ends the task: finished messages are
    written, and all others are given back uncounted.

    A relative `output_table` begins at the folder that holds the ledger's root. Returns the fields of a `Consumed` by
    name, and the `output_table`. Raises what `Queue.consume` raises.
    """

    template_fields: Sequence[str] = (*LedgerOperator.template_fields, "output_table")

    def __init__(
        self,
        *,
        handler: Callable[[Any], Any],
        output_table: str | os.PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        for name in options or {}:
            if name in OWN_ARGUMENTS:
                raise InvalidParameterValue("options", name, "The operator gives this argument itself")
        self.handler, self.output_table, self.options = handler, output_table, options
        self._works = False

    def execute(self, context: Context) -> dict[str, Any]:
        output = None if self.output_table is None else self.hook.place.output(self.output_table)
        self._works = True
        try:
            done = self.open_queue().consume(
                self.handler,
                output,
                attempt_id=self.attempt_id,
                bar=False,
                report=self.log.info,
                **(self.options or {}),
            )
        finally:
            self._works = False
        return {**asdict(done), "output_table": output}

    def on_kill(self) -> None:
        if self._works and threading.current_thread() is threading.main_thread():
            raise SystemExit(TERMINATED_EXIT_CODE)


class LedgerSparkWorkOperator(LedgerOperator):
    """Runs the worker jobs/work.py in a process of its own, by default until the queue is empty.

    The worker claims messages under a heartbeat, runs `function` (module:name) on a DataFrame of them, writes its rows
    to `output_table`, and acknowledges.

    `submit` is the command up to the job's file: ["spark-submit", "--properties-file", "...", "/opt/jobs/work.py"], or
    a Python that has pyspark, and the file. The operator adds the connection's root and settings. The environment gets
    `env` and the connection's storage options. `arguments` are further arguments of the job: ["--claim", "100000",
    "--reason", "error"].

    The task ends with the process, whose output goes to the task's log. An exit code other than 0 raises LedgerError.
    Wrong arguments raise InvalidParameterValue. If `output_table` is relative, it begins at the folder that holds the
    ledger's root, and the task returns its place.

    If the process fails or is asked to end, it gives its claim back. The method on_kill sends SIGTERM, and after
    `grace` seconds the remaining processes are killed. If Airflow's own worker is killed, the kernel sends SIGTERM to
    the process (on Linux). If the process itself is killed, its claim stays held: a retry before the deadline continues
    with it. If no try follows, the operator gives the claim back.

    With Spark's deploy mode "cluster" the driver is another process, which continues when this process is killed. After
    a retry two workers hold one claim, until one of them acknowledges it.
    """

    template_fields: Sequence[str] = (
        *LedgerOperator.template_fields,
        "submit",
        "function",
        "output_table",
        "arguments",
    )

    def __init__(
        self,
        *,
        submit: Sequence[str],
        function: str,
        output_table: str,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        grace: float = 30.0,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        if isinstance(submit, str) or not submit:
            raise InvalidParameterValue("submit", submit, "Must be a list: a command and its arguments")
        if isinstance(arguments, str):
            raise InvalidParameterValue("arguments", arguments, "Must be a list")
        self.submit = submit
        self.function = function
        self.output_table = output_table
        self.arguments = arguments
        self.env = env
        self.grace = grace
        self._process: TaskProcess | None = None

    def execute(self, context: Context) -> dict[str, str] | None:
        place = self.hook.place
        output = place.output(self.output_table)
        if output != self.output_table:
            self.log.info("the output table %s is %s", self.output_table, output)
        self._process = TaskProcess(self.command(), {**place.environment(), **(self.env or {})}, self.log.info)
        try:
            code = self._process.wait(self.grace)
        except BaseException:
            self._process.terminate(self.grace)
            self._process.wait(self.grace)
            raise
        if code:
            if not has_another_try(context):
                self._give_back()
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            raise LedgerError(f"The worker {how}. What it printed is above")
        return None if output == self.output_table else {"output_table": output}

    def command(self) -> list[str]:
        place = self.hook.place
        settings = ["--settings", place.settings] if place.settings else []
        work_options = ["--function", self.function, "--output", place.output(self.output_table)]
        identity_options = ["--attempt-id", self.attempt_id, "--owner", self.attempt_id]
        return [
            *self.submit,
            place.root,
            self.ledger_queue,
            *work_options,
            *identity_options,
            *settings,
            *self.arguments,
        ]

    def on_kill(self) -> None:
        if self._process is not None:
            self._process.terminate(self.grace)

    def _give_back(self) -> None:
        try:
            released = give_back(self.open_queue(), self.attempt_id)
            self.log.info("gave back %d messages of the last try", released)
        except LedgerError as error:
            self.log.warning("could not give back what the worker held; it runs out by itself: %s", error)
