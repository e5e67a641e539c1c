"""The hook: opens the ledger that a connection of the type `ledger` names."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.sdk import BaseHook

from ledger.airflow.connection import Place, place_of
from ledger.airflow.provider import CONNECTION_TYPE, HIDDEN_FIELDS, PLACEHOLDERS, RELABELING
from ledger.ledger import Ledger
from ledger.queue import Queue

DEFAULT_CONNECTION = "ledger_default"


class LedgerHook(BaseHook):
    """Opens the ledger that a connection names.

    The connection's host is the ledger's root. The connection's extra may have `storage_options` (a JSON object of
    delta-rs's options) and `settings` (the path of a TOML file, on the workers). `owner` names the process in the view
    `receipts`. Open a ledger in the process that uses it.
    """

    conn_name_attr = "ledger_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = CONNECTION_TYPE
    hook_name = "Ledger"

    def __init__(self, ledger_conn_id: str = DEFAULT_CONNECTION, owner: str | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.ledger_conn_id, self.owner = ledger_conn_id, owner

    @cached_property
    def place(self) -> Place:
        """The place of the ledger. Raises InvalidParameterValue for a connection that does not name one."""
        connection = self.get_connection(self.ledger_conn_id)
        place = place_of(self.ledger_conn_id, connection.host, connection.extra)
        # After this read, logs mask the secrets in the extra.
        _ = connection.extra_dejson
        return place

    def open(self, *, create: bool = False) -> Ledger:
        """Open the ledger anew. Without `create`, raise LedgerDoesNotExist if there is none."""
        return self.place.open(self.owner, create=create)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, opened once. Raises LedgerDoesNotExist, and what `Ledger.open` raises."""
        return self.open()

    def get_conn(self) -> Ledger:
        return self.ledger

    def get_queue(self, name: str) -> Queue:
        """Return the queue of this name. Raises QueueDoesNotExist."""
        return self.ledger.queue(name)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the ledger can be opened, and its number of queues, or the error."""
        try:
            queues = len(self.ledger.list_queues())
        except Exception as error:
            return False, str(error)
        return True, f"A ledger with {queues:,} queue{'' if queues == 1 else 's'}"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return the form's fields for Airflow 3.1. Later versions read the provider's description."""
        return {"hidden_fields": HIDDEN_FIELDS, "relabeling": RELABELING, "placeholders": PLACEHOLDERS}
