"""The callers of requests, and the keys by which they sign: from a TOML file, or from the environment.

To change a key without a break: add the new key to the file, send SIGHUP, give the new key to the clients, remove the
old key, and send SIGHUP.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import stat
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ledger.endpoint.wire import Refusal
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.rules.arns import Account
from ledger.rules.policy import allows


@dataclass(frozen=True)
class Caller:
    """The holder of the key that signed a request: an account, and a user's ARN if the key has one.

    On an endpoint without signatures every caller is the owner's account.
    """

    account_id: str
    user_arn: str | None = None

    @property
    def arn(self) -> str:
        return self.user_arn or f"arn:aws:iam::{self.account_id}:root"


def require_permission(caller: Caller, action: str, queue_arn: str, policy: str | None, owner: Account) -> None:
    """Raise a Refusal (AccessDenied) if the caller may not do the action to the queue (see `rules.policy`).

    `queue_arn` is empty for an action that names no existing queue.
    """
    if not allows(policy, owner.account_id, caller.account_id, caller.arn, action, queue_arn):
        what = f" on resource: {queue_arn}" if queue_arn else ""
        raise Refusal("AccessDenied", f"User: {caller.arn} is not authorized to perform: sqs:{action.lower()}{what}")


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ACCESS_KEY, SECRET_KEY = "LEDGER_ACCESS_KEY_ID", "LEDGER_SECRET_ACCESS_KEY"
_ID, _ACCOUNT = re.compile(r"[A-Za-z0-9_]{1,128}"), re.compile(r"[0-9]{12}")
_USER_ACCOUNT, _PLACE = (
    re.compile(r"arn:[^:]*:(?:iam|sts)::([0-9]{12}):"),
    re.compile(r"at (line \d+, column \d+|end of document)"),
)
#: A session token must fit into a header.
_TOKEN = re.compile("[!-~]{1,4096}")
_FILE_FORM = (
    'A key is a table [ID_OF_THE_KEY]. It must have secret = "...". It may have account = "12 digits" (default: the '
    'account of the ledger), user = "arn:aws:iam::..." (its name in policies) and session_token = "..." (of a session).'
)


@dataclass(frozen=True)
class Key:
    """A secret and its holder. If the key has a session token, requests must have that token."""

    secret: str = field(repr=False)
    caller: Caller
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Keys:
    known: Mapping[str, Key]


def read(path: str, owner: str) -> Keys:
    """Return the keys in a file. Keys without an account belong to the `owner`.

    Raises InvalidParameterValue, which shows no secret, for a wrong file.
    """
    try:
        # A pipe would give the keys once only, or let the process wait for a writer.
        is_file = stat.S_ISREG(Path(path).stat().st_mode)
        tables: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8")) if is_file else {}
    except RecursionError:
        raise InvalidParameterValue("keys", path, "Its values are nested too deep", _FILE_FORM) from None
    except OSError as error:
        raise InvalidParameterValue("keys", path, f"It cannot be read ({error.strerror})", _FILE_FORM) from None
    except ValueError as error:
        # Show only the place: the rest of the sentence may have a part of a secret.
        place = _PLACE.search(str(error))
        raise InvalidParameterValue(
            "keys", path, f"It is no TOML{f' ({place[0]})' if place else ''}", _FILE_FORM
        ) from None
    if not is_file:
        bound = "It must be a regular file, because it is read again on SIGHUP"
        raise InvalidParameterValue("keys", path, bound, _FILE_FORM)
    keys_by_id = {name: _parse_key(path, name, table, owner) for name, table in tables.items()}
    if not keys_by_id:
        raise InvalidParameterValue("keys", path, "There is no key in it", _FILE_FORM)
    return Keys(keys_by_id)


def read_environment(environment: Mapping[str, str], owner: str) -> Keys | None:
    """Return the key in the environment, a key of the `owner`, or None."""
    name, secret = environment.get(ACCESS_KEY), environment.get(SECRET_KEY)
    if not name and not secret:
        return None
    if not name or not secret:
        missing = SECRET_KEY if name else ACCESS_KEY
        raise InvalidParameterValue(missing, None, f"{ACCESS_KEY} and {SECRET_KEY} go together", "Set it.")
    return Keys({name: _parse_key(f"{ACCESS_KEY}, {SECRET_KEY}", name, {"secret": secret}, owner)})


def _parse_key(place: str, name: str, table: object, owner: str) -> Key:
    if not isinstance(table, dict):
        fix = f"Begin with a line [ID_OF_THE_KEY]. {_FILE_FORM}"
        raise InvalidParameterValue("keys", place, f"{name[:40]!r} is in no table", fix)
    where = f"{place}: [{name[:130]}]"
    if not _ID.fullmatch(name):
        raise InvalidParameterValue("keys", where, "A key's id has 1 to 128 letters, digits and _", _FILE_FORM)
    unknown = sorted(set(table) - {"secret", "account", "user", "session_token"})
    if unknown:
        bound = f"It has secret, account, user and session_token, and nothing else: {unknown[0][:40]!r} is none of them"
        raise InvalidParameterValue("keys", where, bound, _FILE_FORM)
    secret, account, user = table.get("secret"), table.get("account", owner), table.get("user")
    token = table.get("session_token")
    if not isinstance(secret, str) or len(secret) < 8:
        raise InvalidParameterValue("keys", where, "Its secret must be a text of at least 8 characters", _FILE_FORM)
    if not isinstance(account, str) or not _ACCOUNT.fullmatch(account):
        raise InvalidParameterValue("keys", where, "Its account must be 12 digits", _FILE_FORM)
    if user is not None and not (isinstance(user, str) and user.startswith("arn:")):
        raise InvalidParameterValue("keys", where, "Its user must be an ARN", _FILE_FORM)
    named = _USER_ACCOUNT.match(user or "")
    if named is not None and named[1] != account:
        # The account may be the default. Then a user of another account would get the rights of the ledger's owner.
        bound = f"Its user is of the account {named[1]}, and its account is {account}"
        fix = f'Give account = "{named[1]}", or the ARN of a user of the account {account}.'
        raise InvalidParameterValue("keys", where, bound, fix)
    if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        raise InvalidParameterValue(
            "keys", where, "Its session_token must be 1 to 4,096 visible characters of ASCII", _FILE_FORM
        )
    return Key(secret, Caller(account, user), token)


log = logging.getLogger("ledger.endpoint")


class KeyRotation:
    """Reads the keys again on SIGHUP, within its `with` block.

    Enter the block before the process serves: an earlier SIGHUP would end the process. Outside the main thread the
    block does nothing. Without a file of keys SIGHUP changes nothing, but ends a process whose standard input is a
    terminal: the terminal was closed.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._before: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._apply: Callable[[], None] | None = None
        self._signal_came, self._applying = False, threading.Lock()

    def __enter__(self) -> KeyRotation:
        is_main = threading.current_thread() is threading.main_thread()
        if hasattr(signal, "SIGHUP") and is_main and (self._path is not None or not _is_terminal()):
            self._before = signal.signal(signal.SIGHUP, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGHUP, self._before)

    def start(self, read: Callable[[], Keys], replace: Callable[[Keys], None], say: Callable[[str], None]) -> None:
        """Pass the result of `read` to `replace` at each SIGHUP, and at once if a SIGHUP came before.

        Must be called in the event loop. A thread reads and replaces the keys. If `read` raises a LedgerError, the keys
        stay as they were.
        """

        def apply() -> None:
            with self._applying:
                try:
                    keys = read()
                except LedgerError as error:
                    log.error("SIGHUP: the keys stay as they were: %s", error)
                    return
                replace(keys)
            say(f"the keys were read anew: there are {len(keys.known)}")

        def begin() -> None:
            # The event loop must not wait for a slow file or a slow standard output.
            threading.Thread(target=apply, name="ledger-keys", daemon=True).start()

        self._loop, self._apply = asyncio.get_running_loop(), begin
        if self._signal_came:
            begin()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # The signal may interrupt a write to the log, so do not log or read here.
        self._signal_came = True
        if self._loop is not None and self._apply is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._apply)


def _is_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False
