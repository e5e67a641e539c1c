"""Operators that send, receive and keep a ledger up, and a sensor that waits for work; what all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperator, BaseSensorOperator, PokeReturnValue

from ledger.airflow.claims import attempt_of, told
from ledger.airflow.conditions import Condition, event_of
from ledger.airflow.hook import DEFAULT_CONNECTION, LedgerHook
from ledger.airflow.triggers import LedgerTrigger
from ledger.client.tables import arrow_table
from ledger.errors import InvalidParameterValue
from ledger.ledger import Ledger
from ledger.queue import Queue
from ledger.rules.attempts import RECIPE, shortened
from ledger.upkeep_daemon import LONGEST_PERIOD, Upkeeper, in_words

if TYPE_CHECKING:
    from airflow.sdk import Context


class LedgerOperator(BaseOperator):
    """A task on one queue, `ledger_queue`, of the ledger that the connection names.

    `attempt_id`, a template, tells the task from all others, and is the same for its retries: by default of its DAG,
    run, task and map index. Two deployments of Airflow on one ledger need another one, with their name in it. It is
    also who the receipts ledger names.
    """

    template_fields: Sequence[str] = ("ledger_conn_id", "ledger_queue", "attempt_id")
    ui_color = "#e8f0f7"

    def __init__(
        self,
        *,
        ledger_queue: str,
        ledger_conn_id: str = DEFAULT_CONNECTION,
        attempt_id: str = RECIPE,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.ledger_queue = ledger_queue
        self.ledger_conn_id = ledger_conn_id
        self.attempt_id = attempt_id

    @cached_property
    def hook(self) -> LedgerHook:
        """Opens the ledger, in the process that runs the task."""
        return LedgerHook(self.ledger_conn_id, owner=self.attempt_id)

    def opened_queue(self) -> Queue:
        """The task's queue; raises LedgerDoesNotExist, QueueDoesNotExist, InvalidParameterValue for the connection."""
        return self.hook.get_queue(self.ledger_queue)


def has_another_try(context: Context) -> bool:
    """Whether Airflow tries the task again, should it fail now."""
    task_instance = context["ti"]
    return bool(task_instance.try_number <= task_instance.max_tries)


