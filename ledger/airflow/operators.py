"""Operators for queues, sends, receives and upkeep, a sensor, and the operators' base class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperator, BaseSensorOperator, PokeReturnValue

from ledger.airflow.claims import attempt_of, describe_claim
from ledger.airflow.conditions import Condition, event_of
from ledger.airflow.hook import DEFAULT_CONNECTION, LedgerHook
from ledger.airflow.triggers import LedgerTrigger
from ledger.client.tables import read_arrow_table
from ledger.errors import InvalidParameterValue
from ledger.ledger import Ledger
from ledger.queue import Queue
from ledger.rules.attempts import RECIPE, shorten_id
from ledger.upkeep_daemon import LONGEST_PERIOD, Upkeeper, describe_round

if TYPE_CHECKING:
    from airflow.sdk import Context


class LedgerOperator(BaseOperator):
    """A task on one queue, `ledger_queue`, of the ledger that the connection names.

    `attempt_id`, a template, names the task, and is the same for its retries. By default it consists of the DAG, run,
    task and map index. If two deployments of Airflow use one ledger, each needs a template of its own. The view
    `receipts` shows the attempt id as the owner of the task's commits.
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
        return LedgerHook(self.ledger_conn_id, owner=self.attempt_id)

    def open_queue(self) -> Queue:
        """Return the task's queue. Raises LedgerDoesNotExist, QueueDoesNotExist, and InvalidParameterValue."""
        return self.hook.get_queue(self.ledger_queue)


def has_another_try(context: Context) -> bool:
    task_instance = context["ti"]
    return bool(task_instance.try_number <= task_instance.max_tries)


class LedgerCreateQueueOperator(LedgerOperator):
    """Creates the queue, and the ledger, if there are none. Returns the queue's name.

    `attributes`, `tags` and errors are those of `Ledger.create_queue`.
    """

    template_fields: Sequence[str] = (*LedgerOperator.template_fields, "attributes", "tags")

    def __init__(
        self, *, attributes: Mapping[str, object] | None = None, tags: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(**more)
        self.attributes = attributes
        self.tags = tags

    def execute(self, context: Context) -> str:
        return self.hook.open(create=True).create_queue(self.ledger_queue, self.attributes, self.tags).name


class LedgerSendOperator(LedgerOperator):
    """Sends messages in one commit, all or nothing. On a standard queue no retry or cleared task sends them again.

    `messages` is a template: a list of texts or of SQS's entries, which Airflow stores and shows. In its place, a
    `function` is called when the task runs, and returns such a list, or an Arrow, pandas or polars table. `options` are
    keyword arguments of `Queue.send`: for a list delay_seconds, message_group_id, message_attributes and
    message_deduplication_id, for a table `body`.

    A retry must send the same messages: other messages under its attempt id raise InvalidParameterValue. To send them,
    start a new run, or give another `attempt_id`. A FIFO queue takes no attempt id. It recognizes a repeated message by
    its deduplication id, for 5 minutes: a later retry sends the message again.

    Returns ledger_queue and the number of `messages`. Raises what `Queue.send` raises.
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
            bound = "Exactly one of messages and function must be given"
            raise InvalidParameterValue("messages", messages, bound)
        self.messages = messages
        self.options = options
        self.function = function

    def execute(self, context: Context) -> dict[str, Any]:
        messages = self.messages if self.function is None else self.function()
        queue, attempt = self.open_queue(), shorten_id(self.attempt_id)
        options = {**(self.options or {}), "attempt_id": None if self.ledger_queue.endswith(".fifo") else attempt}
        # `messages` may be a reader, which can be read once.
        table = read_arrow_table("messages", messages)
        if table is not None:
            count = queue.send(table, **options).count
        else:
            # Airflow passes another task's result as a sequence of its own type.
            listed = messages if isinstance(messages, (str, Mapping)) else list(messages)
            count = len(queue.send(listed, all_or_nothing=True, **options))
        self.log.info("sent %d messages to %s", count, self.ledger_queue)
        return {"ledger_queue": self.ledger_queue, "messages": count}


class LedgerReceiveOperator(LedgerOperator):
    """Claims messages for other tasks: `claims` claims of at most `max_messages` each, in one commit.

    Returns a list with a description of each claim that is not empty:
    `LedgerWorkOperator.partial(...).expand(claim=receive.output)`. No heartbeat holds a claim before its task starts,
    so `visibility_timeout` (seconds, by default the queue's) has to last until then.

    While the claims are held, a retry returns the same claims with restarted timeouts, even after a worker was killed.
    If the task runs again when the claims are no longer held, it receives new claims. Raises what `Queue.receive_many`
    raises.
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
            raise InvalidParameterValue("claims", claims, "Must be 1 or more")
        if claims > 1 and max_messages is None:
            bound = "The first of several claims would have all messages"
            raise InvalidParameterValue("max_messages", max_messages, bound, "Say how many messages each may have.")
        self.max_messages, self.claims, self.visibility_timeout = max_messages, claims, visibility_timeout

    def execute(self, context: Context) -> list[dict[str, Any]]:
        attempts = [attempt_of(self.attempt_id, number) for number in range(self.claims)]
        receives = [(self.max_messages, self.visibility_timeout, attempt) for attempt in attempts]
        received = self.open_queue().receive_many(receives)
        for claim in received:
            if claim.error is not None:
                raise claim.error
        held = [describe_claim(claim) for claim in received if claim]
        self.log.info("claimed %d messages of %s in %d claims", sum(map(len, received)), self.ledger_queue, len(held))
        return held


class LedgerUpkeepOperator(BaseOperator):
    """Runs a round of upkeep of the connection's ledger.

    With `only_if_due`, the round runs only if one is due and no other process runs one. So a DAG may run every few
    minutes. Returns the round's counts, or None if no round ran. A retry is another round, which is safe. Raises what
    `Ledger.upkeep` raises.
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
        ledger = LedgerHook(self.ledger_conn_id).ledger
        if self.only_if_due:
            done = Upkeeper(ledger, LONGEST_PERIOD, vacuum=self.vacuum).run_if_due()
        else:
            done = ledger.upkeep(self.vacuum)
        self.log.info(
            "upkeep: %s", "no round is due, or another process runs one" if done is None else describe_round(done)
        )
        return None if done is None else dict(vars(done))


class LedgerSensor(BaseSensorOperator):
    """Waits until a queue has work, and receives nothing.

    There is work if at least `at_least` messages are visible. There is also work if a message is visible, and the
    queue's oldest message is older than `oldest_older_than` (seconds or a timedelta). If neither argument is given, one
    visible message is enough.

    The sensor looks every `poke_interval` seconds. With `deferrable` (default: Airflow's setting
    operators.default_deferrable) only the first look is in a worker, and then the triggerer looks. Returns
    ledger_conn_id, ledger_queue, visible and age_of_oldest. Raises InvalidParameterValue, QueueDoesNotExist, and what
    opening the ledger raises.
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
        """The ledger, opened read-only, once for all looks of a process."""
        return LedgerHook(self.ledger_conn_id).place.open(read_only=True)

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        poked = self.poke(context)
        if poked.is_done:
            return poked.xcom_value
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
        return event

    def poke(self, context: Context) -> PokeReturnValue:
        counts = self.ledger.queue(self.ledger_queue).counts()
        return PokeReturnValue(self.condition.holds(counts), event_of(self.ledger_conn_id, self.ledger_queue, counts))
