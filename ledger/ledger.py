"""A ledger: the queues of one root, which is a folder or a schema of Delta tables."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.client.access import Access
from ledger.client.move_tasks import continue_abandoned_tasks
from ledger.clock import Clock, Passing, system_clock
from ledger.errors import InvalidParameterValue, LedgerError, QueueNameExists, SparkIsNeeded
from ledger.notebook import html_view
from ledger.queue import Queue
from ledger.rules import attributes as attribute_rules
from ledger.rules import limits as bounds
from ledger.rules import message_attributes
from ledger.runtime import progress
from ledger.settings import Settings
from ledger.store.memory import MemoryStore
from ledger.store.protocol import QueueRecord, Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ledger.store.delta.backups import BackupReport
    from ledger.store.delta.destruction import Destroyed
    from ledger.store.delta.opening import OpenLedger
    from ledger.store.delta.permissions import SharedLedger
    from ledger.store.delta.verbs.clock_repair import ClockRepair
    from ledger.store.delta.verbs.health import Health
    from ledger.store.delta.verbs.repair import Repair
    from ledger.store.delta.verbs.rounds import Rounds
    from ledger.store.delta.verbs.upkeep import UpkeepReport

log = logging.getLogger("ledger.queues")
#: The folder of a ledger when the caller names none.
DEFAULT_ROOT = "ledger-data"


class Ledger:
    """Queues on Delta tables under one root. Threads may share a Ledger. Each process opens a Ledger of its own.

    A forked child may use its parent's ledger on a local path to send, receive, extend, release, delete and count.
    Before the fork, the parent must have called `Queue.counts`, and sent to each FIFO queue that a child sends to. A
    fork breaks delta-rs, so the child's other calls that need it raise ForkedProcess: opening a ledger, upkeep, SQL,
    outputs, sends under an attempt id, and everything on an object store or through Spark. Start workers that need
    these calls with multiprocessing's `spawn` or `forkserver`.

    For tools and tests: `store` (a DeltaStore has its `engine` and `transactions`), `clock` and `settings`.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        opened: OpenLedger | None = None,
        reopening: Mapping[str, object] | None = None,
    ) -> None:
        """`reopening`: the arguments by which a worker process opens the same ledger (None: no worker process can)."""
        self.store, self.clock, self.settings, self._opened = store, clock, settings, opened
        self._reopening = reopening

    def __repr__(self) -> str:
        place = self._opened.engine.place("queues").removesuffix("/queues") if self._opened else "in memory"
        return f"Ledger({place!r})"

    def _repr_html_(self) -> str:
        return html_view.render_ledger(self)

    @classmethod
    def open(
        cls,
        root: str = DEFAULT_ROOT,
        spark: SparkSession | None = None,
        engine: str | None = None,
        *,
        create: bool = True,
        read_only: bool = False,
        settings: Settings | None = None,
        merge: str | None = None,
        owner: str | None = None,
        sender_id: str | None = None,
        clock: Clock = system_clock,
        storage_options: Mapping[str, str | bool | float] | None = None,
        storage_clock: Clock | None = None,
        passing: Passing | None = None,
    ) -> Ledger:
        """Open the ledger at `root`, and make its tables if there are none.

        **Clocks.** `clock` returns the instant (milliseconds) of each verb. Deadlines, delays, retention, deduplication
        and the times in `receipts` follow this instant. If `clock` is behind the queue's last commit by at most the
        setting maximum_clock_skew, deadlines follow the instant of that commit. Two other clocks only check `clock`. If
        one of them disagrees, the opening or the verb raises ClocksDisagree:

        - `storage_clock` returns the storage's time (milliseconds). It may differ from `clock` by half of
          maximum_clock_skew, or by 1 second if that is more. The ledger compares the two at opening, and before
          verbs commit, at most every 10 minutes. By default the ledger takes the time of a small file that it writes,
          on local paths and where delta-rs commits to an object store. With only a `clock`, or with `read_only`, it
          writes no such file.
        - `passing` returns seconds that grow steadily, even when somebody sets the clock. The default is the clock's
          method `passing`, or else this machine's uptime. Every verb refuses a step of the clock by more than
          maximum_clock_skew, unless a given `storage_clock`, or an object store's clock, confirms the step. Without
          these clocks, a commit of another owner can confirm a step forward.

        This machine's clock and the times of files decide how long upkeep keeps commits and removed files.

        Args:
            root: A path or URI of a folder, or `schema:NAME` for a schema of Spark's catalog.
            spark: Without a session, calls that take or return DataFrames of Spark fail, and so do `Queue.work`,
                `deploy_views` and a redrive by a predicate. All else works through delta-rs, without a JVM, on storage
                that delta-rs reaches.
            engine: auto, spark or delta-rs. With auto, delta-rs commits on paths, S3, ABFS and GCS. On S3 only
                delta-rs may commit.
            create: False raises LedgerDoesNotExist where there is no complete ledger. True makes a ledger, also
                at a mistyped root.
            read_only: True opens the ledger only to read it, also on storage that the caller cannot write. The ledger
                takes no locks, and makes or upgrades nothing. A call that writes raises LedgerIsReadOnly.
            merge: Overrides the setting `merge`: auto or statement.
            owner: The name of this process in the view `receipts` (default: user, machine and process).
            sender_id: Stored with every message sent through this object, as its SenderId: an account or a user. By
                default the SenderId is the account of the queues' ARNs.
            storage_options: delta-rs's options (aws_access_key_id, aws_endpoint, ...), which override those of the
                environment. The default on S3 with `spark` is the session's configuration of the bucket
                (fs.s3a.access.key, endpoint, ...).

        Raises LedgerDoesNotExist, LedgerDamaged, ClocksDisagree, UnsafeStorage, SparkIsNeeded, LedgerTooNew,
        UnsupportedVersion, InvalidParameterValue, StorageFailed, ForkedProcess.
        """
        from ledger.store.delta.opening import open_tables

        for name, value, kinds, bound, fix in (
            ("root", root, (str, os.PathLike), "Must be a path or a URI", "Is a variable of the environment not set?"),
            ("settings", settings, (Settings, type(None)), "Must be Settings", "Settings.read(path) reads a file."),
            ("owner", owner, (str, type(None)), "Must be a text", "Give the name of the process that acts."),
            ("read_only", read_only, (bool,), "Must be True or False", "True opens the ledger only to read it."),
            ("create", create, (bool,), "Must be True or False", "False refuses a root that holds no ledger."),
        ):
            if not isinstance(value, kinds):
                raise InvalidParameterValue(name, value, bound, fix)
        settings = settings or Settings()
        if merge is not None:
            settings = replace(settings, merge=merge)
        options = {} if storage_options is None else storage_options
        opened = open_tables(
            str(root),
            spark,
            engine or settings.engine,
            settings,
            owner,
            options,
            clock,
            storage_clock,
            create,
            message_attributes.check_sender_id(sender_id),
            read_only,
            passing,
        )
        reopening = {
            "root": str(root),
            "engine": engine,
            "create": False,
            "settings": settings,
            "owner": owner,
            "sender_id": sender_id,
            "clock": clock,
            "storage_options": dict(options),
            "storage_clock": storage_clock,
            "passing": passing,
        }
        by_delta_rs = opened.engine.name == "delta-rs" and not read_only
        return cls(opened.store, opened.clock or clock, settings, opened, reopening if by_delta_rs else None)

    @classmethod
    def in_memory(
        cls, clock: Clock = system_clock, settings: Settings | None = None, *, sender_id: str | None = None
    ) -> Ledger:
        """Return a ledger in this process's memory, without DataFrames: the executable specification of the rules."""
        settings = settings or Settings()
        return cls(MemoryStore(settings, message_attributes.check_sender_id(sender_id)), clock, settings)

    def create_queue(
        self, name: str, attributes: Mapping[str, object] | None = None, tags: Mapping[str, str] | None = None
    ) -> Queue:
        """Return the queue of this name, and make it if there is none. The call may be repeated.

        Raises:
            QueueNameExists: The queue exists with a different value of a given attribute, or tags are given and the
                queue has other tags.
            InvalidAttributeName: An attribute is unknown.
            InvalidAttributeValue: An attribute's value is out of its range.
            InvalidParameterValue: The name, a tag or a redrive policy is refused.
            QueueDeletedRecently: Limits is SQS, and a queue of that name was deleted less than deletion_interval (a
                setting, by default 60 s) ago.
        """
        attribute_rules.check_queue_name(name, attributes)
        # An empty value that is no mapping must be refused, too.
        complete = attribute_rules.complete_attributes(
            {} if attributes is None else attributes, account=self.settings.account
        )
        own_tags = attribute_rules.check_tags({} if tags is None else tags)
        record = self.store.create_queue(name, complete, own_tags, self.clock)
        stored, requested = (
            attribute_rules.answer_attributes(record.attributes),
            attribute_rules.answer_attributes(complete),
        )
        for attribute in attributes or {}:
            if stored.get(attribute) != requested.get(attribute):
                raise QueueNameExists(name, attribute, stored.get(attribute), requested.get(attribute))
        # SQS refuses other tags. Source: pull requests 70 of awslabs/amazon-sqs-java-temporary-queues-client, and 13 of
        # Bogdanp/dramatiq_sqs.
        if own_tags and own_tags != dict(record.tags):
            raise QueueNameExists(name, "tags", json.dumps(dict(record.tags)), json.dumps(own_tags))
        return self._queue(record)

    def queue(self, name: str) -> Queue:
        """Return the queue of this name. Raises QueueDoesNotExist."""
        return self._queue(self._find_record(name))

    def list_queues(self, prefix: str = "", after: str = "", max_results: int | None = None) -> list[Queue]:
        """Return the queues whose names begin with `prefix`, sorted by name.

        For paging, return at most `max_results` queues after `after`, the last name of the previous page.
        """
        for field, value in (("prefix", prefix), ("after", after)):
            if not isinstance(value, str):
                raise InvalidParameterValue(field, value, "Must be a text", "Leave it out for all queues.")
        records = [record for record in self.store.queues() if record.name.startswith(prefix) and record.name > after]
        most = bounds.maximum_messages(max_results, bounds.UNBOUNDED, "MaxResults")
        return [self._queue(record) for record in records[:most]]

    def delete_queue(self, name: str) -> None:
        """Delete the queue that has this name now, and all its messages.

        A queue that is made again under the name meanwhile stays. Raises QueueDoesNotExist, also when another delete of
        the same queue was first.
        """
        self.store.delete_queue(self._find_record(name), self.clock)
        log.info("the queue %s is deleted", name)

    def view(self, name: str, version: int | None = None, *, timestamp: datetime | str | None = None) -> DataFrame:
        """Return an analyst view as a DataFrame. Reading takes no lock and changes nothing.

        The views are messages, in_flight, queue_depth, dead_letters, processing_times and receipts. `sql` has the same
        views without Spark. If the session's spark.sql.files.ignoreMissingFiles or ignoreCorruptFiles is on, Spark
        leaves out the rows of a missing or corrupt file.

        `version` shows the view as of a version of the visibility table (as in `receipts` and `Claim.version`).
        `timestamp` shows the view as of an instant: a datetime with a time zone, or a text of such an instant. The past
        7 days can be read, unless the settings of upkeep say otherwise.

        Raises SparkIsNeeded, InvalidParameterValue, and StorageFailed, also if the ledger's folder is gone.
        """
        from ledger.store.delta.dataframes.views import open_view, queue_depth

        opened, spark = self._require_spark("view")
        # If the ledger's folder is gone, Spark's error does not say so. This read raises StorageFailed.
        opened.engine.version("visibility")
        if name == "queue_depth" and version is None and timestamp is None:
            return queue_depth(spark, opened.store, self.clock)
        return open_view(spark, opened.engine, opened.locations, name, self.clock(), version, timestamp)

    def sql(self, query: str, version: int | None = None, *, timestamp: datetime | str | None = None) -> pa.Table:
        """Run a SQL query on the analyst views without Spark, and return an Arrow table. A query changes nothing.

        The views, and `version` and `timestamp`, are those of `view`. The SQL is DataFusion's.
        `ledger.sql("SELECT * FROM comments")` describes the views and their columns.

        Raises:
            InvalidParameterValue: The text is no valid query. The error has DataFusion's words.
            StorageFailed: The storage cannot be read.
        """
        from ledger.store.delta.views.queries import Queries

        opened = self._require_delta("sql")
        return Queries(opened.store, self.clock).answer(query, version, timestamp)

    def deploy_views(
        self,
        schema: str,
        prefix: str = "",
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> list[str]:
        """Create the analyst views, with comments, in a schema of Spark's catalog, and return their names.

        The views show the present state whenever they are read. With `version` or `timestamp`, as in `view`, they show
        that past state, as long as the ledger keeps its files. Use `prefix` to have views of both kinds. `receipts`,
        and the views made of `receipts`, show the state of the last upkeep or `fill_receipts`.
        """
        from ledger.store.delta.dataframes.views import deploy_views

        opened, spark = self._require_spark("deploy_views")
        return deploy_views(spark, opened.engine, opened.locations, schema, prefix, self.clock(), version, timestamp)

    def fill_receipts(self) -> int:
        """Add the events of new commits to the `receipts` table, each exactly once. Return how many were added."""
        from ledger.store.delta.verbs.receipts import fill_receipts

        opened = self._require_delta("fill_receipts")
        return fill_receipts(opened.engine, opened.transactions)

    def health(self, *, deep: bool = False) -> Health:
        """Return the state of the tables: queues, files, the length of the logs, and files that upkeep would remove.

        The result also has the age of the oldest commit to `visibility` that still needs upkeep. Its `vitals` are
        values that grow with the load, and signs that something hangs. Each table's `damaged` names data files that are
        missing, empty or of another size than the log says. With `deep` the call also reads all of each data file and
        checkpoint, and counts the rows. The call only reads, through delta-rs, whichever engine commits. `ledger doctor
        ROOT --json` prints the same state.

        Raises:
            StorageFailed: delta-rs cannot read the storage.
            LedgerDamaged: A log cannot be read, or has a damaged entry.
        """
        from ledger.store.delta.verbs.health import health_of

        return health_of(self._require_delta("health").store, self.clock, deep=deep)

    @staticmethod
    def repair(root: str = DEFAULT_ROOT, *, dry_run: bool = False) -> Repair:
        """Cut damaged tables of a ledger back to their last whole versions. Return what was lost.

        First stop every process that uses the ledger. If a data file of `messages` is missing or damaged, only the
        messages in the file are lost, and the table is not cut. `root` is a local path. Removed files are moved to the
        folder `_ledger_lost` next to the tables. With `dry_run` the call changes nothing.

        Raises:
            LedgerDamaged: A table cannot be repaired. Nothing was changed, except that unreadable checkpoints may have
                been moved.
            LedgerError: Another process holds one of the ledger's locks.
            InvalidParameterValue: The root is no local path.
            LedgerDoesNotExist: A table is missing, or the root is a backup.
        """
        from ledger.store.delta.verbs.repair import repair_ledger

        return repair_ledger(root, dry_run=dry_run)

    @staticmethod
    def destroy(
        root: str = DEFAULT_ROOT, *, storage_options: Mapping[str, str] | None = None, dry_run: bool = False
    ) -> Destroyed:
        """Remove the ledger at `root` with all its messages. Return what was removed. With `dry_run` only look.

        `root` is a local path or a place on an object store. Files that are not the ledger's stay. Only a backup, or an
        object store's own versions, can bring the ledger back.

        Raises:
            LedgerDoesNotExist: There is no ledger, or the root is a backup.
            LedgerError: Another process holds one of the ledger's locks, a table's folder is a link, or nothing shows
                that a table is a ledger's. Nothing was removed.
            InvalidParameterValue: Only Spark reaches the root.
            StorageFailed: The storage cannot be read or written.
        """
        from ledger.store.delta.destruction import destroy_ledger

        return destroy_ledger(root, storage_options, dry_run=dry_run)

    @staticmethod
    def share(root: str = DEFAULT_ROOT, *, group: str, everyone: bool = False) -> SharedLedger:
        """Let all users of a group use the ledger at `root`, a local path. With `everyone` all others may read it.

        The ledger's folders and locks become writable for the group, and its files readable. Later files have their
        folder's group and its default ACL. Without ACLs (on some file systems, and outside Linux) the result's
        `is_inherited` is False, and every user needs the umask 002. Spark sets permissions by itself: give its session
        spark.hadoop.fs.permissions.umask-mode=002.

        Only the superuser, or a member of the group who owns all of the ledger's files, may share a ledger. Another
        call of `share` mends files that `ledger doctor` names. If a folder above the root is closed to these users, the
        result's `to_open` has the commands that open it.

        Raises:
            LedgerDoesNotExist: There is no ledger.
            InvalidParameterValue: There is no such group, or the root is no local path or is a link.
            StorageFailed: This user may not share a file or folder, which the error names. What was shared before stays
                shared.
        """
        from ledger.store.delta.permissions import share_ledger

        return share_ledger(root, group, everyone=everyone)

    def upkeep(self, vacuum: bool = True, report: Callable[[str], None] | None = None) -> UpkeepReport:
        """Run a round of upkeep. Safe at any time, also while claims are held.

        The round drops finished segments, joins rows and files, fills the table `receipts`, and takes a step of each
        abandoned message move task. With `vacuum` it also removes files that no version within the retention needs.
        `receipts` is complete only if a round, or `fill_receipts`, runs at least once within log_retention (by default
        30 days). `ledger upkeep --every 5m`, and `ledger serve`, run a round when the load needs one.

        A round drops something for its age only if the storage's own clock confirms the ledger's clock. Without such a
        clock, an earlier round or the opening must have read the ledger's clock at least mark_seconds (a setting)
        before. `report` gets a line of text for each step.

        Raises ClocksDisagree, StorageFailed, ContentionOutlastedRetries.
        """
        from ledger.store.delta.verbs.tidying import JudgedAges
        from ledger.store.delta.verbs.upkeep import Upkeep

        opened = self._require_delta("upkeep")
        # Judge ages before another reading: a process that was suspended between two readings has not looked twice.
        judged = JudgedAges(self.clock(), is_confirmed=True) if opened.ages is None else opened.ages.judge()
        rounds, began_at = opened.store.rounds, self.clock()
        begun = rounds.look()
        if judged.is_near(self.clock()):
            continue_abandoned_tasks(opened.store, self.clock)
        done = Upkeep(opened.store, self.clock, report).run(vacuum, judged)
        if judged.at is not None:
            # Without judged ages the round dropped nothing for its age. Leave it unrecorded, so that it stays due.
            rounds.record(begun, began_at)
        return done

    def rounds(self) -> Rounds:
        """Return the record of upkeep's rounds: the progress of the last round, and who may run the next."""
        return self._require_delta("rounds").store.rounds

    def repair_clock(self, *, dry_run: bool = False) -> list[ClockRepair]:
        """Correct the times that were committed by a clock ahead of the right time. Return what was wrong, by queue.

        Call this only while the ledger's clock is right. A queue needs a repair if a time of its commits, sends or
        tasks is more than maximum_clock_skew (a setting) ahead of the ledger's clock. One commit sets back the queue's
        time and the deadlines of its messages, and `receipts` records the event "clock repaired". Further commits make
        refused sends to a FIFO queue possible again, and correct the queue's own timestamps and its running message
        move tasks. With `dry_run` nothing is changed.

        Raises ClocksDisagree, ContentionOutlastedRetries, StorageFailed, LedgerIsReadOnly.
        """
        from ledger.store.delta.verbs import clock_repair

        opened = self._require_delta("repair_clock")
        repair = clock_repair.find_wrong_times if dry_run else clock_repair.repair_clock
        return repair(opened.store, self.clock)

    def backup(self, dest: str | os.PathLike[str], report: Callable[[str], None] | None = None) -> BackupReport:
        """Copy a consistent state of all tables into the folder `dest`, while the ledger is in use.

        First the call fills `receipts`. `dest` must be an empty folder or not exist. `dest` and the ledger must be on
        local paths. The copy has the messages, their states and the receipts, and no past versions. Messages in flight
        stay in flight after a restore, until their deadlines. The copy is as private as the ledger. `report` gets a
        line of text for each step.

        Returns:
            A BackupReport: versions, files, bytes, and the time.

        Raises:
            InvalidParameterValue: `dest` or the ledger's place does not allow a backup.
            LedgerDamaged: A table is damaged.
            LedgerIsReadOnly: The ledger was opened with `read_only`.
            StorageFailed: The storage failed, or an upkeep removed files before they were copied: then take the backup
                again.
        """
        from ledger.store.delta.backups import back_up

        opened = self._require_delta("backup")
        return back_up(opened.engine, opened.transactions, dest, progress.choose_report(report, log.info))

    @staticmethod
    def restore_backup(
        source: str | os.PathLike[str],
        root: str | os.PathLike[str],
        *,
        replace: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> Path | None:
        """Make a ledger at `root` from the backup `source`, both on local paths.

        Without `replace`, `root` must be an empty folder or not exist. With `replace` the restored ledger takes the
        place of what `root` holds, which moves to another folder. Returns the path of that folder, or None. Processes
        that have the replaced ledger open continue with the restored ledger, which appears only when everything is
        copied. The restored ledger keeps the group, the modes and the ACLs of a folder at `root`, and the owner if the
        superuser restores. `report` says if the group is not kept.

        Raises InvalidParameterValue (also for an incomplete backup), LedgerTooNew and StorageFailed.
        """
        from ledger.store.delta.backups import restore_backup

        return restore_backup(source, root, replace, progress.choose_report(report, log.info))[1]

    def _require_delta(self, call: str) -> OpenLedger:
        if self._opened is None:
            raise LedgerError(f"{call} needs a ledger on Delta tables; this ledger is in memory")
        return self._opened

    def _require_spark(self, call: str) -> tuple[OpenLedger, SparkSession]:
        opened = self._require_delta(call)
        if opened.spark is None:
            raise SparkIsNeeded(f"{call} needs Spark: open the ledger with Ledger.open(root, spark=spark)")
        return opened, opened.spark

    def _find_record(self, name: str) -> QueueRecord:
        if not isinstance(name, str):
            raise InvalidParameterValue("QueueName", name, "Must be a text")
        return self.store.queue(name)

    def _queue(self, record: QueueRecord) -> Queue:
        frames = self._opened.frames if self._opened else None
        reopen = None if self._reopening is None else partial(_reopen_queue, self._reopening, record.name)
        return Queue(Access(self.store, self.clock, self.settings, frames, record, reopen))


def _reopen_queue(arguments: Mapping[str, Any], queue: str) -> Access:
    return Ledger.open(**arguments).queue(queue).access
