"""The keys that requests may be signed with: of a TOML file, or of the environment."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger.endpoint.callers import Caller
from ledger.errors import InvalidParameterValue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The variables of the environment with a key, and its secret.
ACCESS_KEY, SECRET_KEY = "LEDGER_ACCESS_KEY_ID", "LEDGER_SECRET_ACCESS_KEY"
_ID, _ACCOUNT = re.compile(r"[A-Za-z0-9_]{1,128}"), re.compile(r"[0-9]{12}")
#: As a header can carry it.
_TOKEN = re.compile("[!-~]{1,4096}")
_FILE = (
    'A key is a table [ID_OF_THE_KEY] with secret = "...", of another account also account = "12 digits", user = '
    '"arn:aws:iam::..." to name it in policies, and session_token = "..." for a key of a session.'
)


@dataclass(frozen=True)
class Key:
    """A secret, and who signs with it. Requests must name the session's token where the key has one. Never shown."""

    secret: str = field(repr=False)
    caller: Caller
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Keys:
    """Keys by their ids."""

    known: Mapping[str, Key]


def read(path: str, owner: str) -> Keys:
    """The keys in a file; those that name no account are the `owner`'s. Raises InvalidParameterValue, which names the
    file and the key and no secret."""
    try:
        tables: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidParameterValue("keys", path, f"It cannot be read ({error.strerror})", _FILE) from None
    except ValueError:
        raise InvalidParameterValue("keys", path, "It is no TOML", _FILE) from None
    known = {name: _key(path, name, table, owner) for name, table in tables.items()}
    if not known:
        raise InvalidParameterValue("keys", path, "There is no key in it", _FILE)
    return Keys(known)


def of_environment(environment: Mapping[str, str], owner: str) -> Keys | None:
    """The one key of the environment, the owner's; None where there is none."""
    name, secret = environment.get(ACCESS_KEY), environment.get(SECRET_KEY)
    if not name and not secret:
        return None
    if not name or not secret:
        missing = SECRET_KEY if name else ACCESS_KEY
        raise InvalidParameterValue(missing, None, f"{ACCESS_KEY} and {SECRET_KEY} go together", "Set it.")
    return Keys({name: _key("the environment", name, {"secret": secret}, owner)})


def _key(place: str, name: str, table: object, owner: str) -> Key:
    where = f"{place}: [{name[:130]}]"
    if not _ID.fullmatch(name):
        raise InvalidParameterValue("keys", where, "A key's id has 1 to 128 letters, digits and _", _FILE)
    unknown = sorted(set(table) - {"secret", "account", "user", "session_token"}) if isinstance(table, dict) else [name]
    if not isinstance(table, dict) or unknown:
        bound = f"It has secret, account, user and session_token, and nothing else: {unknown[0][:40]!r} is none of them"
        raise InvalidParameterValue("keys", where, bound, _FILE)
    secret, account, user = table.get("secret"), table.get("account", owner), table.get("user")
    token = table.get("session_token")
    if not isinstance(secret, str) or len(secret) < 8:
        raise InvalidParameterValue("keys", where, "Its secret must be a text of at least 8 characters", _FILE)
    if not isinstance(account, str) or not _ACCOUNT.fullmatch(account):
        raise InvalidParameterValue("keys", where, "Its account must be 12 digits", _FILE)
    if user is not None and not (isinstance(user, str) and user.startswith("arn:")):
        raise InvalidParameterValue("keys", where, "Its user must be an ARN", _FILE)
    if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        raise InvalidParameterValue(
            "keys", where, "Its session_token must be 1 to 4,096 visible characters of ASCII", _FILE
        )
    return Key(secret, Caller(account, user), token)
