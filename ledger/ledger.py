"""A ledger: one root with many queues. `Ledger.open` is where everything starts."""

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
from ledger.client.move_tasks import carry_on
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
#: The folder a ledger lies in when none is named.
DEFAULT_ROOT = "ledger-data"


class Ledger:
    """Queues on Delta tables under one root. Threads may share it; processes open their own.

    A forked child may go on with its parent's ledger on a local path: it sends, receives, extends, releases, deletes
    and counts, in segments of its own, from what the parent knew: let it call `Queue.counts` before the fork, and send
    to a FIFO queue that a child is to send to. What needs delta-rs is refused there at once by ForkedProcess, as
    delta-rs does not survive a fork: what the parent did not know, to open a ledger where the parent has opened one,
    upkeep, SQL, outputs, sends under an attempt id, and everything on an object store or through Spark. Start workers
    that need these with multiprocessing's `spawn` or `forkserver`.
    `store` is what does the work (a DeltaStore has its `engine` and `transactions`), `clock` the time it goes by and
    `settings` its settings: for tools and tests.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        opened: OpenLedger | None = None,
        reopening: Mapping[str, object] | None = None,
    ) -> None:
        """`reopening`: the arguments by which another process opens the same ledger; None where none can."""
        self.store, self.clock, self.settings, self._opened = store, clock, settings, opened
        self._reopening = reopening

    def __repr__(self) -> str:
        place = self._opened.engine.place("queues").removesuffix("/queues") if self._opened else "in memory"
        return f"Ledger({place!r})"

    def _repr_html_(self) -> str:
        return html_view.of_ledger(self)

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
        """Opens the ledger at `root`, making its tables if there are none; with `create=False` that is an error, so
        that a mistyped root does not become a new, empty ledger: LedgerDoesNotExist.

        `root` is a path or URI of a folder, or `schema:NAME` for a schema of Spark's catalog. Without `spark` all that
        is not a DataFrame works, through delta-rs, without a JVM. `engine` is auto, spark or delta-rs: auto commits
        through delta-rs wherever it can, which is on paths, S3, ABFS and GCS; on S3 nothing else may. `merge` is the
        setting of that name, over what `settings` say: auto writes small commits out directly, statement runs the
        engine's MERGE statement for each verb; see `Queue.explain`. `owner` is who
        the receipts ledger names (default: user, machine and process). `sender_id` is stored with every message sent
        through this object, and is its SenderId (an account or a user; default: the account of the queues' ARNs, which
        is not stored). `storage_options` are delta-rs's (aws_access_key_id, aws_endpoint, ...), over what the
        environment says; when none are given, on S3 with `spark` they are what the session says of the bucket
        (fs.s3a.access.key, endpoint, ...). `read_only` is for storage that one may only read, and for looking only:
        without locks, without files to try the storage out, and nothing is made or brought to a newer format. All that
        shows works (counts, peek, messages, views, attributes); what writes raises LedgerIsReadOnly.

        Which clock judges what: `clock` returns the instant (milliseconds) of each verb. Deadlines, delays, retention,
        deduplication and what `receipts` say go by it, and never by an earlier instant than the queue's last commit.
        Two others only check it, and raise ClocksDisagree:

        - `storage_clock` returns the storage's time (milliseconds), at opening and every 10 minutes; the two may be
          half of the setting maximum_clock_skew apart. If you give none, the ledger writes a small file on local paths
          and where delta-rs commits, and takes its time. It does not so with a `clock` of your own, nor with
          `read_only`: then it compares nothing.
        - `passing` returns the seconds that passed, whatever the clock is set to: by default the clock's method
          `passing`, if it has one, else this machine's uptime. A step of the clock by more than maximum_clock_skew is
          refused in every verb, unless another owner's commit confirms it.

        For how long upkeep keeps commits and removed files (log_retention, deleted_file_retention) this machine's clock
        and the times of files judge, whatever `clock` says.

        Raises ClocksDisagree, UnsafeStorage, SparkIsNeeded, LedgerTooNew, InvalidParameterValue, StorageFailed,
        ForkedProcess.
        """
        from ledger.store.delta.opening import open_tables

        for name, given, kinds, bound, fix in (
            ("root", root, (str, os.PathLike), "Must be a path or a URI", "Is a variable of the environment not set?"),
            ("settings", settings, (Settings, type(None)), "Must be Settings", "Settings.read(path) reads a file."),
            ("owner", owner, (str, type(None)), "Must be a text", "Name who acts."),
            ("read_only", read_only, (bool,), "Must be True or False", "True opens it to be looked at."),
            ("create", create, (bool,), "Must be True or False", "False refuses a root that holds no ledger."),
        ):
            if not isinstance(given, kinds):
                raise InvalidParameterValue(name, given, bound, fix)
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
            message_attributes.sender_id(sender_id),
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
        """A ledger of this process alone, gone with it: the executable specification. No DataFrames."""
        settings = settings or Settings()
        return cls(MemoryStore(settings, message_attributes.sender_id(sender_id)), clock, settings)

    def create_queue(
        self, name: str, attributes: Mapping[str, object] | None = None, tags: Mapping[str, str] | None = None
    ) -> Queue:
        """Return the queue of this name. It is made if there is none, so the call may be repeated.

        Raises:
            QueueNameExists: It exists with a different value of a given attribute, or with other tags than those given.
            InvalidAttributeName: An attribute is unknown.
            InvalidAttributeValue: An attribute's value is out of its range.
            InvalidParameterValue: The name, a tag or a redrive policy is refused.
            QueueDeletedRecently: With Limits=SQS, a queue of that name was deleted within the setting deletion_interval
                (60 s).
        """
        attribute_rules.queue_name(name, attributes)
        # What is empty and no mapping is refused as well.
        complete = attribute_rules.complete({} if attributes is None else attributes, account=self.settings.account)
        own_tags = attribute_rules.tags({} if tags is None else tags)
        record = self.store.create_queue(name, complete, own_tags, self.clock)
        there, asked = attribute_rules.answered(record.attributes), attribute_rules.answered(complete)
        for attribute in attributes or {}:
            if there.get(attribute) != asked.get(attribute):
                raise QueueNameExists(name, attribute, there.get(attribute), asked.get(attribute))
        # Source: pull request 70 of awslabs/amazon-sqs-java-temporary-queues-client, and 13 of Bogdanp/dramatiq_sqs.
        if own_tags and own_tags != dict(record.tags):
            raise QueueNameExists(name, "tags", json.dumps(dict(record.tags)), json.dumps(own_tags))
        return self._queue(record)

    def queue(self, name: str) -> Queue:
        """The queue of this name; raises QueueDoesNotExist."""
        return self._queue(self._named(name))

    def list_queues(self, prefix: str = "", after: str = "", max_results: int | None = None) -> list[Queue]:
        """The queues whose names begin with `prefix`, by name; for paging, at most `max_results` behind the name
        `after` (SQS's NextToken: the last name of the page before)."""
        for field, given in (("prefix", prefix), ("after", after)):
            if not isinstance(given, str):
                raise InvalidParameterValue(field, given, "Must be a text", "Leave it out for all queues.")
        found = [record for record in self.store.queues() if record.name.startswith(prefix) and record.name > after]
        most = bounds.maximum_messages(max_results, bounds.UNBOUNDED, "MaxResults")
        return [self._queue(record) for record in found[:most]]

    def delete_queue(self, name: str) -> None:
        """Deletes the queue that has this name now, and all its messages; a queue made anew under the name is another
        one, and stays. Raises QueueDoesNotExist, also when another delete of the same queue was first."""
        self.store.delete_queue(self._named(name), self.clock)
        log.info("the queue %s is deleted", name)

    def view(self, name: str, version: int | None = None, *, timestamp: datetime | str | None = None) -> DataFrame:
        """An analyst view as a DataFrame: messages, in_flight, queue_depth, dead_letters, processing_times or receipts;
        reading disturbs nobody. `sql` has the same views without Spark.

        With `version` of the visibility table (as in `receipts` and `Claim.version`): as it was then, by the clock of
        that commit. With `timestamp`, a datetime with a time zone or such a text: as it was at that instant. What is
        within the last 7 days can be read, or as long as the settings of upkeep say. `receipts`, and what is made of
        them, are up to date without an upkeep. `queue_depth` of now is what `Queue.counts` says, and reads no message.
        The rows are read when the DataFrame is used, in your session: where its spark.sql.files.ignoreMissingFiles or
        ignoreCorruptFiles is on, Spark leaves out the rows of a file that is missing or corrupt. `sql` never does.
        Raises SparkIsNeeded, InvalidParameterValue, and StorageFailed where the ledger's folder is gone.
        """
        from ledger.store.delta.dataframes.views import open_view, queue_depth

        opened, spark = self._on_spark("view")
        # Spark would say of a folder that is gone what it says of a path that was mistyped.
        opened.engine.version("visibility")
        if name == "queue_depth" and version is None and timestamp is None:
            return queue_depth(spark, opened.store, self.clock)
        return open_view(spark, opened.engine, opened.locations, name, self.clock(), version, timestamp)

    def sql(self, query: str, version: int | None = None, *, timestamp: datetime | str | None = None) -> pa.Table:
        """A SQL query on the analyst views, without Spark; returns an Arrow table. Reading disturbs nobody.

        The views, and `version` and `timestamp`, are those of `view`; the SQL is DataFusion's, which delta-rs brings
        along. `ledger.sql("SELECT * FROM comments")` says what the views and their columns are.
        Raises InvalidParameterValue for what is no query, in DataFusion's words; StorageFailed.
        """
        from ledger.store.delta.views.queries import Queries

        opened = self._on_delta("sql")
        return Queries(opened.store, self.clock).answer(query, version, timestamp)

    def deploy_views(
        self,
        schema: str,
        prefix: str = "",
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> list[str]:
        """Creates the analyst views in a schema of Spark's catalog, with comments, where they always tell the present
        state; or, with `version` or `timestamp` as in `view`, always that of then (under another prefix, say).

        `receipts`, and what is made of them, are there as of the last upkeep or `fill_receipts`.
        """
        from ledger.store.delta.dataframes.views import deploy_views

        opened, spark = self._on_spark("deploy_views")
        return deploy_views(spark, opened.engine, opened.locations, schema, prefix, self.clock(), version, timestamp)

    def fill_receipts(self) -> int:
        """Brings the `receipts` table up to date with the commits, exactly once; returns how many entries were new."""
        from ledger.store.delta.verbs.receipts import fill_receipts

        opened = self._on_delta("fill_receipts")
        return fill_receipts(opened.engine, opened.transactions)

    def health(self, *, deep: bool = False) -> Health:
        """How the tables are: queues, files, the length of the logs, what an upkeep would remove, the age of the oldest
        commit that none has gone over, and, as `vitals`, what grows with the load and what hangs. Reads alone; delta-rs
        does it, where it reads the storage. `ledger doctor ROOT --json` says it for a monitor. Each table's `damaged`
        names the data files that are missing, empty or of another size than the log says; with `deep` each one's footer
        is read, and its rows are counted, too.
        Raises StorageFailed, and LedgerDamaged for a log that cannot be read."""
        from ledger.store.delta.verbs.health import health_of

        return health_of(self._on_delta("health").store, self.clock, deep=deep)

    @staticmethod
    def repair(root: str = DEFAULT_ROOT, *, dry_run: bool = False) -> Repair:
        """Cuts the damaged ledger at `root`, a local path, back to its last whole version, and returns what was lost;
        with `dry_run` it only looks. What is taken out is moved to the folder `_ledger_lost` beside the tables.

        Stop all that uses the ledger before. A whole ledger is left as it is, and so is one that was repaired. Raises
        LedgerDamaged where a table cannot be repaired (nothing was changed then), LedgerError while another process
        has one of the ledger's locks, InvalidParameterValue for a root that is no local path, LedgerDoesNotExist."""
        from ledger.store.delta.verbs.repair import repair_ledger

        return repair_ledger(root, dry_run=dry_run)

    @staticmethod
    def destroy(
        root: str = DEFAULT_ROOT, *, storage_options: Mapping[str, str] | None = None, dry_run: bool = False
    ) -> Destroyed:
        """Removes the ledger at `root`, a local path or a place on an object store, with all of its messages, and
        returns what that was; with `dry_run` it only looks. What is not the ledger's stays.

        Nothing brings it back but a backup, or an object store's own versions. Processes that have it open find no
        table any more. Raises LedgerDoesNotExist, LedgerError while another process has one of the ledger's locks (then
        nothing was removed), InvalidParameterValue for a root that only Spark reaches, StorageFailed."""
        from ledger.store.delta.destruction import destroy_ledger

        return destroy_ledger(root, storage_options, dry_run=dry_run)

    @staticmethod
    def share(root: str = DEFAULT_ROOT, *, group: str, everyone: bool = False) -> SharedLedger:
        """Lets all users of a group use the ledger at `root`, a local path; with `everyone` all others may read it.

        Its folders and locks become writable for the group, and its files readable. So does what anybody makes there
        later, also by delta-rs and other programs: new files have their folder's group, and its default ACL takes the
        place of the maker's umask. Where the file system has no ACLs, `is_inherited` is False, and every user needs the
        umask 002. Spark sets permissions by itself: give its session spark.hadoop.fs.permissions.umask-mode=002.
        Only the owner of all of it, who is in the group, and root may do so; again at any time, which mends what was
        made otherwise. The doctor names it.
        Raises LedgerDoesNotExist; InvalidParameterValue for a group that there is not, and for other storage;
        StorageFailed, which names what is another user's.
        """
        from ledger.store.delta.permissions import share_ledger

        return share_ledger(root, group, everyone=everyone)

    def upkeep(self, vacuum: bool = True, report: Callable[[str], None] | None = None) -> UpkeepReport:
        """Drops finished segments, joins rows, compacts lanes, fills receipts, vacuums within the retention, and
        carries on message move tasks that their process left behind.

        Safe beside running claims, as often as you like. Once in 30 days is a must for a complete `receipts`. How often
        is worth its price follows from the load: `ledger upkeep --every 5m`, and `ledger serve`, go by that. A round
        records in the log of `tasks` how far it went.

        What it drops because of its age it has seen to be so old in an earlier round, the setting mark_seconds (5
        minutes) before, or since this process opened the ledger: one wrong look at the clock destroys nothing.
        `report` gets a line of text for each step; without it they are logged at level debug.
        Raises ClocksDisagree, StorageFailed, ContentionOutlastedRetries.
        """
        from ledger.store.delta.verbs.ages import Judged
        from ledger.store.delta.verbs.upkeep import Upkeep

        opened = self._on_delta("upkeep")
        # Before the clock is read for anything else: who stands still between two readings has not looked twice.
        judged = Judged(self.clock(), is_confirmed=True) if opened.ages is None else opened.ages.judge()
        rounds, began_at = opened.store.rounds, self.clock()
        begun = rounds.look()
        if judged.is_near(self.clock()):
            carry_on(opened.store, self.clock)
        done = Upkeep(opened.store, self.clock, report).run(vacuum, judged)
        if judged.at is not None:
            # A round that dropped nothing for its age leaves that to the next one, which is as due as this one was.
            rounds.record(begun, began_at)
        return done

    def rounds(self) -> Rounds:
        """Return the record of the rounds of upkeep: how far the last one went, and whether one runs."""
        return self._on_delta("rounds").store.rounds

    def repair_clock(self, *, dry_run: bool = False) -> list[ClockRepair]:
        """Put the queues' times right after a clock that was ahead has committed here; return what that was, by queue.

        Each queue whose time is further ahead of this machine's clock than the setting maximum_clock_skew gets it back
        in one commit, with its leases; `receipts` records it as "clock repaired". One that was made or changed by a
        clock that was ahead gets, in another, its timestamps and what has expired by this clock. Call it when this
        machine's clock is right: no verb tells which of two clocks is. With `dry_run` nothing is changed.
        Raises ClocksDisagree, ContentionOutlastedRetries, StorageFailed, LedgerIsReadOnly.
        """
        from ledger.store.delta.verbs import clock_repair

        opened = self._on_delta("repair_clock")
        repair = clock_repair.find_wrong_times if dry_run else clock_repair.repair_clock
        return repair(opened.store, self.clock)

    def backup(self, dest: str | os.PathLike[str], report: Callable[[str], None] | None = None) -> BackupReport:
        """Copies one consistent version of all tables into the folder `dest`, which is empty or not there, while the
        ledger is in use. Both are on local paths.

        The copy has the messages, their states and the receipts, and no past versions. Messages in flight are in flight
        after a restore, until their deadlines. `report` is told of the steps. A backup that did not end well is never
        taken for one. Returns a BackupReport: versions, files, bytes, and the time. Raises InvalidParameterValue, and
        StorageFailed, also where an upkeep removed files before they were copied: then take it again.
        """
        from ledger.store.delta.backups import back_up

        opened = self._on_delta("backup")
        return back_up(opened.engine, opened.transactions, dest, progress.report(report, log.info))

    @staticmethod
    def restore_backup(
        source: str | os.PathLike[str],
        root: str | os.PathLike[str],
        *,
        replace: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> Path | None:
        """Makes the ledger `root` of a backup. Both are on local paths.

        Nothing may be at `root`; with `replace` what is there is moved aside, to the folder that is returned. Processes
        that have that ledger open notice, and go on with the restored one. Nothing is at `root` before all is copied.
        Raises InvalidParameterValue, also for a backup that is not whole, LedgerTooNew and StorageFailed.
        """
        from ledger.store.delta.backups import restore_backup

        return restore_backup(source, root, replace, progress.report(report, log.info))[1]

    def _on_delta(self, call: str) -> OpenLedger:
        if self._opened is None:
            raise LedgerError(f"{call} needs a ledger on Delta tables; this one is in memory")
        return self._opened

    def _on_spark(self, call: str) -> tuple[OpenLedger, SparkSession]:
        opened = self._on_delta(call)
        if opened.spark is None:
            raise SparkIsNeeded(f"{call} returns a DataFrame: open the ledger with Ledger.open(root, spark=spark)")
        return opened, opened.spark

    def _named(self, name: str) -> QueueRecord:
        if not isinstance(name, str):
            raise InvalidParameterValue("QueueName", name, "Must be a text")
        return self.store.queue(name)

    def _queue(self, record: QueueRecord) -> Queue:
        frames = self._opened.frames if self._opened else None
        reopen = None if self._reopening is None else partial(_reopened, self._reopening, record.name)
        return Queue(Access(self.store, self.clock, self.settings, frames, record, reopen))


def _reopened(arguments: Mapping[str, Any], queue: str) -> Access:
    """Open a ledger by the arguments of Ledger.open, in another process, and return access to a queue of it."""
    return Ledger.open(**arguments).queue(queue).access