class LedgerCreateQueueOperator(LedgerOperator):
    """Makes the queue, and the ledger, if there are none. Returns the queue's name.

    `attributes` and `tags` as in `Ledger.create_queue`, whose errors it raises: a queue that is there with another
    value of a given attribute is QueueNameExists.
    """

    template_fields: Sequence[str] = (*LedgerOperator.template_fields, "attributes", "tags")

    def __init__(
        self, *, attributes: Mapping[str, object] | None = None, tags: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(**more)
        self.attributes = attributes
        self.tags = tags

    def execute(self, context: Context) -> str:
        """Makes what is not there; safe to repeat."""
        return self.hook.open(create=True).create_queue(self.ledger_queue, self.attributes, self.tags).name


class LedgerSendOperator(LedgerOperator):
    """Sends messages in one commit, all or nothing, and once: a retry, or the cleared task, does not send them again.

    `messages`, a template: a list of texts or of SQS's entries; Airflow keeps and shows it, as it does all templates.
    Or `function`, which is called when the task runs: it returns these, or an Arrow, pandas or polars table. `options`:
    keyword arguments of `Queue.send` (delay_seconds, message_group_id, message_attributes, message_deduplication_id).
    To send once is to send the same: other messages under the same attempt id are InvalidParameterValue; for these,
    start a new run, or give another `attempt_id`. FIFO queues know a repeated message by its deduplication id instead.
    Returns ledger_queue and how many `messages`; no body and no id goes through an XCom. Raises what `Queue.send` does.
    """

    template_fields: Sequence[str] = (*LedgerOperator.template_fields, "messages", "options")

    def __init__(
        self,
        *,
        messages: Any = None,
        function: Callable[[], Any] | None = None,
        options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        if (messages is None) == (function is None):
            bound = "It, or a function that returns them, says what to send"
            raise InvalidParameterValue("messages", messages, bound, "Give one of the two.")
        self.messages = messages
        self.options = options
        self.function = function

    def execute(self, context: Context) -> dict[str, Any]:
        """Sends."""
        messages = self.messages if self.function is None else self.function()
        queue, attempt = self.opened_queue(), shortened(self.attempt_id)
        options = {**(self.options or {}), "attempt_id": None if self.ledger_queue.endswith(".fifo") else attempt}
        # A reader can be read once only.
        table = arrow_table("messages", messages)
        if table is not None:
            count = queue.send(table, **options).count
        else:
            # What another task returned comes as a sequence of its own kind.
            listed = messages if isinstance(messages, (str, Mapping)) else list(messages)
            count = len(queue.send(listed, all_or_nothing=True, **options))
        self.log.info("sent %d messages to %s", count, self.ledger_queue)
        return {"ledger_queue": self.ledger_queue, "messages": count}


class LedgerReceiveOperator(LedgerOperator):
    """Claims messages for other tasks: `claims` claims of at most `max_messages` each, in one commit.

    Returns a list of what LedgerWorkOperator needs to carry on with each (receipt, count; no body), without empty
    ones, to be expanded over: `LedgerWorkOperator.partial(...).expand(claim=receive.output)`. Nobody beats for a claim
    until its task starts, so `visibility_timeout` (seconds; default: the queue's) has to last until then.
    A retry, also of a worker that was killed before it could say what it claimed, returns the same claims, their
    timeouts restarted. What was acknowledged does not come back: the task, cleared and run again when its claims are
    finished, receives new messages, if there are any. Raises what `Queue.receive_many` does.
    """

    def __init__(
        self,
        *,
        max_messages: int | None = None,
        claims: int = 1,
        visibility_timeout: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        if type(claims) is not int or claims < 1:
            raise InvalidParameterValue("claims", claims, "Must be a number from 1 on")
        if claims > 1 and max_messages is None:
            bound = "The first of several claims would have all messages"
            raise InvalidParameterValue("max_messages", max_messages, bound, "Say how many each may have.")
        self.max_messages, self.claims, self.visibility_timeout = max_messages, claims, visibility_timeout

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Receives, or finds what an earlier try received."""
        attempts = [attempt_of(self.attempt_id, number) for number in range(self.claims)]
        asked = [(self.max_messages, self.visibility_timeout, attempt) for attempt in attempts]
        received = self.opened_queue().receive_many(asked)
        for claim in received:
            if claim.error is not None:
                raise claim.error
        held = [told(claim) for claim in received if claim]
        self.log.info("claimed %d messages of %s in %d claims", sum(map(len, received)), self.ledger_queue, len(held))
        return held


class LedgerUpkeepOperator(BaseOperator):
    """Runs a round of upkeep of the ledger that the connection names.

    `only_if_due`: only where what was committed since the last round makes one due, and no other process is at one; so
    a DAG may run every few minutes, and costs three version numbers where there is nothing to do. Returns what the
    round did, and None where none was run. A retry is another round, which is safe. Raises what `Ledger.upkeep` does.
    """

    template_fields: Sequence[str] = ("ledger_conn_id",)
    ui_color = LedgerOperator.ui_color

    def __init__(
        self,
        *,
        ledger_conn_id: str = DEFAULT_CONNECTION,
        only_if_due: bool = True,
        vacuum: bool = True,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.ledger_conn_id = ledger_conn_id
        self.only_if_due = only_if_due
        self.vacuum = vacuum

    def execute(self, context: Context) -> dict[str, int] | None:
        """Runs the round, or none."""
        ledger = LedgerHook(self.ledger_conn_id).ledger
        if self.only_if_due:
            done = Upkeeper(ledger, LONGEST_PERIOD, vacuum=self.vacuum).run_if_due()
        else:
            done = ledger.upkeep(self.vacuum)
        self.log.info("upkeep: %s", "no round is due" if done is None else in_words(done))
        return None if done is None else dict(vars(done))


class LedgerSensor(BaseSensorOperator):
    """Waits until the queue has `at_least` visible messages, or its oldest one is older than `oldest_older_than`
    (seconds or a timedelta); with neither, until there is a message. Nothing is received.

    With `deferrable` (default: the setting operators.default_deferrable) the triggerer waits, and no worker; else it
    pokes every `poke_interval` seconds. Returns ledger_conn_id, ledger_queue, visible and age_of_oldest. Raises
    InvalidParameterValue, and as its task what opening the ledger raises, and QueueDoesNotExist.
    """

    template_fields: Sequence[str] = ("ledger_conn_id", "ledger_queue")

    def __init__(
        self,
        *,
        ledger_queue: str,
        ledger_conn_id: str = DEFAULT_CONNECTION,
        at_least: int | None = None,
        oldest_older_than: float | timedelta | None = None,
        deferrable: bool | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.ledger_queue = ledger_queue
        self.ledger_conn_id = ledger_conn_id
        age = oldest_older_than.total_seconds() if isinstance(oldest_older_than, timedelta) else oldest_older_than
        self.condition = Condition(at_least, age)
        default = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = default if deferrable is None else deferrable

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, opened to be looked at, once for all pokes of a process."""
        return LedgerHook(self.ledger_conn_id).place.open(read_only=True)

    def execute(self, context: Context) -> Any:
        """Waits, here or in the triggerer; returns what there is."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if found.is_done:
            return found.xcom_value
        trigger = LedgerTrigger(
            self.ledger_queue,
            self.ledger_conn_id,
            self.condition.at_least,
            self.condition.oldest_older_than,
            float(self.poke_interval),
        )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        raise AssertionError("a task that is deferred does not go on")

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """The triggerer has found work: this is it."""
        return event

    def poke(self, context: Context) -> PokeReturnValue:
        """Whether there is work, and how much."""
        counts = self.ledger.queue(self.ledger_queue).counts()
        return PokeReturnValue(self.condition.holds(counts), event_of(self.ledger_conn_id, self.ledger_queue, counts))
