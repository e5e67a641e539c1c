"""The queue object that users call."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from ledger.claim import Claim, receive, receive_many
from ledger.client import queue_settings, sending, settling, transfers
from ledger.client.access import Access
from ledger.client.arrow_rows import SentTable
from ledger.client.explanation import QUEUE_VERBS, Explanation, explain, name_arguments
from ledger.client.move_tasks import MoveTasks
from ledger.client.settling import Settling
from ledger.client.tables import ArrowTable
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.message import Message, public_message
from ledger.notebook import html_view, timeline_plot
from ledger.results import Consumed, Copied, Counts, Exported, HandleOutcome, SendOutcome, Worked
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules import policy
from ledger.rules import redrive as redrive_rules
from ledger.rules.receipt_handle import is_receipt
from ledger.rules.redrive import MoveTask
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
        return html_view.render_queue(self)

    def plot(self, last: float | None = None) -> Figure:
        """Return a matplotlib figure of the message states over time, with claims as bars by their holder.

        Times are UTC. With `last` the figure begins that many seconds ago, by default with the first known send or
        event. It has bars for at most 30 holders.

        Raises:
            InvalidParameterValue: `last` is no number of seconds > 0.
            LedgerError: The ledger is in memory, or matplotlib is not installed.
        """
        figure: Figure = timeline_plot.plot_queue(self.access, last)
        return figure

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.access.name

    @property
    def id(self) -> str:
        """The queue's id. A queue that is made again under the same name has another id."""
        return self.access.made.id

    @property
    def arn(self) -> str:
        """The queue's ARN, by which policies name it. The account and region are the ledger's settings."""
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
        """Send messages in one commit, or in none if no new message is left to send.

        **A DataFrame**: every row is a message. The body is the column `body`, or the column that `body=` names. If
        there is no column `body`, the body is the whole row as JSON. With a body column, the columns delay_seconds,
        message_attributes, message_group_id, message_deduplication_id and aws_trace_header are sent, too. Other columns
        are not sent, and the log warns of them. On a FIFO queue, message_group_id and message_deduplication_id also
        apply if the body is the whole row. Returns a `Sent`, with `count` and `ids()`.

        **An Arrow table**, a pandas or polars DataFrame, or any object with Arrow's PyCapsule interface is sent as a
        DataFrame is. With a Spark session the table goes through Spark. Returns a `SentTable`, whose `ids()` is a
        pyarrow.Table. docs/reference/sending-and-outputs.md has the types of columns.

        **A list** has strings, or entries of SQS: dictionaries with MessageBody, and optionally DelaySeconds,
        MessageAttributes, MessageGroupId, MessageDeduplicationId and AWSTraceHeader. One string or entry may also come
        without a list. The keyword arguments are defaults for the entries. To send a dictionary as a JSON body, use
        `json.dumps`. Returns a SendOutcome for each entry, in order: the message's id as a text, with its sequence
        number and MD5s.

        LOOK AT THE OUTCOMES OF A LIST. As in SQS's batches, a wrong entry is refused alone, and the others are sent.
        The outcome of a refused entry is false and has the error. `all(outcomes)` says whether all were sent. With
        `all_or_nothing=True`, for a table, and for a string or entry without a list, the first error is raised, and
        nothing is sent. If an entry for a FIFO queue lacks its group, or a needed deduplication id, the whole list is
        refused, as in SQS.

        **Retries.** `attempt_id` makes a retry safe: a send that was committed under this id is not sent again, and the
        retry returns its ids. Another send under the same id (other messages, or another queue of the ledger) is an
        error. A FIFO queue takes no attempt id: for 5 minutes it recognizes a repeated message by its deduplication id.

        Under an attempt id a DataFrame is evaluated twice: to count and hash its rows, and to write them. If the
        evaluations differ (in number, bodies, groups or attributes, but not delays), nothing is sent. If Spark commits
        (engine="spark"), the DataFrame is evaluated once, and the executors keep its rows until they are sent.

        Raises:
            InvalidParameterValue: A value is not allowed, a column is missing, or Spark cannot compute the rows. Or the
                DataFrame is a streaming one: send its batches in foreachBatch. Nothing was sent.
            MissingParameter: A body is empty, or a group is missing.
            InvalidMessageContents: A body has a character that SQS does not allow.
            OverLimit: The send would pass the MaximumMessages or MaximumStoredBytes of the queue. Nothing was sent.
            QueueDoesNotExist: The queue was deleted before the call, or while a DataFrame was sent. No message is left.
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
        """Claim up to `max_messages` visible messages (None: all) under one new receipt, in one commit.

        Returns a Claim, which is false if it is empty. When other receivers compete, or a quota is nearly used up, a
        claim may have fewer messages than are visible.

        On FIFO queues a claim has messages in order. A message is not received while an earlier message of its group is
        in flight, delayed or locked. A claim takes all receivable messages of a group before those of the next group.
        The group that has been receivable for longest comes first.

        Visible messages that were received as often as the RedrivePolicy allows move to the dead-letter queue, if that
        queue can take them. For a message in doubt (its `claim.write` was begun and not finished) the receive asks the
        output table. If the message's rows are in the table, the message is deleted. If not, a fence is committed to
        the table, and the message can be received.

        Args:
            visibility_timeout: The claim's timeout in seconds. The default is the queue's VisibilityTimeout.
            wait: For how many seconds to wait if no message can be received. The default is the queue's
                ReceiveMessageWaitTimeSeconds.
            attempt_id: While the claim of an earlier receive under this id is held, the call returns that claim again,
                and restarts its timeout. If that claim holds more than `max_messages` messages, the call raises
                InvalidParameterValue.

        Raises:
            OverLimit: A standard queue with Limits=SQS is at its quota, and the call does not wait. (On a FIFO queue,
                and after a wait, the claim is empty instead.)
            OutputUnreadable: Only messages in doubt are left to receive, and their output table cannot be asked.
            QueueDoesNotExist: The queue was deleted before the call or during the wait, even if it was made again.
        """
        return receive(self.access, max_messages, visibility_timeout, wait, attempt_id)

    def receive_many(self, requests: Sequence[Sequence[int | str | None]]) -> list[Claim]:
        """Receive for several requests in one commit, without waiting.

        Each request is (max_messages, visibility_timeout, attempt_id) as in `receive`. The last values may be left out.
        The result has a Claim for each request, in their order, each with its own receipt. Claims that are not empty
        have the same `version`. Each message goes to one claim only, even with a timeout of 0. On FIFO queues each
        group goes to one new claim only. The call is safe to retry if every request has an attempt id.

        If one request fails, its claim is empty and has the `error`: OverLimit, OutputUnreadable or
        InvalidParameterValue, as in `receive`. The other requests are still served.

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
        """Run a worker's loop, each claim under a heartbeat: claim, run `function`, write its rows, acknowledge.

        Needs Spark. A new claim has up to `max_messages`. `function` gets `Claim.dataframe` and returns rows for the
        table `output`. The rows need the column message_id, which is written. A column receipt_handle is not written.
        `function` returns one of:

        - one DataFrame: the whole claim is done, also messages without a row;
        - one DataFrame, and `reason` names a column of it. A message failed if its row has a value other than null in
          that column, or if the message has no row. Neither the rows of failed messages nor that column are written;
        - (done, failed), two DataFrames. A message with a row in `done` is done, and any other message failed. `failed`
          only has the reasons, in its columns message_id and reason.

        A row to write that names no message of the claim is an error.

        **Failed messages** that `function` reports are released in the commit that acknowledges the others. By the
        queue's RedrivePolicy they become dead letters. Without a policy a message that fails at its third receive, or
        later, is parked (hidden for `park` seconds). With `maximum_receives` a message is parked after that many
        receives, unless the policy made it a dead letter before. With `failures`, each failed message gets a row in
        that table with message_id, reason, verdict, receive_count, receipt_handle and body. The verdict is park,
        release or dead_letter (released, and received as often as the RedrivePolicy allows). With `stamped`, rows of
        both tables also have receipt_id, claim_version, worker and written_at.

        **Errors.** If `function` or Spark raises while the rows are computed, the claim is tried again in halves. Each
        part that succeeds is written and acknowledged by itself, so a function that aggregates then gets only parts of
        the claim. If a message raises alone, it failed, with its own exception as the reason. If everything raises
        alike (see `ledger.work.isolation`), the claim is released uncounted (this receive does not count) and the error
        is raised. docs/reference/outcomes.md has the costs.

        **With `per_row`** the `function` gets a Row of one message in place of the DataFrame, in Spark's Python
        workers. The function returns a dict or a tuple of the columns that `schema`, an Arrow schema, names. If
        `function` raises for a message, the message failed, with the error as the reason. If enough messages fail alike
        and none succeeds (docs/reference/outcomes.md), the claim is released uncounted and a LedgerError is raised.

        **The end.** With `until` "empty" the loop ends when no message is visible, delayed or locked, and no lease or
        postponement ends within the visibility timeout. (On a FIFO queue, messages behind a hidden message of their
        group do not count.) With "once" it ends after one receive, with "forever" never. At an error the current claim
        is released. Its receive counts only if the JVM died or the memory ran out. SIGTERM in the main thread also
        releases the claim, and raises SystemExit, unless other code handles the signal. If others took a claim over,
        the worker receives the next one.

        With `attempt_id` a retry first gets back the claims that the failed run still holds, whatever their size.
        `schema` is as in `Claim.write`. `report` gets a line of text for each step. By default notebooks and prompts
        print the lines, and other processes log them. `bar` is as in `consume`.

        Raises what `function` raises for all messages alike, and what `Claim.write` raises, except LeaseLost.
        """
        of_frame: Callable[..., object] = function
        if per_row:
            from ledger.work.functions import REASON_COLUMN, rowwise

            if reason is not None:
                bound = "With per_row a row that raises has its error as the reason"
                raise InvalidParameterValue("reason", reason, bound, "Leave it out, and raise.")
            self.access.spark("Queue.work")
            of_frame, reason = rowwise(function, schema), REASON_COLUMN
        work = Work(
            of_frame, output, failures, reason, max_messages, visibility_timeout, attempt_id, until, maximum_receives,
            park, stamped, schema, progress.choose_report(report, tasks.work_log.info), bar, per_row,
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
        """Call `handler` for each message, write its rows to the table `output`, and acknowledge, without Spark.

        Each row is written once, and no row is lost, whenever the process is killed. Heartbeats extend the current
        claims.

        Args:
            handler: Gets a Message, or a list of at most `batch` messages. A plain function runs in `concurrency`
                threads, an `async def` in as many tasks of one event loop. The handler returns the message's row (a
                dict, a dataclass or a named tuple), a list of rows, or None. With `batch` it returns None, or a list of
                such answers, one for each message in order. An exception in that list concerns only its message. Rows
                get the column message_id.
            output: A Delta table, as in `Claim.write`. Without an output the handler must return no row.
            processes: How many processes, started by spawn, consume side by side, each with this `concurrency`. If
                there are several, the handler must be a function at the top level of a module.
            max_messages: The most messages of a new claim. By default the size adapts: about as many messages as are
                handled in `flush_seconds`, at most `flush_rows`. A process receives no further claim while it has as
                many unsettled messages as two such claims.
            max_bytes: How many bytes of unsettled bodies each process holds in memory, plus at most one body. While the
                handler raises for all messages, the process may read more, to decide whether the handler is broken.
            visibility_timeout, attempt_id, until: As in `work`. Consumers that run at once must have different attempt
                ids, or none. Under a shared id two consumers handle the same messages twice.
            flush_rows, flush_seconds: The handled messages of a claim are settled together when there are `flush_rows`
                of them, or when the first was handled `flush_seconds` ago. They are also settled when the whole claim
                is handled, or when memory is full (`max_bytes`).
            maximum_receives: A message that fails at this receive, or a later one, is parked (hidden for `park`
                seconds). By default the queue's RedrivePolicy decides. Without a policy the limit is 3.
            retry_after: For how many seconds a message that failed is hidden before its next receive.
            schema: As in `Claim.write`. Columns of numbers that `consume` made, and that no schema declares, become
                wider if later rows need it.
            cost: A column of numbers in the rows. Its sum is reported.
            flush_cost: Messages are also settled when the cost of the unwritten rows reaches this sum. If a process is
                killed, at most about this cost is repeated, besides the running calls.
            group_limits: How many messages of a group the handlers of all processes together may get: one GroupLimit
                for every group, or a dictionary by group, with the key None for all others. A message over its group's
                limit waits, or is released uncounted and hidden until the limit allows it, for at most 60 seconds.
                Messages without a group have no limit.
            limits_folder: Calls of `consume` on one machine that name the same folder share their limits. By default
                the limits hold for the processes of this call.
            bar: Whether to show a progress bar. By default terminals and notebooks show one if `rich` is installed (the
                extra `progress`). Without a bar, lines are reported, at least 10 seconds apart.
            report: As in `work`.

        If the handler raises, only that message fails: it is released, or parked, with the exception as the reason. A
        handler raises `ledger.RetryLater` or `ledger.Reject` for another treatment. A message whose answer cannot be
        written becomes a dead letter at once, or is parked if the queue has no dead-letter queue. Its reason shows what
        the handler returned.

        If a batch raises, the handler is called again with its halves, until each message that raises is alone. If all
        messages raise alike, the claims are released uncounted and the error is raised (rules:
        `ledger.work.handler_calls`). On a FIFO queue each group is handled in order. The group's messages after one
        that is not done are released uncounted.

        The consumer handles SIGTERM and Ctrl-C in the main thread, unless other code handles them. After the first
        signal it waits for running calls, writes finished work, and releases all other messages uncounted. A second
        signal releases at once everything that is not written. At the end SystemExit or KeyboardInterrupt is raised.

        Returns:
            The counts of what was done.

        Raises:
            InvalidParameterValue, SparkIsNeeded: The arguments ask for something that cannot be done. No message was
                claimed.
            Exception: What the handler raises for all messages alike, and what `Claim.write` raises, except LeaseLost.
        """
        consumption = Consumption(
            handler, output, concurrency, batch, processes, max_messages, visibility_timeout, attempt_id, until,
            flush_rows, flush_seconds, maximum_receives, retry_after, park, schema, cost, flush_cost, max_bytes,
            group_limits, limits_folder, progress.choose_report(report, tasks.log.info),
            progress.choose_report(report, tasks.log.warning),
        )  # fmt: skip
        return consume(self.access, consumption, bar)

    def claim(self, receipt_id: str) -> Claim:
        """Return the claim of a receipt, so that another process can continue the work.

        The claim has the messages under this receipt that nobody deleted, released, moved, locked or received again. If
        there are none, or if the receipt is None, the claim is empty and false. `messages()` has the oldest first, on a
        FIFO queue one group after the other. Groups come in the order in which their first messages arrived.

        Raises:
            InvalidParameterValue: The value cannot be a receipt.
        """
        record = self.access.record()
        # Look up nothing under None: messages that nobody received have no receipt, either.
        checked_receipt = receipt_id if is_receipt(receipt_id) else None
        grant = None if checked_receipt is None else self.access.store.held(record, checked_receipt)
        return Claim(self.access, grant, int(record.attributes["VisibilityTimeout"]), asked=checked_receipt)

    def explain(self, verb: str, *arguments: object, **options: object) -> Explanation:
        """Show what a verb would commit now, and change nothing: the statement and its source rows.

        `queue.explain("receive", 10, visibility_timeout=60)` explains `queue.receive(10, visibility_timeout=60)`. A
        receive does not wait unless `wait` is given. For a verb of several commits (the purge of a FIFO queue) the
        result shows the first commit. No argument may be a DataFrame of Spark. The ledger may be open read-only.

        Raises what the verb raises. Raises LedgerError for a ledger in memory. Raises InvalidParameterValue for another
        verb than receive, receive_many, send, delete, change_visibility, settle, lock, purge, restore,
        release_postponed, redrive, set_attributes, set_tags, tag and untag.
        """
        if verb == "receive" and len(arguments) < 3:
            options.setdefault("wait", 0)

        def call(access: Access) -> object:
            return getattr(Queue(access), verb)(*arguments, **options)

        return explain(self.access, verb, QUEUE_VERBS, call, name_arguments(arguments, options))

    def peek(self, message_id: str) -> Message:
        """Return a message of the queue in any state, and change nothing. Raises MessageDoesNotExist."""
        record = self.access.record()
        stored = self.access.store.peek(record, message_id)
        return public_message(record, stored, self.access.clock(), None, self.access.settings.account)

    def lock(self, message_id: str, visibility_timeout: int) -> None:
        """Hide a message that nobody holds, for `visibility_timeout` seconds.

        Raises:
            LedgerError: The message is in flight or deleted.
            MessageDoesNotExist: There is no such message.
            OutputUnreadable: The message is in doubt, and the output table cannot say whether its row is in.
        """
        record = self.access.record()
        bounds.check_visibility_timeout(visibility_timeout, attribute_rules.limits_of(record.attributes))
        if not self.access.store.lock(record, message_id, visibility_timeout, self.access.clock):
            raise LedgerError(
                f"Message {message_id} is in flight or deleted; only a message that nobody holds can be locked"
            )

    def purge(self, older_than: float | None = None) -> int:
        """Delete every message that is in the queue now, in flight or not. Return how many.

        A message that is sent during the call is deleted or stays. A FIFO queue forgets all deduplication ids, so
        messages that were sent before can be sent again.

        With `older_than` (seconds, 0 or more) only messages that were sent longer ago are deleted, by this process's
        clock. The age of a dead letter counts from its first send. No deduplication id is forgotten, and the setting
        purge_interval does not apply.

        Raises:
            PurgeQueueInProgress: Limits is SQS, and the last purge of all messages was less than purge_interval (a
                setting, by default 60 s) ago.
            InvalidParameterValue: The age is no number of seconds.
        """
        age = None if older_than is None else bounds.convert_age("older_than", older_than)
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
        """Send every message of this queue to another queue, of any ledger, and keep them in this queue.

        The call copies every message that is neither deleted nor expired: visible, delayed, locked or in flight. A copy
        has the message's body, attributes, group, deduplication id, trace header and sender, but a new id, and was
        never received. In a standard queue a copy is as old as its message, and a delay continues. A copy that would
        expire at once, or that goes to a FIFO queue, counts as sent now. Each group stays in order, and no copy is left
        out as a duplicate.

        Only messages that arrived before the copy's first call are copied. Messages that are acknowledged or moved
        during the copy may be copied or not: better stop senders and receivers first. This ledger may be open
        read-only.

        The call copies in parts, each one commit. It is safe to retry: the same call again sends only messages that no
        earlier call has sent. To copy the queue once more, give a new `attempt_id`. `bar` and `report` are as in
        `consume`.

        Raises:
            InvalidParameterValue: The target is this queue, or of the other kind (FIFO or standard). Or a message is
                over the target's MaximumMessageSize. The parts before are copied.
            OverLimit: The copy would pass the MaximumMessages or MaximumStoredBytes of the target. The parts before are
                copied.
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
        """Write every message that `copy_to` would copy to a new Parquet file on a local path.

        The file has a row for each message, the oldest first. The columns are message_id, body, message_attributes,
        message_group_id, message_deduplication_id, aws_trace_header, sender_id, sequence_number, sent_at, enqueued_at,
        available_at and receive_count. The queue's attributes are in the file's metadata. A file at `path` is complete,
        and survives a power cut.

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
        """Send the messages of an exported file to this queue, in parts, each one commit.

        Safe to retry: a call with the same file and `attempt_id` sends only messages that no earlier call has sent. To
        import a file once more, give a new `attempt_id`.

        Raises:
            InvalidParameterValue: The file is no export, was changed, or is of the other kind of queue. Or the queue
                refuses a row, which the error names. The parts before this part are imported.
            StorageFailed: The file cannot be read.
        """
        return transfers.import_file(self.access, path, attempt_id, report, bar)

    def release_postponed(self, receipt_id: str | None = settling.ALL_RECEIPTS, reason: str | None = None) -> int:
        """Make messages that are parked or postponed visible now. Return how many.

        `work` and `consume` park messages that failed too often. `consume` and `Claim.write` postpone messages for a
        retry. The view `in_flight` lists them by receipt, state and reason. With a `receipt_id` only messages that were
        released under this receipt become visible (under None, none). Receive counts stay, so `work` and `consume` park
        a parked message again at its next failure. `reason` is as in `Claim.release`. By default each message keeps its
        reason.
        """
        return settling.release_postponed(self.access, receipt_id, reason)

    def restore(self, receipt_id: str) -> int:
        """Make the deleted messages of a claim visible again. Return how many (0 under the receipt None).

        No earlier receipt works on a restored message. Only messages within their retention are restored, and only
        while their receipts are kept (the setting keep_deleted_receipts).

        Messages that a `claim.write` left in doubt under the receipt are restored if their deadline has passed, even if
        their rows are in the output table. If the rows are not in it, the call first commits a fence to the table, so
        that a running writer cannot write them. A table that is gone (missing, or replaced by another table) cannot be
        fenced: if it comes back, that writer could add its rows to those of the next receiver.

        Raises:
            OutputUnreadable: The table exists, but cannot be read or written to. Nothing is restored.
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

        - One handle: returns None. Raises ReceiptHandleIsInvalid if this queue did not issue the handle for the
          message, and InvalidParameterValue if a FIFO queue's handle has expired.
        - A list: returns a HandleOutcome per handle, in order.
        - A DataFrame with a column `receipt_handle`: returns a DataFrame with a row per distinct handle. Its columns
          are strings: receipt_handle, action, outcome, error_code and error_message (the last two are null for a
          success). The DataFrame of handles is evaluated once.
        - An Arrow table (or a pandas or polars DataFrame, or any object with Arrow's PyCapsule interface): returns a
          pyarrow.Table of these columns, with a row for each input row, in order. Needs no Spark.

        A handle whose receipt was replaced (by a later receive, a lock or a restore) changes nothing, and its outcome
        is "stale".
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
        """Set for how many seconds from now messages stay hidden, in one commit. 0 releases them.

        For one handle the call returns None, and raises MessageNotInflight, ReceiptHandleIsInvalid or
        InvalidParameterValue. A list takes one timeout, or a timeout per handle. A table takes one timeout, or the name
        of its column of timeouts. Lists and tables return outcomes, as in `delete`. If there are several timeouts, a
        timeout that is out of bounds or null fails only its own handle.
        """
        if isinstance(receipt_handles, str):
            settling.change_one(self.access, receipt_handles, visibility_timeout)
            return None
        return settling.change_many(self.access, receipt_handles, visibility_timeout)

    def dead_letter_source_queues(self, after: str = "", max_results: int | None = None) -> list[str]:
        """Return the names of the queues whose RedrivePolicy names this queue, sorted.

        For paging, return at most `max_results` names after `after`, the last name of the page before.
        """
        return queue_settings.source_queues(self.access, after, max_results)

    def redrive(
        self, where: str | Sequence[str] | None = None, destination: str | None = None, max_messages: int | None = None
    ) -> int:
        """Move visible messages of this dead-letter queue back to their origins, in one commit. Return how many.

        With `destination` they move to that queue. In the new queue they count as never received, and their retention
        begins now. A message stays if its origin is gone, or cannot take it. From a FIFO queue only messages move that
        a receive would get.

        Args:
            where: A SQL predicate on the view `messages`, such as "receive_count >= 3 AND body LIKE '%late%'" (needs
                Spark), or a list of message ids.
            destination: The name or ARN of a queue.
            max_messages: The most messages to move.

        Raises:
            InvalidParameterValue: `where` is no predicate, `destination` cannot take the messages, or no destination is
                given and no queue's RedrivePolicy names this queue. Nothing is moved.
            QueueDoesNotExist: There is no queue `destination`.
        """
        return queue_settings.redrive(self.access, where, destination, max_messages)

    def start_message_move_task(
        self, destination: str | None = None, max_messages_per_second: int | None = None
    ) -> str:
        """Start moving the messages of this dead-letter queue to their origins, or to `destination`.

        Returns the task's handle, as SQS's StartMessageMoveTask. Without a rate all visible messages move in one
        commit, before the return. With a rate, this process moves about that many messages a second in the background.
        If the process ends, rounds of `Ledger.upkeep` in any process continue the task, each with one step.

        Raises:
            InvalidParameterValue: No queue's RedrivePolicy names this queue, or a task is running already.
            ResourceNotFound: There is no queue `destination`.
        """
        task = self._move_tasks().start(destination, max_messages_per_second, self.dead_letter_source_queues())
        return redrive_rules.encode_handle(task, self.arn)

    def list_message_move_tasks(self, max_results: int = 1) -> list[MoveTask]:
        """Return this queue's latest message move tasks, at most `max_results`. The field `task` has a handle."""
        most = bounds.maximum_messages(max_results, bounds.UNBOUNDED, "MaxResults")
        return [
            task._replace(task=redrive_rules.encode_handle(task, self.arn)) for task in self._move_tasks().all()[:most]
        ]

    def cancel_message_move_task(self, task_handle: str) -> int:
        """Cancel a running task. Return about how many messages it moved: they stay moved.

        Raises:
            InvalidParameterValue: The value is no handle.
            ResourceNotFound: No such task is running.
        """
        return self._move_tasks().cancel(task_handle)

    def _move_tasks(self) -> MoveTasks:
        return MoveTasks(self.access.store, self.access.record(), self.access.clock)

    def attributes(self) -> dict[str, str]:
        """Return all attributes as text, except for SQS's approximate numbers of messages (see `counts`).

        CreatedTimestamp and LastModifiedTimestamp are in seconds. `ledger.rules.attributes.OURS` names the
        attributes that SQS does not have.
        """
        return queue_settings.attributes(self.access)

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Change only the named attributes, for calls that begin later, in one commit or none.

        Changes of different attributes at the same time all take effect. Raises QueueDoesNotExist if the queue was
        deleted, even if it was made again. Raises InvalidAttributeName, InvalidAttributeValue, and
        InvalidParameterValue for a RedrivePolicy or a RedriveAllowPolicy.
        """
        queue_settings.change_attributes(self.access, lambda known: attributes)

    def tags(self) -> dict[str, str]:
        """Return the queue's tags."""
        return dict(self.access.record().tags)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Replace the queue's tags: at most 50, keys of 1 to 128 characters, values of at most 256.

        A key must not begin with aws:.
        """
        queue_settings.change_tags(self.access, lambda known: tags)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Add these tags, or replace tags of the same keys, as SQS's TagQueue."""
        new_tags = attribute_rules.check_tags(tags)
        queue_settings.change_tags(self.access, lambda known: {**known, **new_tags})

    def untag(self, keys: Sequence[str]) -> None:
        """Remove the tags of these keys, as SQS's UntagQueue. Keys that the queue does not have are no error."""
        removed_keys = attribute_rules.check_tag_keys(keys)
        queue_settings.change_tags(
            self.access, lambda known: {key: value for key, value in known.items() if key not in removed_keys}
        )

    def add_permission(self, label: str, account_ids: Sequence[str], actions: Sequence[str]) -> None:
        """Add a statement to the queue's Policy, as SQS's AddPermission.

        Only `ledger serve` enforces the policy. Other processes need only the storage's permissions.

        Raises:
            InvalidParameterValue: The label is wrong or in use, an account's id is wrong, or an action is unknown or
                may not be granted to others.
            OverLimit: There are more than seven actions.
        """
        queue_settings.change_policy(
            self.access, lambda text: policy.with_permission(text, self.arn, label, account_ids, actions)
        )

    def remove_permission(self, label: str) -> None:
        """Remove the statement of this label from the queue's Policy. Raises InvalidParameterValue if there is none."""
        queue_settings.change_policy(self.access, lambda text: policy.without_permission(text, label))

    def counts(self) -> Counts:
        """Return how many messages are in each state, and the oldest message's age. Reads no message body."""
        return queue_settings.counts(self.access)
