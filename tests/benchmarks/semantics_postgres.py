"""The second benchmark's operations on PostgreSQL: each two ways. No message leaves the server.

FIFO: `groups` has a row per message group, and a message's id is its place in the order. A receive locks the free
groups first and looks at their messages in a second statement of its transaction, which sees what is committed by then.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from typing import Any

import psutil
from bodies import SQL
from postgres import TABLE, Postgres
from processes import Processes
from semantics_rows import EVERY_OTHER, RECEIVES, REPEATED, Scale, expect, measured
from timing import Patience

BODY = SQL.format(text="text")
FIFO = """
    CREATE TABLE fifo (
        id bigint PRIMARY KEY,
        group_id text NOT NULL,
        deduplication_id text NOT NULL UNIQUE,
        body text NOT NULL,
        visible_at timestamptz NOT NULL DEFAULT '-infinity',
        receipt text,
        receive_count int NOT NULL DEFAULT 0
    )
"""
GROUPS = "CREATE TABLE groups (id text PRIMARY KEY, held_until timestamptz NOT NULL DEFAULT '-infinity')"
BY_GROUP = "CREATE INDEX by_group ON fifo (group_id, id)"
#: Only the advisory locks need to look for what is in flight; else a group's row says it.
HELD = "CREATE INDEX held ON fifo (group_id) WHERE receipt IS NOT NULL"
#: A send waits for the one before it, so that ids are in the order of commits, as the ledger's are.
ONE_BY_ONE = "SELECT pg_advisory_xact_lock(0)"
SEND = f"""
    WITH sent AS (
        INSERT INTO fifo (id, group_id, deduplication_id, body)
        SELECT id, 'group-' || id %% %s, 'id-' || id, {BODY}
        FROM (SELECT generate_series(1, %s::int) AS id UNION ALL SELECT generate_series(%s::int, %s::int)) AS numbers
        ON CONFLICT DO NOTHING
        RETURNING group_id
    ), known AS (INSERT INTO groups SELECT DISTINCT group_id FROM sent ON CONFLICT DO NOTHING)
    SELECT count(*) FROM sent
"""
NOT_HELD = """
    NOT EXISTS (
        SELECT FROM fifo h WHERE h.group_id = g.id AND h.receipt IS NOT NULL AND h.visible_at > clock_timestamp()
    )
"""
LOCK = {
    "advisory locks": f"""
        WITH candidates AS MATERIALIZED (SELECT id FROM groups g WHERE {NOT_HELD})
        SELECT array_agg(id) FROM candidates WHERE pg_try_advisory_xact_lock(hashtext(id))
    """,
    "SKIP LOCKED": """
        SELECT array_agg(id) FROM (
            SELECT id FROM groups WHERE held_until <= clock_timestamp() FOR UPDATE SKIP LOCKED
        ) AS free
    """,
}
TAKE = """
    WITH taken AS (
        UPDATE fifo
        SET visible_at = clock_timestamp() + interval '1 hour', receipt = %s, receive_count = receive_count + 1
        WHERE id IN (
            SELECT m.id FROM unnest(%s::text[]) AS g (id) JOIN fifo m ON m.group_id = g.id {still}
            ORDER BY m.id LIMIT %s
        )
        RETURNING group_id
    ) {held} SELECT count(*) FROM taken
"""
HOLD = """
    , held AS (
        UPDATE groups SET held_until = clock_timestamp() + interval '1 hour' WHERE id IN (SELECT group_id FROM taken)
    )
