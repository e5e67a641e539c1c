"""A queue, as users call it.

Each of its methods calls a module of one job; the store does the work.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from ledger.claim import Claim, receive, receive_many
from ledger.client import queue_settings, sending, settling, transfers
from ledger.client.access import Access
from ledger.client.arrow_rows import SentTable
from ledger.client.explanation import OF_QUEUE, Explanation, explain, numbered
from ledger.client.move_tasks import MoveTasks
from ledger.client.settling import Settling
from ledger.client.tables import ArrowTable
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.message import Message, public_message
from ledger.notebook import html_view, timeline_plot
from ledger.results import Consumed, Copied, Counts, Exported, HandleOutcome, SendOutcome, Worked
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules import move_task, policy
from ledger.rules.move_task import MoveTask
from ledger.rules.receipt_handle import is_receipt
from ledger.runtime import progress
from ledger.work import tasks
from ledger.work.consumer_processes import consume
from ledger.work.group_limits import Limits
from ledger.work.tasks import Consumption, Handler, Work
from ledger.work.worker import Worker

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, Row

    from ledger.client.handles import Handles, HandleSequence, Outcomes, Timeouts
    from ledger.store.delta.dataframes.bulk_send import Sent

log = logging.getLogger("ledger.queues")


class Queue(Settling):
    """A queue of a ledger. Threads may share it. Get one from `Ledger.create_queue` or `Ledger.queue`."""

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def _repr_html_(self) -> str:
        return html_view.of_queue(self)

    def plot(self, last: float | None = None) -> Figure:
        """Return a matplotlib figure of the message states over time, with claims as bars by their holder.

        Notebooks show it. Times are UTC. `last` limits the figure to so many seconds until now; without it the figure
        shows all that is known. The data are the receipts, and the part of the log that is not copied there yet. Needs
        matplotlib, and no Spark.

        Raises:
            InvalidParameterValue: `last` is no number of seconds.
        """
        figure: Figure = timeline_plot.of_queue(self.access, last)
        return figure

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.access.name

    @property
    def id(self) -> str:
        """The id of this very queue. A queue that is made again under the same name has another id."""
        return self.access.made.id

    @property
    def arn(self) -> str:
        """The queue's ARN, by which policies name it. Its account and region are settings of the ledger."""
        return self.access.arn

    @overload
    def send(
        self,
        messages: str | Mapping[str, object] | Sequence[str | Mapping[str, object]],
        *,
        attempt_id: str | None = None,
        delay_seconds: int | None = None,
        message_attributes: Mapping[str, object] | None = None,
        message_group_id: str | None = None,
        message_deduplication_id: str | None = None,
        all_or_nothing: bool = False,
    ) -> list[SendOutcome]: ...
    @overload
    def send(self, messages: DataFrame, *, body: str | None = None, attempt_id: str | None = None) -> Sent: ...
    @overload
    def send(self, messages: ArrowTable, *, body: str | None = None, attempt_id: str | None = None) -> SentTable: ...
    def send(
        self,
        messages: str | Mapping[str, object] | Sequence[str | Mapping[str, object]] | DataFrame | ArrowTable,
        *,
        body: str | None = None,
        attempt_id: str | None = None,
        delay_seconds: int | None = None,
        message_attributes: Mapping[str, object] | None = None,
        message_group_id: str | None = None,
        message_deduplication_id: str | None = None,
        all_or_nothing: bool = False,
    ) -> Sent | SentTable | list[SendOutcome]:
        """Send messages in one commit.

        **A DataFrame**: every row is a message; any number of rows. Its body is the column `body` (`body=` names
        another one), or the whole row as JSON when there is no such column. Beside the body the columns delay_seconds,
        message_attributes, message_group_id, message_deduplication_id and aws_trace_header count. A delay on a FIFO
        queue and a deduplication id on another queue are refused. Other columns beside a body are not sent, and the log
        names them once. Returns a `Sent`, without Spark a `SentTable`: count, and `ids()`.

        **An Arrow table** (or a pandas or polars DataFrame, or any object with Arrow's PyCapsule interface) is sent as
        a DataFrame is. It goes through Spark where the ledger has it; `ids()` is a pyarrow.Table. Its
        message_attributes are a map, dicts (pandas), or a struct whose null fields are no attributes. They may also be
        a list of structs of key and value, or JSON objects as texts. Their values are those of a list.

        **A list** of strings (or one string), or of SQS's entries ({"MessageBody": ..., "DelaySeconds",
        "MessageAttributes", "MessageGroupId", "MessageDeduplicationId", "AWSTraceHeader"}): returns a SendOutcome for
        each, in order. It is the message's id, and knows its sequence number and MD5s. A dictionary in a list is always
        such an entry. Another key in it is refused, because a misspelled key would silently change the message. To send
        a dictionary as a JSON body use `json.dumps`; a table's row becomes JSON by itself. The keyword arguments hold
        for all messages of a list that do not say otherwise.

        M2: LOOK AT THE OUTCOMES OF A LIST. As in SQS's batches, a wrong entry is refused alone, and the others are
        sent. Its outcome is false and has the error. `all(outcomes)` says whether all were sent, and the log
        ("ledger.send") warns if not. With `all_or_nothing=True` the error is raised, and nothing is sent. That always
        holds for one string or entry without a list, and for tables. As in the service, it holds for an entry of a FIFO
        queue without its group or deduplication id.

        **Retries.** `attempt_id` makes a retry safe: a send that was committed under it is not sent again, and its ids
        are returned. The same list again under the same id has the same outcomes. An id that stands for another send
        (other messages, another number of them, another queue of the ledger) is an error. In Airflow, {{ dag.dag_id
        }}.{{ run_id }}.{{ task.task_id }}.{{ ti.map_index }} tells a task from all others. FIFO queues take no attempt
        id. They need a group, and know a repeated message by its deduplication id, for 5 minutes (F1).

        Under an attempt id a DataFrame is evaluated once more before it is written. If its rows (their number, bodies,
        groups or attributes) come out differently, of a random UDF say, it is refused, and nothing is sent. With
        engine="spark" it is evaluated once, and the executors keep its rows until they are sent. In both cases a later
        call whose frame computes other rows is another send. Delays are not compared.

        An entry of a list is refused with the errors below that concern its body or group. For a DataFrame they name
        the column and the value.

        Raises:
            InvalidParameterValue: A body is no string, or over the queue's MaximumMessageSize. Also for a streaming
                DataFrame (send its batches, in foreachBatch), for rows that Spark cannot compute, for a keyword
                argument that can hold for no message, and for a missing column. Nothing was sent.
            MissingParameter: A body is empty, or a group is missing.
            InvalidMessageContents: A body has a character that the service does not take (M1).
        """
        common = {
            "delay_seconds": delay_seconds,
            "message_attributes": message_attributes,
            "message_group_id": message_group_id,
            "message_deduplication_id": message_deduplication_id,
        }
        return sending.send(self.access, messages, body, attempt_id, common, all_or_nothing=all_or_nothing)

    def receive(
        self,
        max_messages: int | None = 1,
        visibility_timeout: int | None = None,
        wait: float | None = None,
        attempt_id: str | None = None,
    ) -> Claim:
        """Claim up to `max_messages` visible messages (None: all there are) under one new receipt, in one commit.

        Returns a Claim; an empty one is false. It never has more messages than asked for, and has fewer when other
        receivers compete. On FIFO queues (F2) a claim has the first messages of groups of which none is in flight, in
        order. Groups come in the order in which they became receivable: their first message arrived, or their last hold
        ended. Each group is drained before the next. D1: a message that was received as often as the queue's
        RedrivePolicy allows goes to the dead-letter queue instead. Messages that a `claim.write` left in doubt and
        whose table cannot be asked are left alone. Others are received beside them.

        Args:
            visibility_timeout: For this claim, in seconds; without it the queue's VisibilityTimeout.
            wait: For how many seconds to wait for a message when there is none; without it the queue's
                ReceiveMessageWaitTimeSeconds.
            attempt_id: While the attempt's earlier claim is held, the same id returns that claim again, its timeout
                restarted. It is an error when that claim is larger than `max_messages`. Every task needs an id of its
                own, as for `send`.

        Raises:
            OverLimit: Q2, Q3: an SQS-limited standard queue is at its quota, and the call does not wait. FIFO returns
                none.
            OutputUnreadable: All there is was left in doubt, and the table, which the error names, cannot be asked.
            QueueDoesNotExist: The queue is gone, also when it is deleted during the wait, whether it is made anew or
                not.
        """
        return receive(self.access, max_messages, visibility_timeout, wait, attempt_id)

    def receive_many(self, requests: Sequence[Sequence[int | str | None]]) -> list[Claim]:
        """Receive for several requests in one commit, which costs about as much as one receive of all their messages.

        Each request is (max_messages, visibility_timeout, attempt_id) as in `receive`; the last ones may be left out.
        The call does not wait. It returns a Claim for each request, in their order, with a receipt of its own. The
        claims are those of receives one after the other at one instant, with one difference: each message goes to one
        claim only, also with a timeout of 0. On FIFO queues (F2) no group goes to two new claims: no claim gets what
        another leaves of its last group. A request whose attempt holds a claim gets that claim again. All granted
        claims have the same `version`. Safe to retry where every request has an attempt id.

        An error of one request leaves the others as they are: its claim is empty and has the `error`. That is OverLimit
        once a standard queue's quota is used up, by claims of this call too (Q2); InvalidParameterValue when its
        attempt holds more than it asks for; OutputUnreadable as in `receive`.

        Raises:
            InvalidParameterValue: A request is wrong, or two requests have the same attempt id. Nothing was received.
        """
        return receive_many(self.access, requests)

    def work(
        self,
        function: Callable[[DataFrame], DataFrame | tuple[DataFrame, DataFrame]] | Callable[[Row], object],
        output: str | os.PathLike[str],
        *,
        per_row: bool = False,
        failures: str | os.PathLike[str] | None = None,
        reason: str | None = None,
        max_messages: int | None = None,
        visibility_timeout: int | None = None,
        attempt_id: str | None = None,
        until: str = "empty",
        maximum_receives: int | None = None,
        park: int = 3_600,
        stamped: bool = False,
        schema: str | pa.Schema | None = None,
        bar: bool | None = None,
        report: Callable[[str], None] | None = None,
    ) -> Worked:
        """Run a worker's loop under a heartbeat: claim, run `function`, write its rows, acknowledge, repeat.

        Needs Spark. Each claim has up to `max_messages`. `function` gets `Claim.dataframe` and returns rows for the
        table `output`. Their column message_id is written, too. A column receipt_handle is not written: handles end
        with the claim. `function` returns one of:

        - one DataFrame: the whole claim is done, messages without a row too;
        - one DataFrame, and `reason` names a column of it. A message failed where that column has a value. Every value
          but null is one: "", 0, False and NaN too. The DataFrame is computed once. Such rows are not written, nor is
          that column;
        - (done, failed), with the columns message_id and reason in `failed`: a message with a row in `done` is done. A
          message without one failed. `failed` only tells why. It is computed apart, and only if something is left.

        A row that names no message of the claim is an error.

        **Failed messages** are released in the commit that acknowledges the others. The queue's RedrivePolicy says
        after how many receives a message is a dead letter. Without a policy the message is parked once it was received
        3 times: hidden for `park` seconds. With `maximum_receives` it is parked after so many receives, whatever the
        policy says. Failed messages and their reasons pass through the driver. Each gets a row in the table `failures`,
        if there is one, with message_id, reason, verdict, receive_count, receipt_handle and body. The verdict is
        release, park, or dead_letter for the last receive that the queue's RedrivePolicy allows. With `stamped`, rows
        of both tables also have receipt_id, claim_version, worker and written_at.

        **Errors.** Where `function` raises, or Spark does while it computes the rows, the claim is tried again in
        halves, at most log2(n) times. Each part that succeeds is written and acknowledged by itself. Messages that
        raise alone have failed, each with its own exception as the reason. A function that aggregates over the claim
        then sees parts of it. Where everything raises alike, the claim is released and the error is raised. One message
        that raises in a claim of n costs at most 2 log2(n) + 3 more calls. Where each row stands for itself, `per_row`
        costs none.

        **With `per_row`** the `function` gets a Row of one message in place of the DataFrame, in Spark's Python
        workers. It returns a dict or a tuple of the columns that `schema`, an Arrow schema, names. A message for which
        it raises failed, with its error as the reason. Nothing is computed again (`ledger.work.functions.safely`). If
        all messages of a claim fail alike, the claim is released, and a LedgerError says so. At least three of them
        must have been received for the first time.

        **The end.** `until` "empty" ends when nothing is stored and no lease ends within the visibility timeout: the
        loop waits for what a dead worker held. "once" ends after one receive, "forever" never. At any error the claim
        in hand is released. That receive counts only where the JVM or the memory came to its end. SIGTERM in the main
        thread does the same, and ends as SystemExit. A claim that others took over is left to them.

        With `attempt_id` a retry gets back what the failed run still holds, before new work. `schema` is as in
        `Claim.write`. `report` gets a line of text for each step. Without it the lines are printed in notebooks and at
        prompts, and logged elsewhere. `bar` is as in `consume`; each claim moves it on.

        Returns what it did. Raises what `function` and `Claim.write` raise for everything alike, but not LeaseLost.
        """
        of_frame: Callable[..., object] = function
        if per_row:
            from ledger.work.functions import REASON, rowwise

            if reason is not None:
                bound = "With per_row a row that raises has its error as the reason"
                raise InvalidParameterValue("reason", reason, bound, "Leave it out, and raise.")
            self.access.spark("Queue.work")
            of_frame, reason = rowwise(function, schema), REASON
        work = Work(
            of_frame, output, failures, reason, max_messages, visibility_timeout, attempt_id, until, maximum_receives,
            park, stamped, schema, progress.report(report, tasks.work_log.info), bar, per_row,
        )  # fmt: skip
        return Worker(self.access, work).run()

    def consume(
        self,
        handler: Handler,
        output: str | os.PathLike[str] | None = None,
        *,
        concurrency: int = 32,
        batch: int | None = None,
        processes: int = 1,
        max_messages: int | None = None,
        visibility_timeout: int | None = None,
        attempt_id: str | None = None,
        until: str = "empty",
        flush_rows: int = 10_000,
        flush_seconds: float = 5.0,
        maximum_receives: int | None = None,
        retry_after: int = 0,
        park: int = 3_600,
        schema: str | pa.Schema | None = None,
        cost: str | None = None,
        flush_cost: float | None = None,
        max_bytes: int = 128 << 20,
        group_limits: Limits | None = None,
        limits_folder: str | os.PathLike[str] | None = None,
        bar: bool | None = None,
        report: Callable[[str], None] | None = None,
    ) -> Consumed:
        """Call `handler` for each message, write its rows to the table `output`, and acknowledge; without Spark.

        Each row is written once, and no row is lost, wherever the process is killed: rows and acknowledgements are one
        `Claim.write`. The claims in hand are under heartbeats.

        Args:
            handler: Gets a Message, or with `batch` a list of at most so many. `concurrency` threads call a plain
                function; as many tasks of one event loop call an `async def`. It returns the message's row (a dict, a
                dataclass or a named tuple), a list of rows, or None for no row. With `batch` it returns None, or a list
                with such an answer for each message, in their order. An exception in that list belongs to its message
                alone. Rows get the column message_id.
            output: A Delta table, as in `Claim.write`. Without one the handler must return None, and messages are
                deleted.
            processes: How many processes, started by spawn, consume side by side, each with this `concurrency`. The
                handler must be importable: a function at the top level of a module. The messages of a process that is
                killed come back when their lease ends, and the others go on.
            max_messages: Of one claim. Without it a claim holds about as many as are handled in `flush_seconds`, and no
                more than fit in `max_bytes`. At most two claims are in hand.
            max_bytes: How many bytes of bodies each process holds in memory, and one body more. Bodies count while
                their messages wait, are with the handler, or have rows that are not written yet. The process reads more
                only while the handler raises for everything, until it is known whether it is broken.
            visibility_timeout, attempt_id, until: As in `work`. Consumers that run at once have each an `attempt_id` of
                their own, or none. Under a shared id they have the same messages, and pay for them twice, until one of
                them finds rows of the other. It counts these messages as lost, warns, and receives others from then on.
            flush_rows, flush_seconds: Messages are settled in one commit when so many are handled, when the first of
                them was handled so long ago, or when all of their claim are handled.
            maximum_receives: A message that failed so often is parked: hidden for `park` seconds. Without it the
                queue's RedrivePolicy decides; without a policy the limit is 3.
            retry_after: For so many seconds a message that failed is hidden before it is received again.
            schema: As in `Claim.write`. Without it a table that `consume` made has columns of numbers that become wider
                where later rows need it.
            cost: A column of numbers in the rows, of which the sum is reported.
            flush_cost: Messages are also settled when the rows that are not written yet have cost so much. A process
                that is killed repeats about so much, and the calls that ran.
            group_limits: How much of a message group may be with handlers, in all processes together. It is a
                GroupLimit for each group, or a dictionary of them by group; None in it is for each group that it does
                not name. A message that its group's limit refuses is released uncounted, hidden until its turn. Other
                groups go on. Messages without a group have no limit.
            limits_folder: Several `consume` on one machine that name the same folder share their limits. Without it
                limits hold for the processes of this call.
            bar: True shows a progress bar, False does not. Without it terminals and notebooks have one where `rich` is
                installed (the extra `progress`). Elsewhere a line is reported every 10 seconds.
            report: As in `work`.

        A handler that raises fails its message alone: the message is released with the exception as the reason. An
        answer that cannot be written fails its message, too, and the handler is not called for it again. The message is
        a dead letter at once, or parked. Its reason has what the handler returned (500 characters, of 100 messages a
        commit). A batch that raises is called again in halves until the messages that raise stand alone.
        `ledger.RetryLater` and `ledger.Reject` say otherwise. Where everything raises alike, the claims are released
        uncounted, and the error is raised; `ledger.work.handler_evidence` has the rules. On a FIFO queue each group is
        handled in order, one message or batch at a time. Messages behind a released message are released uncounted,
        too.

        SIGTERM, and the first Ctrl-C, in the main thread drain. No new call begins, and running calls are waited for.
        Finished work is written, the rest is released uncounted. The second one releases everything at once. Then
        SystemExit or KeyboardInterrupt is raised.

        Returns:
            What was done.

        Raises:
            InvalidParameterValue, SparkIsNeeded: The call cannot be done. No message was claimed.
            Exception: What the handler raises for everything alike, and what `Claim.write` raises, but LeaseLost.
        """
        consumption = Consumption(
            handler, output, concurrency, batch, processes, max_messages, visibility_timeout, attempt_id, until,
            flush_rows, flush_seconds, maximum_receives, retry_after, park, schema, cost, flush_cost, max_bytes,
            group_limits, limits_folder, progress.report(report, tasks.log.info),
            progress.report(report, tasks.log.warning),
        )  # fmt: skip
        return consume(self.access, consumption, bar)

    def claim(self, receipt_id: str) -> Claim:
        """Return the claim of a receipt, so that another process can carry on.

        The claim has the messages that nobody deleted or took. It is empty, and so false, where nothing is held under
        the receipt any more: `if claim:` tells. On a FIFO queue `messages()` has each group in order and by itself, and
        the groups as their first messages arrived. The order in which they were granted is not recorded. The same holds
        for an attempt that gets its claim again. None, the receipt of an empty claim, gives an empty claim.

        Raises:
            InvalidParameterValue: The value cannot be a receipt.
        """
        record = self.access.record()
        # An empty claim has no receipt. Its None must not find the messages that nobody received, which have no receipt
        # either.
        checked_receipt = receipt_id if is_receipt(receipt_id) else None
        grant = None if checked_receipt is None else self.access.store.held(record, checked_receipt)
        return Claim(self.access, grant, int(record.attributes["VisibilityTimeout"]), asked=checked_receipt)

    def explain(self, verb: str, *arguments: object, **options: object) -> Explanation:
        """Show what a verb would commit now, and change nothing: the statement and its source rows.

        `queue.explain("receive", 10, visibility_timeout=60)` explains `queue.receive(10, visibility_timeout=60)`. The
        verb reads and decides as ever, and ends where it would commit. Its return value is not known, and a receive
        does not wait. A verb of two commits (the purge of a FIFO queue) shows the first. Handles and messages are lists
        or Arrow tables. Works with each value of the setting `merge`, and on a ledger that is open read-only. `print`
        shows the result as text.

        Raises what the verb raises. Raises InvalidParameterValue for another verb than receive, receive_many, send,
        delete, change_visibility, settle, lock, purge, restore, release_postponed, redrive, set_attributes, set_tags,
        tag and untag.
        """
        if verb == "receive" and len(arguments) < 3:
            options.setdefault("wait", 0)

        def call(access: Access) -> object:
            return getattr(Queue(access), verb)(*arguments, **options)

        return explain(self.access, verb, OF_QUEUE, call, numbered(arguments, options))

    def peek(self, message_id: str) -> Message:
        """V11: return a message in any state, and change nothing. Raises MessageDoesNotExist."""
        record = self.access.record()
        stored = self.access.store.peek(record, message_id)
        return public_message(record, stored, self.access.clock(), None, self.access.settings.account)

    def lock(self, message_id: str, visibility_timeout: int) -> None:
        """V12: hide a message that nobody holds for so many seconds.

        Raises:
            LedgerError: The message is in flight or deleted.
            MessageDoesNotExist: There is no such message.
            OutputUnreadable: A `claim.write` left the message in doubt, and the output table cannot say whether its row
                is in.
        """
        record = self.access.record()
        bounds.visibility_timeout(visibility_timeout, attribute_rules.limits_of(record.attributes))
        if not self.access.store.lock(record, message_id, visibility_timeout, self.access.clock):
            raise LedgerError(
                f"Message {message_id} is in flight or deleted; only a message that nobody holds can be locked"
            )

    def purge(self, older_than: float | None = None) -> int:
        """Delete every message there is now, in flight or not; return how many. Messages that are sent meanwhile stay.

        M3: a FIFO queue forgets all deduplication ids, also when it is empty: a message that was sent before is sent
        again. With `older_than` (seconds, 0 or more) only messages that were sent longer ago are deleted, counted from
        the call by this process's clock. Such a purge is one commit, forgets no deduplication id, and has no interval.
        The age of a dead letter counts from its first send. A holder of a purged message keeps its copy of it. As after
        a delete, its receipt changes nothing any more.

        Raises:
            PurgeQueueInProgress: With Limits=SQS, within the setting purge_interval (60 s) of the last purge of all
                messages.
            InvalidParameterValue: The age is no number of seconds.
        """
        age = None if older_than is None else bounds.milliseconds_of_age("older_than", older_than)
        count = self.access.store.purge(self.access.record(), self.access.clock, age)
        log.info("%d messages of %s were purged", count, self.name)
        return count

    def copy_to(
        self,
        target: Queue,
        *,
        attempt_id: str | None = None,
        bar: bool | None = None,
        report: Callable[[str], None] | None = None,
    ) -> Copied:
        """Send every message of this queue to another queue, of this ledger or another one, and keep them here.

        Copied is every message that is neither deleted nor expired: visible, delayed, locked or held. A copy has the
        body, attributes, group, deduplication id, trace header and sender, and was never received. The message ids are
        others. In a standard queue a copy is as old as its message, and a delay goes on. If the target's
        MessageRetentionPeriod would end such a copy at once, it is new. In a FIFO queue a copy is sent now, because
        arrival decides the order. Each group is in order, and no deduplication id leaves one out.

        Only messages that arrived before the call began are copied, held ones too. Stop the senders and receivers of
        this queue, or read in the source and the target what they did meanwhile. This ledger may be open read-only.

        Safe to retry, and beside another call: each part is one commit, which also notes the copy's progress. The same
        call again sends what is missing, and nothing twice: nothing at all where the copy was complete. To copy the
        queue once more give an `attempt_id`, another one each time. `bar` and `report` are as in `consume`.

        Raises:
            InvalidParameterValue: The target is of the other kind (FIFO or standard), or a message is over the target's
                MaximumMessageSize. The messages before it are copied, and the same call goes on.
            QueueDoesNotExist: A queue is gone.
        """
        if not isinstance(target, Queue):
            raise InvalidParameterValue("target", target, "Must be a Queue", "Such as Ledger.open(root).queue(name).")
        return transfers.copy(self.access, target.access, attempt_id, report, bar)

    def export_to(
        self,
        path: str | os.PathLike[str],
        *,
        bar: bool | None = None,
        report: Callable[[str], None] | None = None,
    ) -> Exported:
        """Write every message that this queue has, as `copy_to` says, to a new Parquet file on a local path.

        The file has a row for each message, in order: message_id, body, message_attributes, message_group_id,
        message_deduplication_id, aws_trace_header, sender_id, sequence_number, sent_at, enqueued_at, available_at and
        receive_count. The queue's attributes are in the file's metadata. The messages stay in the queue. The file is
        either complete, and survives a power cut, or not there.

        Raises:
            InvalidParameterValue: The name is taken, or there is no folder to write in.
            StorageFailed: The storage cannot be read or written.
        """
        return transfers.export(self.access, path, report, bar)

    def import_from(
        self,
        path: str | os.PathLike[str],
        *,
        attempt_id: str | None = None,
        bar: bool | None = None,
        report: Callable[[str], None] | None = None,
    ) -> Copied:
        """Send the messages of an exported file to this queue, as `copy_to` sends those of a queue.

        Safe to retry, as `copy_to` is: the same file again sends what is missing, and nothing twice. To import a file
        once more give an `attempt_id`.

        Raises:
            InvalidParameterValue: The file is no export, was changed, or is of the other kind of queue. Or the queue
                does not take a row, which the error names.
            StorageFailed: The file cannot be read.
        """
        return transfers.import_file(self.access, path, attempt_id, report, bar)

    def release_postponed(self, receipt_id: str | None = None, reason: str | None = None) -> int:
        """Make messages that are parked or postponed visible now; return how many.

        `work` and `consume` parked them because they failed too often; these, RetryLater or a group's limit postponed
        them. The view `in_flight` lists them by receipt, state and reason. Nobody holds these messages. With a
        `receipt_id` only those released under it become visible. A message that somebody receives meanwhile stays with
        its receiver. Counts of receives stay, so that a parked message is parked again at its next failure. `reason` is
        as in `Claim.release`; without one each message keeps the reason for which it was parked or postponed.
        """
        return settling.release_postponed(self.access, receipt_id, reason)

    def restore(self, receipt_id: str) -> int:
        """Undo the acknowledgement of a claim: make its deleted messages visible; return how many.

        Old receipts stay stale. The receipts ledger keeps both, the deletion and the restoring. Only messages within
        their retention are restored, and only while their receipts are kept (the setting keep_deleted_receipts).
        Returns 0 when nothing was deleted under the receipt, it is forgotten, or there is none (None).

        A `claim.write` may have left messages in doubt under the receipt. These are restored once their deadline has
        passed, whether their rows are in or not. The output table is asked first. A write that is not in is fenced off,
        so that a writer that still runs somewhere cannot write its rows later. A table that is gone (there is none, or
        another one in its place) cannot be fenced off: the call then trusts the owner that the table is gone for good.
        If the table comes back, or is made anew, such a writer could write its rows beside those of the next receiver.

        Raises:
            OutputUnreadable: The table is there and cannot be read or written to. Nothing is restored.
            InvalidParameterValue: The value cannot be a receipt.
        """
        if not is_receipt(receipt_id):
            return 0
        return self.access.store.restore(self.access.record(), receipt_id, self.access.clock)

    @overload
    def delete(self, receipt_handles: str) -> None: ...
    @overload
    def delete(self, receipt_handles: HandleSequence) -> list[HandleOutcome]: ...
    @overload
    def delete(self, receipt_handles: DataFrame) -> DataFrame: ...
    @overload
    def delete(self, receipt_handles: ArrowTable) -> pa.Table: ...
    def delete(self, receipt_handles: str | Handles) -> Outcomes | None:
        """Acknowledge messages, in one commit.

        - One handle: succeeds (V8, V10, V13), but raises ReceiptHandleIsInvalid if the handle is not of this queue.
        - A list: returns a HandleOutcome per handle, in order.
        - A DataFrame with a column `receipt_handle`: returns a DataFrame of receipt_handle, action, outcome, error_code
          and error_message (strings; both null for a success), a row per distinct handle. It is evaluated once, and the
          outcomes are of exactly the handles that were acted on.
        - An Arrow table (or a pandas or polars DataFrame, or any object with Arrow's PyCapsule interface): returns a
          pyarrow.Table of the same columns, a row for each row, in order. Needs no Spark.

        A receipt that a later receive replaced changes nothing; its outcome is "stale".
        """
        if isinstance(receipt_handles, str):
            settling.delete_one(self.access, receipt_handles)
            return None
        return settling.delete_many(self.access, receipt_handles)

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
        """Set how many seconds from now messages stay hidden; 0 releases them. One commit.

        One handle: raises MessageNotInflight, ReceiptHandleIsInvalid, InvalidParameterValue. A list takes one timeout,
        or one per handle. A table takes one timeout, or the name of its column of timeouts. Both return outcomes, as
        `delete`. When there are several timeouts, one that is out of bounds or null fails its own handle only (M2).
        """
        if isinstance(receipt_handles, str):
            settling.change_one(self.access, receipt_handles, visibility_timeout)
            return None
        return settling.change_many(self.access, receipt_handles, visibility_timeout)

    def dead_letter_source_queues(self, after: str = "", max_results: int | None = None) -> list[str]:
        """Return the names of the queues whose RedrivePolicy names this one, in order.

        As SQS's ListDeadLetterSourceQueues. For paging, return at most `max_results` behind the name `after` (SQS's
        NextToken: the last name of the page before).
        """
        return queue_settings.source_queues(self.access, after, max_results)

    def redrive(
        self, where: str | Sequence[str] | None = None, destination: str | None = None, max_messages: int | None = None
    ) -> int:
        """D2: move visible messages of this dead-letter queue back to their origins, in one commit; return how many.

        With `destination` (a queue's name or ARN) they go to that queue. There they are new: never received, kept from
        now on. A message whose origin is gone stays.

        Args:
            where: A SQL predicate on the view `messages` (such as "receive_count >= 3 AND body LIKE '%late%'"; needs
                Spark), or a list of message ids.
            destination: The name or ARN of a queue.
            max_messages: At most so many messages move.

        Raises:
            InvalidParameterValue: `where` is no predicate, in the parser's words. Or there is no destination, and no
                queue's RedrivePolicy names this one: its messages are work, wherever they came from. Nothing is moved.
        """
        return queue_settings.redrive(self.access, where, destination, max_messages)

    def start_message_move_task(
        self, destination: str | None = None, max_messages_per_second: int | None = None
    ) -> str:
        """Start moving the messages of this dead-letter queue to their origins, or to `destination`.

        As SQS's StartMessageMoveTask. Returns the task's handle, which like the service's tells the queue's ARN.
        Without a rate all messages move in one commit, before the return. With one, this process moves that many a
        second in the background. If the process ends, `Ledger.upkeep` in any process carries the task on.

        Raises:
            InvalidParameterValue: No queue names this one in its RedrivePolicy, or a task is running already.
            ResourceNotFound: There is no queue `destination`.
        """
        task = self._move_tasks().start(destination, max_messages_per_second, self.dead_letter_source_queues())
        return move_task.handle_of(task, self.arn)

    def list_message_move_tasks(self, max_results: int = 1) -> list[MoveTask]:
        """Return the latest message move tasks of this queue, the latest first; `task` is each one's handle."""
        most = bounds.maximum_messages(max_results, bounds.UNBOUNDED, "MaxResults")
        return [task._replace(task=move_task.handle_of(task, self.arn)) for task in self._move_tasks().all()[:most]]

    def cancel_message_move_task(self, task_handle: str) -> int:
        """Cancel a running task; return about how many messages it had moved, which stay moved.

        Raises:
            InvalidParameterValue: The value is no handle.
            ResourceNotFound: No such task is running.
        """
        return self._move_tasks().cancel(task_handle)

    def _move_tasks(self) -> MoveTasks:
        return MoveTasks(self.access.store, self.access.record(), self.access.clock)

    def attributes(self) -> dict[str, str]:
        """Return all attributes as text, as SQS does.

        QueueArn, CreatedTimestamp and LastModifiedTimestamp (seconds) are among them.
        `ledger.rules.attribute_kinds.OURS` names those that SQS does not have.
        """
        return queue_settings.attributes(self.access)

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Change the named attributes, for receives from now on, and no other.

        Every change of a queue is one commit on this very queue. Changes at the same time all count, and none reaches a
        queue that was made anew under the name (QueueDoesNotExist). Raises InvalidAttributeName, InvalidAttributeValue;
        InvalidParameterValue for a RedrivePolicy or a RedriveAllowPolicy.
        """
        queue_settings.change_attributes(self.access, lambda known: attributes)

    def tags(self) -> dict[str, str]:
        """Return the queue's tags."""
        return dict(self.access.record().tags)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Replace the queue's tags: at most 50, keys of 1 to 128 characters, values of at most 256.

        A key must not begin with aws:, which is the service's own.
        """
        queue_settings.change_tags(self.access, lambda known: tags)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Add these tags, over those of the same keys, as SQS's TagQueue; at most 50 in all."""
        new_tags = attribute_rules.tags(tags)
        queue_settings.change_tags(self.access, lambda known: {**known, **new_tags})

    def untag(self, keys: Sequence[str]) -> None:
        """Remove the tags of these keys, as SQS's UntagQueue; keys that the queue does not have are no error."""
        removed_keys = attribute_rules.tag_keys(keys)
        queue_settings.change_tags(
            self.access, lambda known: {key: value for key, value in known.items() if key not in removed_keys}
        )

    def add_permission(self, label: str, account_ids: Sequence[str], actions: Sequence[str]) -> None:
        """Add a statement to the queue's Policy, as SQS's AddPermission.

        The policy is stored. Only `ledger serve` enforces it, on its callers: the storage decides who may read and
        write a ledger.

        Raises:
            InvalidParameterValue: The label is in use, or an action is not granted to others.
            OverLimit: There are more than seven actions.
        """
        queue_settings.change_policy(
            self.access, lambda text: policy.with_permission(text, self.arn, label, account_ids, actions)
        )

    def remove_permission(self, label: str) -> None:
        """Remove the statement of this label from the queue's Policy.

        Raises InvalidParameterValue when there is none.
        """
        queue_settings.change_policy(self.access, lambda text: policy.without_permission(text, label))

    def counts(self) -> Counts:
        """Return how many messages are in each state, and the oldest one's age, without reading a message."""
        return queue_settings.counts(self.access)
