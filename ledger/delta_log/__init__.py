"""A client of Delta's log: it follows the log of a table, decides on its rows, and commits by itself.

It knows Delta and nothing of queues. Its user says of each table what it is (`spec.TableSpec`) and calls the methods
of `protocol.DeltaTables`, which is the contract. `by_delta_rs.DeltaRsTables` and `by_spark.SparkTables` implement it.

**Why it exists.** A library is better than code of our own. But a query for each commit costs 40 ms through delta-rs
1.6.6 and 1 s through Spark 4.2 with Delta 4.4, where this costs 5 ms (2 busy cores). So this is a recorded exception.

What it does
============

**The operations.**

| operation | method |
|---|---|
| make a table | `create`, `exists` |
| describe it, set its properties | `layout`, `configure` |
| find the newest version | `version`, `newest_versions` |
| read rows | `load` (to decide on), `rows`, `file_facts` |
| commit | `merge`, `add_rows`, `mark`, `delete`, `join_files` |
| find what a transaction id committed | `transaction_version` |
| read what commits say of themselves | `history` |
| remove what nobody needs | `vacuum` |
| sum up the log | checkpoints follow commits, see `maintenance` |
| survive a power cut | `make_durable` |
| show a statement, tell why it would be run | `statement`, `why_not_direct` |

**What it reads.** An engine, delta-rs or Spark, replays the log first, once a minute, and where the client does not
understand an entry. In between the client reads each new entry itself (`replay`): `add`, `remove`, `txn` and
`commitInfo` without deletion vectors, and paths that need no escapes. It reads data files with Arrow.

**What it writes.** Data files (Parquet), and entries of the log with `commitInfo`, `txn`, `add`, `remove` and, for
properties, `metaData`. An entry is a file that must be new: the version after the one that the decision looked at, or
nothing. `log.LogWriter.commit` is the one loop that does so. Engines write checkpoints.

**Example.** A partition has the files A and B. An edit changes a row of A. The client writes C, with the rows of A as
they are then, and the next entry:

    version 7: {"commitInfo": {"operation": "MERGE", ...}} {"remove": {"path": "A", ...}} {"add": {"path": "C", ...}}

Another writer made version 7 first. The partition still has the files A and B, so the client makes version 8 of the
same actions. Had the other writer removed A, the client would have raised Conflict.

**Why that holds.** Names of files are never used twice. So a partition that has the same files has the same rows, and
what was decided on them holds. What a decision supposes is held against the rows that it read (`rewrite`).

Which part of the protocol
==========================

Reader version 1 and writer version 2, without constraints, generated columns, invariants, `delta.appendOnly` and
columns that may not be null. Any other table is *altered* (`replay.require_plain`). Then the client commits by
statements of the engine, which take longer, or raises NotDirect where a statement cannot check what the commit
supposes. Where the engine refuses the table too, the error names the alteration and what takes it back (`alterations`).

With `by_statement` the client commits no row by itself: each edit is a MERGE of the engine (`statements`), each append
the engine's. It still joins small files, deletes and publishes files as ever. `paths` counts who made which commit.

`TableSpec` refuses columns whose values have no certain text in the log: partitions by texts, whole numbers, dates and
booleans, none of them null; statistics of texts, whole numbers, dates and instants.

What it never does
==================

- It never puts an entry over another one, and never commits on a version that it has not looked at.
- It never removes an entry of the log, but in two cases. Entries that a checkpoint sums up, and that are older than the
  table's `delta.logRetentionDuration`, go with a vacuum and behind checkpoints, as any writer of Delta has it. And a
  commit may be made in the moment in which the table is replaced or its log cut, so that the version before it is
  gone. Nobody can have followed such a commit: `LogWriter._verify_reachable` proves that, and puts the entry back where
  the proof fails.
- It never takes an entry that is empty or torn for a commit (`history`).
- It never guesses at an action that it does not know: the engine replays the log then.
- It writes no `.crc` files of versions. Delta's protocol makes them optional, and a reader who finds none replays the
  log. Those of a version would have to tell its number of files and bytes, which costs each commit another file.

What a commit says of itself
============================

Of a commit that the client makes, `engineInfo` is `ledger/VERSION`, and `operation` names what it does: MERGE, WRITE,
OPTIMIZE, SET TBLPROPERTIES. `operationParameters` of a MERGE and of an OPTIMIZE says that no statement was run:
`{"rewrittenDirectly": "true"}`; of a WRITE it is `{"mode": "Append"}`. A statement has what its engine says of it. In
both, `userMetadata` is the user's.

When to delete it
=================

Tried with deltalake 1.6.6 in November 2026. Try again with each release of it, and delete this package when a library

1. commits given add and remove actions as exactly the next version or nothing, in some milliseconds. delta-rs can,
   since 1.6.6: `create_write_transaction` with RemoveAction and `max_commit_retries=0` took 5 to 11 ms. It is no way
   yet by itself: it refuses a commit to another partition, even with retries;
2. refuses a commit whose files others removed. delta-rs does not, with retries and `dataChange=false`: two commits
   that remove the same files both land. Its OPTIMIZE does the same. Every row of these files is there twice then. And
   what it removes stays where Spark wrote the path with letters beyond ASCII. docs/delta_rs_faults.md has a program
   for each, and tests/delta_log/test_faults.py fails when one is gone;
3. follows a log in less than a millisecond a commit. delta-rs takes 5 ms and more (`update_incremental`), and 20 ms
   after 200 appends;
4. syncs what it commits. delta-rs gives a commit its name before its bytes are on the disk (`local_commits`);
5. leaves a process in peace that ends: reads through delta-rs's own file system for Arrow abort it (`object_store`).

Who says that it is right
=========================

tests/delta_log reads and writes the protocol by hand, without code of this package, and holds each kind of commit
against that. Four readers (by hand, delta-rs, DuckDB, Spark) tell the same cells after random programs, after 200 verbs
of a ledger, and after what others do to a table. The own MERGE, DELETE and OPTIMIZE of delta-rs and of Spark make the
same rows.

Names
=====

`protocol` contract · `spec` tables · `replay` the log followed · `log` commits · `actions` their lines · `data_files`
files of rows · `rewrite` which files give way · `statements` MERGEs of engines · `paths` who commits, and why ·
`history` entries · `storage`, `object_store`, `hadoop` files · `durability` syncs · `damage` what is broken ·
`alterations` what others changed.
"""
