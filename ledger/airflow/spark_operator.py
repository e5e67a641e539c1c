"""The operator that works on messages with Spark: jobs/work.py, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ledger.airflow.claims import give_back
from ledger.airflow.operators import LedgerOperator, has_another_try
from ledger.airflow.processes import TaskProcess
from ledger.errors import InvalidParameterValue, LedgerError

if TYPE_CHECKING:
    from airflow.sdk import Context


class LedgerSparkWorkOperator(LedgerOperator):
    """Runs the worker jobs/work.py: it claims, runs `function` (module:name) on a DataFrame of messages, writes its
    rows to the table `output_table` and acknowledges, under a heartbeat, until the queue is empty.

    `submit` is the command, up to the job's file: ["spark-submit", "--properties-file", "...", "/opt/jobs/work.py"], or
    a Python that has pyspark and the file. It is given the connection's root and settings, and in its environment the
    storage options; `env` is added. `arguments` are more of the job's: ["--claim", "100000", "--reason", "error"].
    Ends with the process; its output is the task's log. Fails, with LedgerError, when that ends with another code than
    0, and raises InvalidParameterValue. A relative `output_table` begins at the folder that the ledger's root lies in,
    whatever folder the process works in; the log says where that is, and so does what the task returns.

    The process beats while it runs, and gives its claim back when it fails or is told to end: on_kill sends SIGTERM,
    and after `grace` seconds kills what is left; if Airflow's own worker is killed, the kernel sends SIGTERM (on
    Linux). When the process itself is killed, its claim is kept for the retry, which gets it back and carries on; the
    last try gives it back. (A driver in a cluster's own deploy mode is not this process, and goes on when that is
    killed: then two hold one claim until one of them acknowledges it, and the other learns of it.)
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
        """Runs the process to its end."""
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
        """The command with all its arguments."""
        place = self.hook.place
        settings = ["--settings", place.settings] if place.settings else []
        named = ["--function", self.function, "--output", place.output(self.output_table)]
        owned = ["--attempt-id", self.attempt_id, "--owner", self.attempt_id]
        return [*self.submit, place.root, self.ledger_queue, *named, *owned, *settings, *self.arguments]

    def on_kill(self) -> None:
        """Ends the process, which gives its claim back; the task ends with it."""
        if self._process is not None:
            self._process.terminate(self.grace)

    def _give_back(self) -> None:
        """What the process could not give back, as it was killed. It may be that it held nothing."""
        try:
            queue = self.opened_queue()
            released = give_back(queue, self.attempt_id, int(queue.attributes()["VisibilityTimeout"]))
            self.log.info("gave back %d messages of the last try", released)
        except LedgerError as error:
            self.log.warning("could not give back what the worker held; it runs out by itself: %s", error)
