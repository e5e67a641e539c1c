"""PostgreSQL with `FOR UPDATE SKIP LOCKED`: a table like pgmq's, one row per message."""

from __future__ import annotations

import secrets
from typing import Any

import psycopg
from bodies import SQL
from timing import Cell, OverBudget, timed

TABLE = """
    CREATE TABLE queue (
        id bigint PRIMARY KEY,
        body text NOT NULL,
        visible_at timestamptz NOT NULL DEFAULT '-infinity',
        receipt text,
        receive_count int NOT NULL DEFAULT 0
    )
"""
#: Without it extend, release and delete of ten messages would read the whole table.
BY_RECEIPT = "CREATE INDEX by_receipt ON queue (receipt) WHERE receipt IS NOT NULL"
FILL = f"INSERT INTO queue (id, body) SELECT id, {SQL.format(text='text')} FROM generate_series(1, %s) AS id"
CLAIM = """
    UPDATE queue
    SET visible_at = clock_timestamp() + interval '1 hour', receipt = %s, receive_count = receive_count + 1
    WHERE id IN (
        SELECT id FROM queue WHERE visible_at <= clock_timestamp() ORDER BY id FOR UPDATE SKIP LOCKED LIMIT %s
    )
"""
EXTEND = "UPDATE queue SET visible_at = clock_timestamp() + interval '2 hours' WHERE receipt = %s"
RELEASE = "UPDATE queue SET visible_at = clock_timestamp() WHERE receipt = %s"
DELETE = "DELETE FROM queue WHERE receipt = %s"


class Postgres:
    """A contestant: no message leaves the server, every verb is one statement and one commit."""

    def __init__(self, connect: str, budget: float) -> None:
        self._connection = psycopg.connect(connect, autocommit=True)
        self._budget = budget
        version = self._connection.info.server_version
        self.name = f"PostgreSQL {version // 10_000}, SKIP LOCKED"
        self._messages = 0

    def load(self, messages: int) -> Cell:
        self._messages = messages
        self._run("DROP TABLE IF EXISTS queue")
        self._run(TABLE)
        self._run(BY_RECEIPT)
        seconds, _ = timed(lambda: self._run(FILL, messages))
        return Cell([seconds])

    def restore(self, taken: int) -> None:
        """Gives back what is held and sends again what was deleted: the oldest, as every claim takes those."""
        if taken == self._messages:
            self._run("TRUNCATE queue")
        else:
            self._run("UPDATE queue SET visible_at = '-infinity', receipt = NULL WHERE receipt IS NOT NULL")
        self._run(FILL + " ON CONFLICT (id) DO NOTHING", taken)
        self.settle()

    def settle(self) -> None:
        """Cleans up after the last verbs, so that no repeat pays for another; in production autovacuum's work."""
        self._run("VACUUM (ANALYZE) queue")
        self._run("CHECKPOINT")

    def claim(self, messages: int | None) -> tuple[str, int]:
        receipt = secrets.token_hex(16)
        return receipt, self._limited(CLAIM, receipt, messages)

    def count(self, claim: tuple[str, int]) -> int:
        return claim[1]

    def extend(self, claim: tuple[str, int]) -> None:
        self._limited(EXTEND, claim[0])

    def release(self, claim: tuple[str, int]) -> None:
        self._limited(RELEASE, claim[0])

    def delete(self, claim: tuple[str, int]) -> None:
        self._limited(DELETE, claim[0])

    def unload(self) -> None:
        self._run("DROP TABLE queue")

    def settings(self) -> dict[str, str]:
        """The settings that matter here, as the server itself says."""
        names = (
            "server_version",
            "shared_buffers",
            "work_mem",
            "max_wal_size",
            "checkpoint_timeout",
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "autovacuum",
        )
        return {name: self._run(f"SHOW {name}", fetch=True) for name in names}

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def _limited(self, statement: str, *values: Any) -> int:
        self._run(f"SET statement_timeout = {int(self._budget * 1_000)}")
        try:
            return self._run(statement, *values)
        except psycopg.errors.QueryCanceled as error:
            raise OverBudget from error
        finally:
            self._run("SET statement_timeout = 0")

    def _run(self, statement: str, *values: Any, fetch: bool = False) -> Any:
        cursor = self._connection.execute(statement, values or None)
        return cursor.fetchone()[0] if fetch else cursor.rowcount
