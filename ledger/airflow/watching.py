"""Repeated looks at a queue from an event loop, in threads: calls of the ledger would block the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from airflow.providers.common.compat.connection import get_async_connection

from ledger.airflow.connection import place_of
from ledger.errors import InvalidParameterValue, StorageFailed
from ledger.results import Counts

log = logging.getLogger("ledger.airflow")
MOST_FAILURES = 20


async def looks_at(ledger_conn_id: str, ledger_queue: str, poll_interval: float) -> AsyncIterator[Counts]:
    """Yield the counts of a queue again and again, with a pause of `poll_interval` seconds.

    Raises StorageFailed after MOST_FAILURES storage failures in a row, QueueDoesNotExist, and what opening the ledger
    raises.
    """
    connection = await get_async_connection(ledger_conn_id)
    place = place_of(ledger_conn_id, connection.host, connection.extra)
    ledger = await asyncio.to_thread(partial(place.open, read_only=True))
    failures = 0
    while True:
        try:
            counts = await asyncio.to_thread(lambda: ledger.queue(ledger_queue).counts())
        except StorageFailed as error:
            failures += 1
            if failures >= MOST_FAILURES:
                raise
            log.warning("could not look at the queue %s (%d times in a row): %s", ledger_queue, failures, error)
        else:
            failures = 0
            yield counts
        await asyncio.sleep(poll_interval)


def seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise InvalidParameterValue(name, value, "Must be a number of seconds above 0")
    return value