"""
TAKES = {
    "advisory locks": TAKE.format(still=f"WHERE {NOT_HELD}", held=""),
    "SKIP LOCKED": TAKE.format(still="", held=HOLD),
}
FREE = "UPDATE groups SET held_until = '-infinity' WHERE id IN (SELECT DISTINCT group_id FROM fifo WHERE receipt = %s)"
#: Dead letters: in a table of their own, or in the same one.
WAYS = {
    "two tables": {
        "schema": [TABLE, TABLE.replace("TABLE queue", "TABLE dead")],
        "fill": f"INSERT INTO {{table}} (id, body, receive_count) SELECT id, {BODY}, {RECEIVES} "
        "FROM generate_series(1, %s) AS id",
        "bury": "WITH moved AS (DELETE FROM queue WHERE visible_at <= clock_timestamp() AND "
        f"receive_count >= {RECEIVES} RETURNING id, body, receive_count) "
        "INSERT INTO dead (id, body, receive_count) SELECT id, body, receive_count FROM moved",
        "redrive": "WITH moved AS (DELETE FROM dead WHERE visible_at <= clock_timestamp() AND ({where}) "
        "RETURNING id, body) INSERT INTO queue (id, body) SELECT id, body FROM moved",
    },
    "one table": {
        "schema": [
            TABLE.replace("id bigint PRIMARY KEY", "queue text NOT NULL, id bigint NOT NULL, PRIMARY KEY (queue, id)")
        ],
        "fill": f"INSERT INTO queue (queue, id, body, receive_count) SELECT '{{table}}', id, {BODY}, {RECEIVES} "
        "FROM generate_series(1, %s) AS id",
        "bury": "UPDATE queue SET queue = 'dead' WHERE queue = 'queue' AND visible_at <= clock_timestamp() "
        f"AND receive_count >= {RECEIVES}",
        "redrive": "UPDATE queue SET queue = 'queue', receive_count = 0 WHERE queue = 'dead' "
        "AND visible_at <= clock_timestamp() AND ({where})",
    },
}


class Semantics(Postgres):
    """A contestant, two ways: `by` names how groups are locked, and how dead letters are kept."""

    def __init__(self, connect: str, by: tuple[str, str], scale: Scale, patience: Patience) -> None:
        super().__init__(connect, patience.budget)
        self._locks, self._keeps = by
        self._scale, self._patience = scale, patience
        backend = psutil.Process(self._run("SELECT pg_backend_pid()", fetch=True))
        #: All processes of the server, those that write its log and its files included.
        self._server = Processes(backend.ppid())
        self.name = f"{self.name.partition(',')[0]}: {self._locks}; {self._keeps}"

    def sends(self) -> dict[str, Any]:
        """As the ledger's; what is remembered is all there is, so that no five minutes are counted."""
        scale = self._scale
        found = {"send": self._measured("send", lambda: self._send(0, 1, scale.batch, scale.batch), self._new_fifo)}
        self._backlog(scale.large)
        fresh, numbers = scale.batch - scale.batch // REPEATED, itertools.count()

        def send_again() -> None:
            first = scale.large + 1 + next(numbers) * fresh
            self._send(scale.batch // REPEATED, first, first + fresh - 1, fresh)

        return found | {"send repeats": self._measured("send repeats", send_again, self._vacuum_fifo)}

    def receives(self) -> dict[str, Any]:
        """As the ledger's; there are no lanes, and a send in between changes nothing."""
        found = {}
        for key, messages in (("receive small", self._scale.small), ("receive large", self._scale.large)):
            self._backlog(messages)
            found[key] = self._measured_receive(key)
        found["receive 8 lanes"] = found["receive after send"] = found["receive large"]
        self._receive("held")
        odd = "substring(group_id, 7)::int % 2 = 1"
        self._run(f"DELETE FROM fifo WHERE receipt = 'held' AND {odd}")
        self._run("UPDATE groups SET held_until = '-infinity' WHERE substring(id, 7)::int % 2 = 1")
        found["receive half held"] = self._measured_receive("receive half held")
        self._run("DROP TABLE fifo, groups")
        return found

    def dead_letters(self) -> dict[str, Any]:
        """Each repeat starts from tables newly filled, which is the state that favours it most."""
        way, large = WAYS[self._keeps], self._scale.large
        for table in ("queue", "dead"):
            self._run(f"DROP TABLE IF EXISTS {table}")
        for statement in way["schema"]:
            self._run(statement)
        wheres = {"redrive": "true", "redrive half": self._scale.first_half, "redrive every other": EVERY_OTHER}
        found = {"bury": self._measured_move("bury", way["bury"], "queue", large)}
        for key, where in wheres.items():
            count = large if where == "true" else large // 2
            found[key] = self._measured_move(key, way["redrive"].format(where=where), "dead", count)
        return found

    def _measured_move(self, key: str, statement: str, table: str, count: int) -> dict[str, Any]:
        def refill() -> None:
            self._run("TRUNCATE queue" + (", dead" if self._keeps == "two tables" else ""))
            self._run(WAYS[self._keeps]["fill"].format(table=table), self._scale.large)
            for each in ("queue", "dead") if self._keeps == "two tables" else ("queue",):
                self._run(f"VACUUM (ANALYZE) {each}")
            self._run("CHECKPOINT")

        return self._measured(key, lambda: expect(key, self._limited(statement), count), refill)

    def _measured_receive(self, key: str) -> dict[str, Any]:
        held: list[str] = []

        def release() -> None:
            while held:
                self._run(FREE, held[-1])
                self._run("UPDATE fifo SET visible_at = '-infinity', receipt = NULL WHERE receipt = %s", held.pop())
            self._vacuum_fifo()

        def receive() -> None:
            held.append(secrets.token_hex(16))
            expect("received", self._receive(held[-1]), self._scale.batch)

        found = self._measured(key, receive, release)
        groups = self._run("SELECT count(DISTINCT group_id) FROM fifo WHERE receipt = %s", held[-1], fetch=True)
        release()
        return found | {"groups": groups}

    def _receive(self, receipt: str) -> int:
        with self._connection.transaction():
            groups = self._run(LOCK[self._locks], fetch=True)
            return self._run(TAKES[self._locks], receipt, groups, self._scale.batch, fetch=True)

    def _measured(self, key: str, call: Callable[[], Any], before: Callable[[], Any]) -> dict[str, Any]:
        if not self._patience.wants(key):
            return {}
        title = (self._scale.fifo | self._scale.dead)[key]
        return measured(self.name, title, call, self._patience, before, self._server.cpu_seconds)

    def _send(self, again: int, first: int, last: int, fresh: int) -> None:
        with self._connection.transaction():
            self._run(ONE_BY_ONE)
            expect("sent", self._run(SEND, self._scale.groups, again, first, last, fetch=True), fresh)

    def _new_fifo(self) -> None:
        indexes = (BY_GROUP, HELD) if self._locks == "advisory locks" else (BY_GROUP,)
        for statement in ("DROP TABLE IF EXISTS fifo, groups", FIFO, GROUPS, *indexes):
            self._run(statement)

    def _backlog(self, messages: int) -> None:
        self._new_fifo()
        self._send(0, 1, messages, messages)
        self._vacuum_fifo()

    def _vacuum_fifo(self) -> None:
        for statement in ("VACUUM (ANALYZE) fifo", "VACUUM (ANALYZE) groups", "CHECKPOINT"):
            self._run(statement)
