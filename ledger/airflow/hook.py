"""Airflow connections of the type `ledger`, and the hook that opens the ledger of a connection."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from airflow.sdk import BaseHook

from ledger.airflow.provider import CONNECTION_TYPE, HIDDEN_FIELDS, PLACEHOLDERS, RELABELING
from ledger.errors import InvalidParameterValue
from ledger.ledger import Ledger
from ledger.place import locate_here
from ledger.queue import Queue
from ledger.rules.location import PREFIXES, SCHEMA_PREFIX, is_relative, locate_beside
from ledger.settings import Settings

EXTRA_FIELDS = ("storage_options", "settings")
#: Storage options about the time and the repetition of requests.
CLIENT_OPTIONS = ("timeout", "connect_timeout", "retry_timeout", "max_retries")
EXAMPLE_CONNECTION = '{"conn_type": "ledger", "host": "/data/ledger"}'


@dataclass(frozen=True)
class Place:
    """The ledger of a connection."""

    root: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    settings: str | None = None

    def open(self, owner: str | None = None, *, create: bool = False, read_only: bool = False) -> Ledger:
        """Open the ledger without Spark. Without `create`, raise LedgerDoesNotExist if there is none."""
        settings = Settings.read(self.settings) if self.settings else None
        options = self.storage_options or None
        return Ledger.open(
            self.root, create=create, settings=settings, owner=owner, storage_options=options, read_only=read_only
        )

    def output(self, table: object) -> str:
        """Return the place of an output table.

        A relative path begins at the parent folder of the ledger's root: Airflow chooses the folder in which a task
        runs. Other places are returned unchanged.

        Raises InvalidParameterValue for a relative path if the ledger is a schema, or if the engines cannot use the
        path.
        """
        text = os.fspath(table) if isinstance(table, os.PathLike) else str(table)
        is_complete_text = not isinstance(table, os.PathLike) and not is_relative(text)
        if is_complete_text or text.startswith(("/", "~")):
            return text
        if self.root.startswith(SCHEMA_PREFIX):
            bound = f"It is relative, and the ledger {self.root} has no folder to begin at"
            raise InvalidParameterValue("output_table", text, bound, "Give an absolute path, or a URI.")
        return locate_beside("output_table", text, locate_here("root", self.root)).text

    def environment(self) -> dict[str, str]:
        """Return the storage options as environment variables: a command line would show secrets to other users.

        Options in CLIENT_OPTIONS are left out. Any other option whose name does not begin with aws_, azure_ or google_
        raises InvalidParameterValue.
        """
        passed = {name: value for name, value in self.storage_options.items() if name.lower() not in CLIENT_OPTIONS}
        others = sorted(name for name in passed if not name.lower().startswith(PREFIXES))
        if others:
            bound = "A worker reads options from its environment, where their names begin with aws_, azure_ or google_"
            fix = "Name it so in the connection: aws_endpoint for endpoint."
            raise InvalidParameterValue("storage_options", ", ".join(others), bound, fix)
        shown = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in passed.items()}
        return {name.upper(): value for name, value in shown.items()}


def place_of(connection_id: str, host: str | None, extra: str | None) -> Place:
    """Return the Place that a connection names. Raise InvalidParameterValue if its host or extra is wrong."""
    if not host:
        raise _make_error(
            connection_id, "host", host, "It is the root of the ledger, and is missing", f"As in {EXAMPLE_CONNECTION}."
        )
    extra_fields = _parse_object(connection_id, "extra", extra)
    for name in sorted(set(extra_fields) - set(EXTRA_FIELDS)):
        bound = f"The extra knows {' and '.join(EXTRA_FIELDS)}"
        raise _make_error(connection_id, f"extra.{name}", "...", bound, "Remove it, or put it into storage_options.")
    settings = extra_fields.get("settings") or None
    if settings is not None and not isinstance(settings, str):
        raise _make_error(connection_id, "extra.settings", settings, "Must be the path of a TOML file")
    return Place(
        host, _parse_object(connection_id, "extra.storage_options", extra_fields.get("storage_options")), settings
    )


def _parse_object(connection_id: str, name: str, given: object) -> dict[str, Any]:
    """Return the fields of a mapping or of a JSON object, without null. Errors do not show the value, which may be
    secret.
    """
    try:
        parsed = json.loads(given) if isinstance(given, str) and given.strip() else given or {}
    except ValueError as error:
        raise _make_error(connection_id, name, "...", f"It is no JSON ({error})") from None
    if not isinstance(parsed, Mapping):
        raise _make_error(connection_id, name, "...", "Must be a JSON object")
    return {str(key): value for key, value in parsed.items() if value is not None}


def _make_error(connection_id: str, name: str, value: object, bound: str, fix: str = "") -> InvalidParameterValue:
    return InvalidParameterValue(f"{name} of the connection {connection_id!r}", value, bound, fix)


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
        """The place of the ledger. Raises InvalidParameterValue if the connection's host or extra is wrong."""
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
