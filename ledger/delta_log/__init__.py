"""A client of Delta Lake that commits to tables mostly without an engine.

The client knows Delta and nothing of queues. Its *caller* describes each table by a `protocol.TableSpec` and calls the
methods of `protocol.DeltaTables`.

**Why it exists.** A commit of one row takes 40 ms by a statement of delta-rs 1.6.6, and 1 s by a statement of Spark 4.2
with Delta 4.4. A commit that the client makes itself takes 4 ms (measured with both of 2 cores busy).

What it does
============

**What it reads.** An engine, delta-rs or Spark, replays the log at first, and again at times. Otherwise the client
reads each new entry itself. The client understands `add`, `remove`, `txn` and `commitInfo`, if there is no deletion
vector, no path needs escapes, and no file is added twice.

**What it writes.** Data files (Parquet), and entries of the log. Engines make the checkpoints, and the first entry of a
table.

- `log.LogWriter.land` makes the direct commits. On a local path it also commits the MERGEs that delta-rs runs on a copy
  of the log.
- `local_commits` makes other commits on a local path: published files, marks (commits of transactions without rows),
  and appends and deletes by delta-rs. It also puts delta-rs's checkpoints and first entries into the log. Where
  delta-rs is the engine, it commits changed properties, on any storage.
- An engine makes all other commits itself.

**Example.** A partition has the files A and B. An edit changes a row of A. The client writes a file C, with the rows of
A after the edit, and wants to make this entry:

    version 7: {"commitInfo": {"operation": "MERGE", ...}} {"remove": {"path": "A", ...}} {"add": {"path": "C", ...}}

Suppose that another writer has made version 7 first. If the partition still has exactly the files A and B, the client
makes version 8 with the same actions. Otherwise the client raises Conflict.

**Why this is safe.** See `log`.

Which tables the client writes
==============================

The client commits rows without a statement only to tables of reader version 1 and writer version 2. These tables have
exactly the columns of their spec, and no constraints. All columns may be null, and none has metadata. No path of their
files needs escapes. They lack the property `delta.setTransactionRetentionDuration`, and `delta.appendOnly` is not on.

Any other table is *altered* (`replay.require_plain`). Statements of the engine commit rows to it. If a statement cannot
check an assumption of the commit, the client raises NotDirect. The engine may refuse the table, too (`alterations`).

What it never does
==================

- The client never puts an entry over another one, and never commits on a version that it has not looked at.
- The client removes an entry of a table's log only in two cases:

  1. A vacuum, or a checkpoint, removes entries that a checkpoint sums up and that are older than the table's
     `delta.logRetentionDuration`.
  2. A table is replaced, or its log is cut, during a commit. If the version before the client's new entry is gone,
     `LogWriter._verify_reachable` and `local_commits.put_next` may take the new entry back.
- The client never reads an empty or torn entry as a commit (`history`).
- The client never guesses what an unknown action means. The engine replays the log instead.

Metadata of a commit
====================

In a commit that the client makes, `engineInfo` is `ledger/VERSION`. `operation` is MERGE, WRITE, OPTIMIZE or SET
TBLPROPERTIES. `operationParameters` of a MERGE and of an OPTIMIZE is `{"rewrittenDirectly": "true"}`: no statement was
run. For a WRITE it is `{"mode": "Append"}`. In the commit of a statement, the engine writes these fields.
`userMetadata` is the metadata that the caller gave, as JSON (`{}` for a join).

Each entry that the client puts into the log, except version 0 of a new table, has one or two more fields. `lines` is
the number of the entry's lines: it shows whether the entry was cut off. `synced` is present, and true, only if the
commit was durable before others could see it (`durability`).

When to delete it
=================

Delete this package when one library does all of the following. deltalake 1.6.6 was tried in November 2026. Try each
release.

1. It commits given add and remove actions as exactly the next version or nothing, in a few milliseconds. With delta-rs
   this takes 5 to 11 ms. But delta-rs refuses the commit if others committed to another partition meanwhile.
2. It refuses a commit whose files others removed. With delta-rs, two commits that remove the same files can both land,
   and every row of these files then exists twice. docs/explanation/delta-rs-faults.md has programs.
   tests/delta_log/test_faults.py fails when delta-rs has mended a fault.
3. It follows a log in less than a millisecond a commit. delta-rs takes longer with each append (see
   `delta_rs_commits.MOST_FOLLOWED`).
4. It syncs what it commits before others can see it (`local_commits`).
5. A process that used it does not crash at its exit, as it can after reads through delta-rs's own file system for Arrow
   (`object_store`).

Modules
=======

- The contract: `protocol`
- The log: `replay` files by partition · `history` entries · `maintenance` checkpoints, vacuum
- Commits: `log` direct commits · `data_files` and actions · `rewrite` files replaced by edits · `join` small files ·
  `statements` MERGEs of engines · `local_commits` commits of delta-rs
- Files: `storage` local paths · `object_store` · `reading` · `durability` syncs
- Faults: `damage` · `alterations` by others · `failures` of storages
- delta-rs: `by_delta_rs` the tables · `delta_rs_commits` loaded tables
- Spark: `by_spark` the tables · `spark_replay` the log and the files · `spark_commits` · `spark_sessions`
"""
