"""A client of Delta Lake that commits to tables mostly without an engine.

The client knows Delta and nothing of queues. The code that uses it (the *caller*) describes each table by a
`spec.TableSpec` and calls the methods of `protocol.DeltaTables`, the contract.

**Why it exists.** A commit of one row takes 40 ms by a statement of delta-rs 1.6.6, and 1 s by a statement of Spark 4.2
with Delta 4.4. A commit that the client makes itself takes 4 ms (measured with both of 2 cores busy).

What it does
============

The methods of the contract:

| operation | method |
|---|---|
| make a table | `create`, `exists` |
| describe a table, set its properties | `layout`, `configure` |
| find a table's place and its faults | `place`, `damage`, `refusal` |
| find the newest version | `version`, `newest_versions` |
| count how often the tables were found to be replaced | `generation` |
| read rows | `load` (to decide on), `rows`, `file_facts`, `files_above`, `greatest` |
| commit | `merge`, `add_rows`, `mark`, `delete`, `join_files` |
| find what a transaction id committed | `transaction_version` |
| read the metadata of commits | `history` |
| remove what nobody needs | `vacuum` |
| survive a power cut | `make_durable` |
| return the engine's statement for a commit, and why the engine runs it | `statement`, `is_direct`, `why_not_direct` |

Without a call, a commit makes a checkpoint when one is due (`maintenance`). `DeltaRsTables` also has `stage` and
`stage_folder`, which prepare a folder for files of others. Its `publish` adds these files to the table in one commit.

**What it reads.** An engine, delta-rs or Spark, replays the log at first, and again at times (`replay` says when).
Otherwise the client reads each new entry itself. The client understands `add`, `remove`, `txn` and `commitInfo`, if
there is no deletion vector, no path needs escapes, and no file is added twice. It reads data files with Arrow.

**What it writes.** Data files (Parquet), and entries of the log. Engines make the checkpoints, and the first entry of a
table. (On a local path, delta-rs makes its own in a temporary folder, and the client puts them into the log.)

- `log.LogWriter.land` has the loop for direct commits. On a local path, delta-rs runs a MERGE on a copy of the log,
  unless the table is altered. Then `land` commits the actions of that MERGE.
- `local_commits` has a second loop, for other commits on a local path: published files, marks (commits of transactions
  without rows), and appends and deletes by a statement of delta-rs.
- `DeltaRsTables.configure` tries once, through `local_commits.put_next`.
- An engine makes all other commits itself: each statement or transaction of Spark, and each one of delta-rs on an
  object store. On a local path, delta-rs itself commits each MERGE on an altered table. delta-rs also makes appends,
  deletes, marks and commits of published files, if a table demands more than `local_commits` can do.

**Example.** A partition has the files A and B. An edit changes a row of A. The client writes a file C, with the rows of
A after the edit, and wants to make this entry:

    version 7: {"commitInfo": {"operation": "MERGE", ...}} {"remove": {"path": "A", ...}} {"add": {"path": "C", ...}}

Suppose that another writer has made version 7 first. If the partition still has exactly the files A and B, the client
makes version 8 with the same actions. Otherwise (the other writer has removed A, say) the client raises Conflict.

**Why this is safe.** See `log`. Before a commit, `rewrite` checks each assumption of an edit against the rows that the
decision read.

Which tables the client writes
==============================

The client commits rows without a statement only to tables of reader version 1 and writer version 2. These tables have
exactly the columns of their spec, and no constraints. All columns may be null, and none has metadata (an invariant, a
generation expression or a comment). These tables do not have the property `delta.setTransactionRetentionDuration`, or a
`delta.appendOnly` that is on. No path of their files needs escapes. Any other table is *altered*
(`replay.require_plain`). Statements of the engine commit rows to an altered table. If a statement cannot check an
assumption of the commit, the client raises NotDirect. If the engine refuses the table as well, the error names the
alteration, and how to undo it (`alterations`).

With the argument `by_statement` of the tables' classes, the engine makes all commits of rows: MERGEs (`statements`) and
appends. The other commits stay the same.

`TableSpec` allows only types whose values have one certain text in the log. A table may be partitioned by texts, whole
numbers, dates and booleans (never null, never an empty text). Statistics may be of texts, whole numbers, dates and
instants.

What it never does
==================

- The client never puts an entry over another one, and never commits on a version that it has not looked at.
- This package removes an entry of a table's log only in these cases:

  1. A vacuum, or a checkpoint, removes entries that a checkpoint sums up and that are older than the table's
     `delta.logRetentionDuration`. Other writers of Delta do the same.
  2. A table is replaced, or its log is cut, during a commit. Then version N may be missing although the client has just
     made version N + 1. `LogWriter._verify_reachable` removes the client's version N + 1, unless a listing shows that
     the log goes on. If version N then exists again, the method restores version N + 1.
  3. `local_commits.put_next` does the same, but only checks whether version N exists.

  `delta_rs_commits.remove_log` removes the log of a staging folder, which is not one of the caller's tables.
- It never reads an empty or torn entry as a commit (`history`).
- It never guesses what an unknown action means. The engine replays the log instead.
- It writes no `.crc` files of a table's versions, which are optional. (`delta_rs_commits.begin_log` writes one, for a
  staging folder that Spark alone reads.)

Metadata of a commit
====================

In a commit that the client makes, `engineInfo` is `ledger/VERSION`. `operation` is MERGE, WRITE, OPTIMIZE or SET
TBLPROPERTIES. `operationParameters` of a MERGE and of an OPTIMIZE says that no statement was run:
`{"rewrittenDirectly": "true"}`. For a WRITE it is `{"mode": "Append"}`. In the commit of a statement, the engine writes
these fields. `userMetadata` is the metadata that the caller gave, as JSON (`{}` for a join).

Each entry that the client puts into the log, except version 0 of a new table, has one or two more fields. `lines` is
the number of the entry's lines: it shows whether the entry was cut off (`history`). `synced` (its value is true) is
present only if the commit was durable before others could see it (`durability`).

When to delete it
=================

Delete this package when one library does all of the following. The list was tried with deltalake 1.6.6 in November
2026. Try it again with each release.

1. It commits given add and remove actions as exactly the next version or nothing, in a few milliseconds. delta-rs does
   so: `create_write_transaction` with RemoveAction and `max_commit_retries=0` took 5 to 11 ms. But delta-rs refuses the
   commit if others committed to another partition meanwhile, even with retries.
2. It refuses a commit whose files others removed. With delta-rs, two commits that remove the same files can both land.
   Every row of these files then exists twice. Some files that delta-rs removes stay in the table.
   docs/explanation/delta-rs-faults.md has a program for each of three faults. tests/delta_log/test_faults.py fails when
   delta-rs has mended one of them.
3. It follows a log in less than a millisecond a commit, however many commits it has followed. With delta-rs
   (`update_incremental`) this takes longer with each append (see `delta_rs_commits.MOST_FOLLOWED`).
4. It syncs what it commits. delta-rs gives a commit its name before its bytes are on the disk (`local_commits`).
5. A process that used it does not crash at its exit. After reads through delta-rs's own file system for Arrow, a
   process can crash (`object_store`).

How it is tested
================

tests/delta_log has its own small reader and writer of Delta's protocol, without code of this package. The tests compare
each kind of commit with them. Four readers (the tests' own, delta-rs, DuckDB, Spark) return the same cells after random
programs, after 200 calls on a ledger, and after commits of others. MERGE, DELETE and OPTIMIZE of both engines give the
same rows as the client's commits.

Modules
=======

- The contract: `protocol` methods and errors · `spec` a caller's tables · `values` values as texts
- The log: `replay` files by partition · `history` entries · `file_facts` facts of files · `maintenance` checkpoints,
  vacuum
- Commits: `log` direct commits · `actions` their lines · `data_files` Parquet files · `rewrite` files replaced by edits
  · `join` small files joined · `statements` MERGEs of engines · `paths` direct or by statement, and why ·
  `local_commits` synced commits of delta-rs · `scratch` temporary folders
- Files: `storage` the interface, local paths · `object_store` S3, ABFS, GCS · `hadoop` HDFS · `reading` rows ·
  `durability` syncs
- Faults: `damage` broken files · `alterations` changes by others · `failures` errors of storages
- delta-rs: `by_delta_rs` the tables · `delta_rs_commits` loaded tables, commits
- Spark: `by_spark` the tables · `spark_replay` the log · `spark_sessions` sessions
"""
