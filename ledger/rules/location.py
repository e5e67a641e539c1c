"""The place of a table or a ledger: paths, URIs and catalog names.

Two processes that read a name differently could lose messages silently. So this module refuses a name that two readers
could take for two places.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import NamedTuple, TypeGuard
from urllib.parse import unquote_to_bytes

from ledger.errors import InvalidParameterValue

FILE = "file"
SCHEMA_PREFIX = "schema:"
#: The cluster has a default host for these schemes.
WITH_A_DEFAULT = ("hdfs", "viewfs", "dbfs")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_NAME = re.compile(r"(\w+|`[^`/]+`)(\.(\w+|`[^`/]+`))*")
#: delta-rs fails on the four characters [ ] ^ and |, and takes %20 for a space. Spark's SQL ends a path at `. Some
#: readers take \ for a separator.
_UNUSABLE = re.compile(r"[\[\]^|`\\\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")
_ESCAPES = re.compile(r"%(?![0-9A-Fa-f]{2})|%00|%2[fF]")


class Location(NamedTuple):
    """A place. `text` is the engines' name of it: an absolute path on this machine (scheme "file"), else a URI."""

    scheme: str
    text: str

    @property
    def is_local(self) -> bool:
        return self.scheme == FILE

    def below(self, name: str) -> Location:
        return Location(self.scheme, f"{self.text.rstrip('/')}/{name}")


def locate(field: str, given: object, folder: str, home: str) -> Location:
    """Return the place that a user names. A relative path begins at `folder`; `~` is `home`.

    Raises InvalidParameterValue for a text that is no place or could name two places.
    """
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(text, str) or not text.strip():
        raise InvalidParameterValue(field, given, "Must be a path or a URI")
    uri = _SCHEME.fullmatch(text)
    if uri and not isinstance(given, os.PathLike):
        return _of_uri(field, text, uri[1].lower(), uri[2])
    if text.startswith("~"):
        if text != "~" and not text.startswith("~/"):
            raise InvalidParameterValue(
                field, text, "Only ~ itself, your own home, is known", "Write the path out, or begin it with ./"
            )
        text = home + text[1:]
    return _of_path(field, given, posixpath.join(folder, text))


def recorded(text: str) -> Location:
    """Return the place that a ledger recorded. Raises InvalidParameterValue.

    A relative path is refused: the process that recorded it may have run in another folder.
    """
    if not text.startswith("/") and not _SCHEME.fullmatch(text):
        raise InvalidParameterValue("location", text, "It is relative to a folder that is not known any more")
    return locate("location", text, "/", "/")


def is_relative(text: str) -> bool:
    return not (text.startswith(("/", "~")) or _SCHEME.fullmatch(text) or is_name(text))


def beside(field: str, text: str, root: Location) -> Location:
    """Return the place of a path relative to the folder that holds the ledger's root. Raises InvalidParameterValue."""
    if root.is_local:
        return _of_path(field, text, posixpath.join(posixpath.dirname(root.text), text))
    _, _, path = root.text.partition(":")
    authority, _, _ = path.removeprefix("//").partition("/") if path.startswith("//") else ("", "", "")
    start = f"{root.scheme}://{authority}" if authority else f"{root.scheme}:"
    folder = posixpath.dirname(root.text[len(start) :]) or "/"
    return locate(field, start + posixpath.join(folder, text), "/", "/")


def of_spark(text: str) -> Location:
    """Return the place that Spark reports for a table. Raises InvalidParameterValue.

    Spark's text for a local path looks like a URI, but escapes nothing by %.
    """
    uri = _SCHEME.fullmatch(text)
    if uri and uri[1] == FILE:
        return _of_path("location", text, "/" + uri[2].lstrip("/"))
    return recorded(text)


def is_name(text: object) -> TypeGuard[str]:
    """Return whether a text is the name of a table in a catalog, such as `catalog.schema.table`."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def _of_uri(field: str, text: str, scheme: str, rest: str) -> Location:
    if scheme == FILE:
        return _of_path(field, text, _path_of_file(field, text, rest))
    if not rest.startswith("/"):
        raise InvalidParameterValue(
            field,
            text,
            f"{scheme}: is followed by no /",
            f"For a folder of this name write ./{text}; a URI is {scheme}://...",
        )
    authority, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest[1:])
    if not authority and scheme not in WITH_A_DEFAULT:
        raise InvalidParameterValue(
            field,
            text,
            f"{scheme}: says no bucket, container or host",
            f"Write {scheme}://NAME/..., or for a folder of this machine a path without {scheme}:",
        )
    _require_usable(field, text, text)
    if re.search(r"[?#%]", text):
        raise InvalidParameterValue(
            field, text, "The engines do not agree on a ?, # or % in a URI", "Name another folder."
        )
    # `..` must not remove the bucket's name.
    path = _normal(f"/{path}")
    return Location(scheme, f"{scheme}://{authority}{path}" if authority else f"{scheme}:{path}")


def _path_of_file(field: str, text: str, rest: str) -> str:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidParameterValue(
                field, text, f"{host!r} would be another machine", f"Write file:///{host}/... or a path"
            )
        rest = slash + path
    if not rest.startswith("/"):
        raise InvalidParameterValue(
            field, text, "A file: URI begins with file:/", "A path that begins at this folder has no file:"
        )
    if "?" in rest or "#" in rest or _ESCAPES.search(rest):
        raise InvalidParameterValue(
            field, text, "Not a URI: a ?, # or % of a name is written %3F, %23 or %25 there", "Or give a path."
        )
    try:
        return unquote_to_bytes(rest).decode()
    except UnicodeDecodeError as error:
        raise InvalidParameterValue(field, text, "Its %-escapes are not UTF-8", "Give a path.") from error


def _of_path(field: str, given: object, path: str) -> Location:
    _require_usable(field, given, path)
    return Location(FILE, _normal(path))


def _normal(path: str) -> str:
    """Return a path without `.`, `..` and doubled /, as both engines read it: `..` removes even a link before it."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _require_usable(field: str, given: object, path: str) -> None:
    unusable = _UNUSABLE.search(path)
    if unusable:
        raise InvalidParameterValue(
            field, given, f"The engines cannot use a path with {unusable[0]!r}", "Name another folder."
        )
