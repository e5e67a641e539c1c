"""A client of Delta's log, which follows, decides and commits by itself.

The client knows Delta and nothing of queues. Its user describes each table (`spec.TableSpec`) and calls the methods of
`protocol.DeltaTables`, which is the contract. `by_delta_rs.DeltaRsTables` and `by_spark.SparkTables` implement it.

**Why it exists.** A library is better than code of our own. But a commit of one row costs 40 ms by a statement of
delta-rs 1.6.6 and 1 s by one of Spark 4.2 with Delta 4.4. The client's own costs 4 ms (2 busy cores). So this package
is a recorded exception. In this package all times are of single commits. A verb of the client's user reads and decides
too, and takes longer.

What it does
============

**The operations.** Each method of the contract once:

| operation | method |
|---|---|
| make a table | `create`, `exists` |
| describe it, set its properties | `layout`, `configure` |
| find where it lies, and what is wrong with it | `place`, `damage`, `refusal` |
| find the newest version | `version`, `newest_versions` |
| count how often the tables were replaced | `generation` |
| read rows | `load` (to decide on), `rows`, `file_facts`, `greatest` |
| commit | `merge`, `add_rows`, `mark`, `delete`, `join_files` |
| find what a transaction id committed | `transaction_version` |
| read the metadata of commits | `history` |
| remove what nobody needs | `vacuum` |
| survive a power cut | `make_durable` |
| show a statement, tell whether and why it would be run | `statement`, `is_direct`, `why_not_direct` |

Two things happen without a call: a commit makes a checkpoint where one is due (`maintenance`), and `paths` counts
commits. `DeltaRsTables` has two methods beyond the contract, `stage` and `publish`: Spark writes files into a folder of
their own, and one commit of the client names them.

**What it reads.** An engine, delta-rs or Spark, replays the log at first, once a minute, and where the client does not
understand an entry. In between the client reads each new entry itself (`replay`): `add`, `remove`, `txn` and
`commitInfo` without deletion vectors, and paths that need no escapes. It reads data files with Arrow.

**What it writes.** Data files (Parquet), and entries of the log with `commitInfo`, `txn`, `add`, `remove` and, for
properties, `metaData`. Engines write checkpoints. An entry is a new file. If the decision was made on version N, the
commit becomes version N + 1. If version N + 1 exists already, nothing is written.

- `log.LogWriter.land` has the one loop for commits of the client. `LogWriter.commit` writes the data files first. A
  MERGE of delta-rs on a local path runs on a copy of the log, and `land` commits what it came to.
- `local_commits` has a loop for other commits that delta-rs made beside the log: it syncs their files, and then makes
  the entry. Published files, marks, and appends and deletes by statement on a local path are such commits.
- `configure` tries once, through `local_commits.put_next`.
- All other commits an engine makes by itself: each statement of Spark, and those of delta-rs on an object store or to
  a table that asks more of a commit than `local_commits` does.

**Example.** A partition has the files A and B. An edit changes a row of A. The client writes C, with the rows of A as
they are then, and the next entry:

    version 7: {"commitInfo": {"operation": "MERGE", ...}} {"remove": {"path": "A", ...}} {"add": {"path": "C", ...}}

Another writer made version 7 first. The partition still has the files A and B, so the client makes version 8 of the
same actions. Had the other writer removed A, the client would have raised Conflict.

**Why that holds.** Names of files are never used twice. So a partition that has the same files has the same rows, and
what was decided on them holds. Before a commit, `rewrite` checks each assumption of an edit against the rows that the
decision read.

Part of the protocol
====================

Reader version 1 and writer version 2, without constraints, generated columns, invariants, `delta.appendOnly` and
columns that may not be null. Any other table is *altered* (`replay.require_plain`). Then the client commits by
statements of the engine, which take longer, or raises NotDirect if a statement cannot check what the commit
supposes. If the engine refuses the table too, the error names the alteration and what undoes it (`alterations`).

With `by_statement` the client commits no row by itself: each edit is a MERGE of the engine (`statements`), each append
the engine's. Joins, deletes, marks and published files are committed as without it.

`TableSpec` refuses columns whose values have no certain text in the log: partitions by texts, whole numbers, dates and
booleans, none of them null; statistics of texts, whole numbers, dates and instants.

What it never does
==================

- It never puts an entry over another one, and never commits on a version that it has not looked at.
- It never removes an entry of a table's log, but in these cases:

  1. A vacuum, or a checkpoint, removes entries that a checkpoint sums up and that are older than the table's
     `delta.logRetentionDuration`. Every writer of Delta does so.
  2. A table is replaced, or its log is cut, during a commit. So version N may be gone when version N + 1 is there.
     `LogWriter._verify_reachable` then removes version N + 1: nobody can have followed it. If version N is there again
     by then, it restores version N + 1.
  3. `local_commits.put_next` does the same by a simpler check: it looks only whether version N is there.

  `delta_rs_commits.remove_log` removes the log of a staging folder, which is no table of the user's.
- It never takes an entry that is empty or torn for a commit (`history`).
- It never guesses at an action that it does not know: the engine replays the log then.
- It writes no `.crc` files of a table's versions. Delta's protocol makes them optional. A `.crc` needs the number of
  files and bytes of its version, and costs each commit one more file. Only `delta_rs_commits.begin_log` writes one, for
  a staging folder that Spark alone reads.

Metadata of a commit
====================

In a commit that the client makes, `engineInfo` is `ledger/VERSION`, and `operation` names what it does: MERGE, WRITE,
OPTIMIZE, SET TBLPROPERTIES. `operationParameters` of a MERGE and of an OPTIMIZE says that no statement was run:
`{"rewrittenDirectly": "true"}`; of a WRITE it is `{"mode": "Append"}`. The commit of a statement has what its engine
writes there. In both, `userMetadata` is the user's.

Two further fields are in each entry that the client puts into the log: `lines` is the number of its lines, so that a
cut entry shows it (`history`). `synced` is true where the commit was durable before others could see it
(`durability`).

When to delete it
=================

Tried with deltalake 1.6.6 in November 2026. Try again with each release of it. Delete this package when one library
does all of this:

1. It commits given add and remove actions as exactly the next version or nothing, in some milliseconds. delta-rs can,
   since 1.6.6: `create_write_transaction` with RemoveAction and `max_commit_retries=0` took 5 to 11 ms. But if others
   committed to another partition meanwhile, it refuses the commit, even with retries.
2. It refuses a commit whose files others removed. delta-rs does so without retries. With `dataChange=false` and
   retries, two commits that remove the same files both land, and so do two of its OPTIMIZE. Every row of these files
   then exists twice. And a file whose path Spark wrote with letters beyond ASCII stays when delta-rs removes it.
   docs/explanation/delta-rs-faults.md has a program for each. tests/delta_log/test_faults.py fails when one is gone.
3. It follows a log in less than a millisecond a commit. delta-rs takes 5 ms and more (`update_incremental`), and 20 ms
   after 200 appends.
4. It syncs what it commits. delta-rs gives a commit its name before its bytes are on the disk (`local_commits`).
5. It does not abort a process that exits. Reads through delta-rs's own file system for Arrow do (`object_store`).

How it is tested
================

tests/delta_log reads and writes the protocol by hand, without code of this package, and compares each kind of commit
with that. Four readers (by hand, delta-rs, DuckDB, Spark) return the same cells after random programs, after 200 verbs
of a ledger, and after what others do to a table. MERGE, DELETE and OPTIMIZE of delta-rs and of Spark make the same
rows.

Names
=====

Each module once:

- The contract: `protocol` methods and errors · `spec` tables as users want them · `values` values as texts
- The log: `replay` the log followed · `history` entries · `file_facts` facts of files · `maintenance` checkpoints,
  vacuum
- Commits: `log` the client's own · `actions` their lines · `data_files` files of rows · `rewrite` files replaced by
  edits · `join` small files joined · `statements` MERGEs of engines · `paths` direct or by statement, and why ·
  `local_commits` delta-rs's commits, synced · `scratch` temporary folders for these
- Files: `storage` the interface, local paths · `object_store` S3, ABFS, GCS · `hadoop` HDFS · `reading` rows ·
  `durability` syncs
- Faults: `damage` broken files · `alterations` changes by others · `failures` errors of storages
- delta-rs: `by_delta_rs` the tables · `delta_rs_commits` loaded tables, commits
- Spark: `by_spark` the tables · `spark_replay` the log · `spark_sessions` sessions
"""
