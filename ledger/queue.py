"""A queue: what users call. What it does is in modules of one job each; the store does the work."""

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
        """A picture, as a matplotlib figure (which notebooks show): how many messages were in which state over time,
        and claims as bars, by who held them. Times are UTC. `last`: of so many seconds until now; without it all
        that is known. From the receipts, and the log of what is not copied there yet; needs no Spark, and matplotlib.
        Raises InvalidParameterValue for a `last` that is no number of seconds."""
        figure: Figure = timeline_plot.of_queue(self.access, last)
        return figure

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.access.name

    @property
    def id(self) -> str:
        """Names this very queue: made again under the same name, it has another."""
        return self.access.made.id

    @property
    def arn(self) -> str:
        """The queue's ARN, which policies name it by; its account and region are settings of the ledger."""
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
        """Sends messages in one commit.

        A DataFrame: every row is a message, its body the column `body` (name another one with `body=`), or the whole
        row as JSON when there is no such column; any number of rows. Beside the body the columns delay_seconds,
        message_attributes, message_group_id, message_deduplication_id and aws_trace_header count, but
        that a delay for a FIFO queue and a deduplication id for another one are refused. Other columns beside a body
        are not sent, and the log names them once. Returns a `Sent`, without Spark a `SentTable`: count, and `ids()`.
        An Arrow table (or a pandas or polars DataFrame, or what else has Arrow's PyCapsule interface): as a DataFrame,
        through Spark where the ledger has it; `ids()` is a pyarrow.Table. Its message_attributes are a map, dicts
        (pandas), a struct whose null fields are no attributes, a list of structs of key and value, or JSON objects
        as texts; their values are those of a list.
        A list of strings (or one string), or of SQS's entries ({"MessageBody": ..., "DelaySeconds",
        "MessageAttributes", "MessageGroupId", "MessageDeduplicationId", "AWSTraceHeader"}): returns a SendOutcome for
        each, in order, which is the message's id, and knows its sequence number and MD5s.
        A dictionary of a list is always such an entry, and refused when it has another key: a misspelled key would
        change the message in silence. `json.dumps` of it is its JSON as a body, which a table's row is by itself.
        M2: LOOK AT THE OUTCOMES OF A LIST. As in SQS's batches an entry that is wrong is refused alone, and the others
        are sent; its outcome is false and has the error. `all(outcomes)` says whether all were sent, and the log
        ("ledger.send") warns if not. With `all_or_nothing=True` the error is raised, and nothing is sent; so it is
        always for one string or entry without a list, for tables, and, as in the service, for an entry of a FIFO queue
        without its group or deduplication id.
        The keyword arguments hold for all messages of a list that do not say otherwise.
        `attempt_id` makes a retry safe: a send that was committed under it is not sent again, its ids are returned.
        FIFO queues take none: they know a repeated message by its deduplication id.
        Under an id that stands for another send (other messages, another number of them, another queue of the ledger)
        it is an error: in Airflow, {{ dag.dag_id }}.{{ run_id }}.{{ task.task_id }}.{{ ti.map_index }} tells a task
        from all others. A DataFrame is evaluated once more for it, before it is written: one whose rows (their number,
        bodies, groups or attributes) come out differently then, of a random UDF say, is refused, and nothing is sent.
        With engine="spark" it is evaluated once, and the executors keep its rows until they are sent. In both
        a later call whose frame computes other rows is another send. Delays are not compared.
        The same list again under the same id has the same outcomes.
        FIFO queues (F1) need a group, and know a repeated message by its deduplication id, for 5 minutes.
        What an entry is refused for: InvalidParameterValue for a body that is no string, or over the queue's
        MaximumMessageSize, MissingParameter for an empty body or a missing group, InvalidMessageContents for a body
        with a character that the service does not take (M1). Raises these where all or nothing is
        sent; of a DataFrame they name the column and the value. Raises InvalidParameterValue also for a streaming
        DataFrame (send its batches, in foreachBatch), for rows that Spark cannot compute, for a keyword argument
        that can hold for no message, and a missing column; then nothing was sent.
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
        """Claims up to `max_messages` visible messages (None: all there are) under one new receipt, in one commit.

        `visibility_timeout` (seconds) is for this claim; without it the queue's VisibilityTimeout. `wait` (seconds)
        waits for a message when there is none; without it the queue's ReceiveMessageWaitTimeSeconds. The same
        `attempt_id` while that earlier claim is held returns the same claim again, its timeout restarted; it is an
        error when that claim is larger than `max_messages`. Every task needs an id of its own, as for `send`.
        On FIFO queues (F2) a claim has the first messages of groups of which none is in flight, in order: the groups as
        they became receivable (their first message came, or their last hold ended), each drained before the next.
        D1: what was received as often as the queue's RedrivePolicy allows goes to the dead-letter queue instead.
        Q2, Q3: raises OverLimit at the quota of an SQS-limited standard queue, unless it waits; FIFO returns none.
        Raises OutputUnreadable, which names the table, when all there is was left in doubt by a `claim.write` whose
        table cannot be asked; such messages are left alone, and others are received beside them.
        Raises QueueDoesNotExist, also when the queue is deleted while it waits, and made anew or not.
        Returns a Claim; an empty one is false. Never more messages than asked for; fewer when other receivers compete.
        """
        return receive(self.access, max_messages, visibility_timeout, wait, attempt_id)

    def receive_many(self, requests: Sequence[Sequence[int | str | None]]) -> list[Claim]:
        """Several receives at once, in one commit, which costs about as much as one receive of all their messages.

        Each request is (max_messages, visibility_timeout, attempt_id) as in `receive`, of which later ones may be left
        out; it does not wait. Returns a Claim for each, in their order, with a receipt of its own: what these receives
        would get one after the other at one instant, but that a message goes to one of them only, also with a timeout
        of 0. On FIFO queues (F2) no group goes to two new claims: what one leaves of its last group, nobody gets.
        A request whose attempt holds a claim gets that one again. All claims that are granted have the same `version`.
        What one request alone cannot have leaves the others as they are: its claim is empty and has the `error`:
        OverLimit once a standard queue's quota is used up, by claims of this call too (Q2); InvalidParameterValue when
        its attempt holds more than it asks for; OutputUnreadable as in `receive`.
        Raises InvalidParameterValue, before anything is received, for a request that is wrong, and for an attempt id
        that two requests have. Safe to retry where every request has an attempt id.
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
        """The loop of a worker: claims up to `max_messages`, runs `function` on their DataFrame, writes its rows to the
        table `output`, acknowledges, and claims the next, all under a heartbeat. Needs Spark.

        `function` gets `Claim.dataframe` and returns rows with a column message_id, which is written, too:
        - one DataFrame: the whole claim is done, messages without a row too;
        - one DataFrame, and `reason` is the name of a column of it: where that has a value the message failed. Every
          value but null is one: "", 0, False and NaN too. It is computed once. Such rows are not written, nor is that
          column;
        - (done, failed), with the columns message_id and reason in `failed`: what has a row in `done` is done. `failed`
          is computed apart, only if something is left, and only tells why: a message without a row failed.
        A column receipt_handle of the rows is not written: handles end with the claim.
        A row that names no message of the claim is an error. What failed is released, in the commit that acknowledges
        the others. The queue's RedrivePolicy says after how many receives it is a dead letter. Where there is none, it
        is parked once it was received 3 times: hidden for `park` seconds. With `maximum_receives` it is parked after so
        many receives, whatever the queue's policy says. What failed passes through the driver, and so do its reasons:
        a row for each goes to the table `failures`, if there is one, with message_id, reason, verdict, receive_count,
        receipt_handle and body. The verdict is release, park, or dead_letter for the last receive that the queue's
        RedrivePolicy allows. With `stamped`, rows of both tables also have receipt_id, claim_version, worker and
        written_at.
        Where `function` raises, or Spark does while its rows are computed, the claim is tried again in halves, at most
        log2(n) times. Each part that succeeds is written and acknowledged for itself. The messages that raise alone
        have failed, each with its own exception as the reason. A function that aggregates over the claim then sees
        parts of it. Where everything raises alike, the claim is given back and the error is raised. One message that
        raises in a claim of n costs at most 2 log2(n) + 3 calls more; where each row stands for itself, `per_row` costs
        none.
        With `per_row` the `function` gets a Row of one message in place of the DataFrame, in Spark's Python workers. It
        returns a dict or a tuple of the columns that `schema`, an Arrow schema, names. A message for which it raises
        failed, with its error as the reason; nothing is computed again (`ledger.work.functions.safely`). Where all
        messages of a claim fail alike, three that were received for the first time at least, the claim is given back,
        and a LedgerError says so.
        `until`: "empty" ends when nothing is stored and no lease ends within the visibility timeout (what a dead worker
        held is waited for); "once" after one receive; "forever" never.
        `attempt_id` makes a retry get back what the failed run still holds, before new work. `schema`: as in
        `Claim.write`.
        Whatever goes wrong, SIGTERM in the main thread too (which ends as SystemExit then), the claim in hand is given
        back, and that receive does not count, but where the JVM or the memory is at its end; a claim that others took
        over is left to them. `report` gets a line of text for each step; without it they
        are printed in notebooks and at prompts, and logged elsewhere. `bar`: as in `consume`, moved on by each claim.
        Returns what it did. Raises what `function` and `Claim.write` raise for everything alike, but LeaseLost.
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
            handler: gets a Message, or with `batch` a list of at most so many. A plain function is called by
                `concurrency` threads, an `async def` by as many tasks of one event loop. It returns the message's row
                (a dict, a dataclass or a named tuple), a list of rows, or None for no row; with `batch` None, or a list
                with such an answer for each message, in their order. An exception in that list is its message's own.
                Rows get the column message_id.
            output: a Delta table, as in `Claim.write`. Without one the handler must return None, and messages are
                deleted.
            processes: so many processes, started by spawn, consume side by side, each with this `concurrency`. The
                handler must be importable: a function at the top level of a module. The messages of a process that is
                killed come back when their lease ends, and the others go on.
            max_messages: of one claim. Without it a claim holds about what is handled in `flush_seconds`, and no more
                than fits in `max_bytes`. At most two claims are in hand.
            max_bytes: so many bytes of bodies are in memory in each process, and one body more: of messages that wait,
                that are with the handler, or whose rows are not written yet. More are only read while the handler
                raises for everything, until it is known whether it is broken.
            visibility_timeout, attempt_id, until: as in `work`. Consumers that run at once have each an `attempt_id` of
                their own, or none: under one they have the same messages, and pay for them twice, until one of them
                finds rows of the other. It counts these messages as lost, warns, and receives others from then on.
            flush_rows, flush_seconds: messages are settled in one commit when so many are handled, or the first of
                them so long ago, or all of their claim.
            maximum_receives: a message that failed so often is parked: hidden for `park` seconds. Without it the
                queue's RedrivePolicy says what becomes of it, or 3 where there is none.
            retry_after: for so many seconds a message that failed is hidden before it is received again.
            schema: as in `Claim.write`. Without it a table that `consume` made has columns of numbers that become wider
                where later rows need it.
            cost: a column of the rows, numbers, of which the sum is told.
            flush_cost: messages are also settled when the rows that are not written yet have cost so much. A process
                that is killed repeats about so much, and the calls that ran.
            group_limits: how much of a message group may be with handlers, in all processes together: a GroupLimit for
                each group, or a dictionary of them by group; None in it is for each group that it does not name. A
                message that its group's limit refuses is given back uncounted, hidden until its turn; other groups go
                on. Messages without a group have no limit.
            limits_folder: several `consume` on one machine that name the same folder share their limits. Without it
                limits hold for the processes of this one.
            bar: True shows a progress bar, False does not. Without it terminals and notebooks have one where `rich` is
                installed (the extra `progress`); elsewhere a line is reported every 10 seconds.
            report: as in `work`.

        A handler that raises fails its message alone: it is given back with the exception as the reason. An answer that
        cannot be written fails its message, too, and no call is made for it again: it is a dead letter at once, or
        parked, and the reason has what the handler returned (500 characters, of 100 messages a commit). A batch that
        raises is called again in halves until the messages that raise stand alone. `ledger.RetryLater` and
        `ledger.Reject` say otherwise. Where everything raises alike, the claims are given back uncounted, and the error
        is raised; `ledger.work.handler_evidence` has the rules. On a FIFO queue each group is handled in order, one
        message or batch at a time; what stands behind a message that was given back is given back uncounted, too.

        SIGTERM, and the first Ctrl-C, in the main thread drain: no call begins, those that run are waited for, what is
        done is written, the rest is given back uncounted. The second one gives all back at once. Then SystemExit or
        KeyboardInterrupt is raised.

        Returns:
            What was done.

        Raises:
            InvalidParameterValue, SparkIsNeeded: for what cannot be done, before a message is claimed.
            Exception: what the handler raises for everything alike, and what `Claim.write` raises, but LeaseLost.
        """
        told = Consumption(
            handler, output, concurrency, batch, processes, max_messages, visibility_timeout, attempt_id, until,
            flush_rows, flush_seconds, maximum_receives, retry_after, park, schema, cost, flush_cost, max_bytes,
            group_limits, limits_folder, progress.report(report, tasks.log.info),
            progress.report(report, tasks.log.warning),
        )  # fmt: skip
        return consume(self.access, told, bar)

    def claim(self, receipt_id: str) -> Claim:
        """The claim of a receipt, as far as nobody deleted or took its messages: how another process carries on.

        Its `messages()` on a FIFO queue: each group in order and by itself, but the groups as their first messages
        came; in which order they were granted is not recorded. So it is with an attempt that gets its claim again.
        Empty, which is false, where nothing is held under it any more: `if claim:` tells.
        Raises InvalidParameterValue for what can be no receipt; None, as an empty claim has it, is an empty claim.
        """
        record = self.access.record()
        # An empty claim has no receipt, and messages that nobody received have none either: those it does not mean.
        asked = receipt_id if is_receipt(receipt_id) else None
        grant = None if asked is None else self.access.store.held(record, asked)
        return Claim(self.access, grant, int(record.attributes["VisibilityTimeout"]), asked=asked)

    def explain(self, verb: str, *arguments: object, **options: object) -> Explanation:
        """Show what a verb would commit now, and change nothing: the statement and its source rows.

        `queue.explain("receive", 10, visibility_timeout=60)` is about `queue.receive(10, visibility_timeout=60)`. The
        verb reads and decides as ever, and ends where it would commit: what it returns is not known, and a receive
        waits for nothing. Of a verb that is two commits (the purge of a FIFO queue) the first is shown. Handles and
        messages are lists or Arrow tables. Works with each value of the setting `merge`, and on a ledger that is open
        read-only. `print` shows the result as text.
        Raises what the verb does; InvalidParameterValue for another verb than receive, receive_many, send, delete,
        change_visibility, settle, lock, purge, restore, release_postponed, redrive, set_attributes, set_tags, tag and
        untag.
        """
        if verb == "receive" and len(arguments) < 3:
            options.setdefault("wait", 0)

        def call(access: Access) -> object:
            return getattr(Queue(access), verb)(*arguments, **options)

        return explain(self.access, verb, OF_QUEUE, call, numbered(arguments, options))

    def peek(self, message_id: str) -> Message:
        """V11: a message whatever its state, without changing anything. Raises MessageDoesNotExist."""
        record = self.access.record()
        stored = self.access.store.peek(record, message_id)
        return public_message(record, stored, self.access.clock(), None, self.access.settings.account)

    def lock(self, message_id: str, visibility_timeout: int) -> None:
        """V12: hides a message that nobody holds for so many seconds. Raises LedgerError when it is in flight or
        deleted, MessageDoesNotExist when there is none, OutputUnreadable when a `claim.write` left it in doubt and the
        output table cannot say whether its row is in."""
        record = self.access.record()
        bounds.visibility_timeout(visibility_timeout, attribute_rules.limits_of(record.attributes))
        if not self.access.store.lock(record, message_id, visibility_timeout, self.access.clock):
            raise LedgerError(
                f"Message {message_id} is in flight or deleted; only a message that nobody holds can be locked"
            )

    def purge(self, older_than: float | None = None) -> int:
        """Deletes every message there is now, in flight or not; returns how many. What is sent meanwhile stays.

        M3: a FIFO queue forgets all deduplication ids, also when it is empty: what was sent before is sent again.
        With `older_than` (seconds, 0 or more) only messages that were sent earlier than so long ago, counted from the
        call by this process's clock. It is one commit, forgets no deduplication id, and has no interval. A dead letter
        counts from when it was sent first. Whoever holds a message that is purged keeps its copy of it; its receipt
        changes nothing any more, as after a delete.
        Raises PurgeQueueInProgress, with Limits=SQS, within the setting purge_interval (60 s) of the last purge of all;
        InvalidParameterValue for an age that is no number of seconds.
        """
        age = None if older_than is None else bounds.milliseconds_of_age("older_than", older_than)
        gone = self.access.store.purge(self.access.record(), self.access.clock, age)
        log.info("%d messages of %s were purged", gone, self.name)
        return gone

    def copy_to(
        self,
        target: Queue,
        *,
        attempt_id: str | None = None,
        bar: bool | None = None,
        report: Callable[[str], None] | None = None,
    ) -> Copied:
        """Send every message that this queue has to another queue, of this ledger or another one, and keep them here.

        That is what is neither deleted nor expired: visible, delayed, locked or held by somebody. A copy has the body,
        attributes, group, deduplication id, trace header and sender, and was never received. In a standard queue it is
        as old as the message, unless the target's MessageRetentionPeriod would end it at once, and a delay goes on. In
        a FIFO queue it is sent now, as order is by when messages come; each group is in order, and no deduplication id
        leaves one out. The message ids are others.

        Copied is what arrived before the call began. Stop what sends to this queue and receives from it, or read in
        the source and the target what was done meanwhile: a message that somebody holds is copied as well.
        Safe to retry, and beside another call: each part is one commit, which also notes how far the copy is. The same
        call again sends what is missing, and nothing twice: nothing at all where the copy was complete. To copy the
        queue once more give an `attempt_id`, another one each time. `bar` and `report` are as in `consume`.
        This ledger may be open read-only.

        Raises InvalidParameterValue for a target of the other kind (FIFO or standard) and for a message over the
        target's MaximumMessageSize: what stands before it is copied, and the same call goes on. QueueDoesNotExist.
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

        It has a row for each message, in order: message_id, body, message_attributes, message_group_id,
        message_deduplication_id, aws_trace_header, sender_id, sequence_number, sent_at, enqueued_at, available_at and
        receive_count. The queue's attributes are in the file's metadata. The messages stay in the queue. The file is
        there as a whole, and survives a power cut, or it is not there.
        Raises InvalidParameterValue where there is something of that name, or no folder to write in; StorageFailed.
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
        Raises InvalidParameterValue for a file that is no export, was changed, or is of the other kind of queue, and
        for a row that the queue does not take, which it names; StorageFailed for one that cannot be read.
        """
        return transfers.import_file(self.access, path, attempt_id, report, bar)

    def release_postponed(self, receipt_id: str | None = None, reason: str | None = None) -> int:
        """Makes what was given back and is hidden until later visible now; returns how many messages.

        That is what `work` and `consume` parked because it failed too often, and what they, RetryLater or a group's
        limit postponed; the view `in_flight` lists it by receipt, state and reason. Nobody holds these messages. With a
        `receipt_id` only what was given back under it. What somebody receives meanwhile is theirs, and stays. Counts
        of receives stay: what was parked is parked again at its next failure. `reason` is as in `Claim.release`;
        without one each message keeps the reason for which it was parked or postponed.
        """
        return settling.release_postponed(self.access, receipt_id, reason)

    def restore(self, receipt_id: str) -> int:
        """Undoes the acknowledgement of a claim: what was deleted under its receipt is visible again; returns how many
        messages. Old receipts stay stale. The receipts ledger keeps both, the deletion and the restoring.

        What a `claim.write` under it left in doubt is given back as well, once its deadline has passed, whether its
        rows are in or not. The output table is asked first: a write that is not in is fenced off, so that a writer that
        stands still somewhere cannot write its rows later. Raises OutputUnreadable, and restores nothing, when the
        table is there and cannot be read or written to. One that is gone (there is none, or another one in its place)
        cannot be fenced off: restore then takes the owner's word that it is gone for good. Should it come back, or be
        made anew, a writer that still stands somewhere could write its rows beside those of the next receiver.
        Restores what is within its retention and not yet forgotten: receipts of deleted messages are kept for the
        setting keep_deleted_receipts. 0: nothing was deleted under it, or it is forgotten, or there is none (None).
        Raises InvalidParameterValue for what can be no receipt.
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
        """Sets how many seconds from now messages stay hidden; 0 releases them. One commit.

        One handle: raises MessageNotInflight, ReceiptHandleIsInvalid, InvalidParameterValue. A list (with one timeout,
        or one per handle) and a table (with one timeout, or the name of a column of them): outcomes, as `delete`. One
        of several timeouts that is out of bounds, or null, fails its own handle only (M2).
        """
        if isinstance(receipt_handles, str):
            settling.change_one(self.access, receipt_handles, visibility_timeout)
            return None
        return settling.change_many(self.access, receipt_handles, visibility_timeout)

    def dead_letter_source_queues(self, after: str = "", max_results: int | None = None) -> list[str]:
        """The names of the queues whose RedrivePolicy names this one, in order, as SQS's ListDeadLetterSourceQueues;
        for paging, at most `max_results` behind the name `after` (SQS's NextToken: the last name of the page before).
        """
        return queue_settings.source_queues(self.access, after, max_results)

    def redrive(
        self, where: str | Sequence[str] | None = None, destination: str | None = None, max_messages: int | None = None
    ) -> int:
        """D2: moves visible messages of this (dead-letter) queue back to where each came from, or to the queue
        `destination` (its name or ARN), in one commit; returns how many. There they are new: never received, kept from
        now on.

        `where` chooses: a SQL predicate on the view `messages` (such as "receive_count >= 3 AND body LIKE '%late%'";
        needs Spark), or a list of message ids. `max_messages` is a bound. A message whose origin is gone stays.
        Raises InvalidParameterValue for what is no predicate, in the parser's words, and without a destination for a
        queue that no queue's RedrivePolicy names (its messages are work, wherever they came from); nothing is moved.
        """
        return queue_settings.redrive(self.access, where, destination, max_messages)

    def start_message_move_task(
        self, destination: str | None = None, max_messages_per_second: int | None = None
    ) -> str:
        """Starts moving the messages of this dead-letter queue back to where they came from, or to `destination`, as
        SQS's StartMessageMoveTask; returns the task's handle, which like the service's tells the queue's ARN.

        Without a rate all of them move in one commit, before this returns. With one, this process moves that many a
        second in the background; should it end, `Ledger.upkeep` in any process carries the task on.
        Raises InvalidParameterValue when no queue names this one in its RedrivePolicy, or a task is running already;
        ResourceNotFound when there is no queue `destination`.
        """
        task = self._move_tasks().start(destination, max_messages_per_second, self.dead_letter_source_queues())
        return move_task.handle_of(task, self.arn)

    def list_message_move_tasks(self, max_results: int = 1) -> list[MoveTask]:
        """The latest message move tasks of this queue, the latest first; `task` is each one's handle."""
        most = bounds.maximum_messages(max_results, bounds.UNBOUNDED, "MaxResults")
        return [task._replace(task=move_task.handle_of(task, self.arn)) for task in self._move_tasks().all()[:most]]

    def cancel_message_move_task(self, task_handle: str) -> int:
        """Cancels a running task; returns about how many messages it had moved, which stay moved.

        Raises InvalidParameterValue for what is no handle, ResourceNotFound when no such task is running.
        """
        return self._move_tasks().cancel(task_handle)

    def _move_tasks(self) -> MoveTasks:
        return MoveTasks(self.access.store, self.access.record(), self.access.clock)

    def attributes(self) -> dict[str, str]:
        """All attributes as text, as SQS returns them, with QueueArn, CreatedTimestamp and LastModifiedTimestamp
        (seconds). Those that SQS does not have are named in `ledger.rules.attribute_kinds.OURS`."""
        return queue_settings.attributes(self.access)

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        """Changes the attributes that are named, for receives from now on, and no other. Raises InvalidAttributeName,
        InvalidAttributeValue; InvalidParameterValue for a RedrivePolicy or a RedriveAllowPolicy.

        Like every change of a queue it is one commit on this very queue: changes at the same time all count, and none
        reaches a queue that was made anew under the name (QueueDoesNotExist).
        """
        queue_settings.change_attributes(self.access, lambda known: attributes)

    def tags(self) -> dict[str, str]:
        """The queue's tags."""
        return dict(self.access.record().tags)

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Replaces the queue's tags: at most 50, keys of 1 to 128 characters, values of at most 256. A key must not
        begin with aws:, which is the service's own."""
        queue_settings.change_tags(self.access, lambda known: tags)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Adds these tags, over those of the same keys, as SQS's TagQueue; all in all at most 50."""
        given = attribute_rules.tags(tags)
        queue_settings.change_tags(self.access, lambda known: {**known, **given})

    def untag(self, keys: Sequence[str]) -> None:
        """Removes the tags of these keys, as SQS's UntagQueue; keys that the queue does not have are no error."""
        gone = attribute_rules.tag_keys(keys)
        queue_settings.change_tags(
            self.access, lambda known: {key: value for key, value in known.items() if key not in gone}
        )

    def add_permission(self, label: str, account_ids: Sequence[str], actions: Sequence[str]) -> None:
        """Adds a statement to the queue's Policy, as SQS's AddPermission. It is stored, and nothing enforces it but
        `ledger serve`, on its callers: who may read and write a ledger is decided by its storage. Raises
        InvalidParameterValue for a label in use and for an action that is not granted to others, OverLimit for more
        than seven.
        """
        queue_settings.change_policy(
            self.access, lambda text: policy.with_permission(text, self.arn, label, account_ids, actions)
        )

    def remove_permission(self, label: str) -> None:
        """Removes the statement of this label from the queue's Policy; raises InvalidParameterValue without one."""
        queue_settings.change_policy(self.access, lambda text: policy.without_permission(text, label))

    def counts(self) -> Counts:
        """How many messages are in each state, and the oldest one's age, without reading a message."""
        return queue_settings.counts(self.access)
