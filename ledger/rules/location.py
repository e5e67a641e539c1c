"""The place of a table or a ledger: paths, URIs, catalog names, kinds of storage, and their storage_options.

Two processes that read a name differently could lose messages silently. So this module refuses a name that two readers
could take for two places.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
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
_UNESCAPED = re.compile(r"[?#]|%(?![0-9A-Fa-f]{2})")
_NOT_IN_NAMES = re.compile(r"%00|%2[fF]")


class Location(NamedTuple):
    """A place. `text` is an absolute path on this machine (scheme "file"), or else a URI."""

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
        return _locate_uri(field, text, uri[1].lower(), uri[2])
    if text.startswith("~"):
        if text != "~" and not text.startswith("~/"):
            raise InvalidParameterValue(
                field, text, "Only ~ itself, your own home, is known", "Write the path out, or begin it with ./"
            )
        text = home + text[1:]
    return _locate_path(field, given, posixpath.join(folder, text))


def recorded(text: str) -> Location:
    """Return the place that a ledger recorded. Raises InvalidParameterValue.

    A relative path is refused: the process that recorded it may have run in another folder.
    """
    if not text.startswith("/") and not _SCHEME.fullmatch(text):
        raise InvalidParameterValue("location", text, "It is relative to a folder that is not known any more")
    return locate("location", text, "/", "/")


def is_relative(text: str) -> bool:
    return not (text.startswith(("/", "~")) or _SCHEME.fullmatch(text) or is_name(text))


def locate_beside(field: str, text: str, root: Location) -> Location:
    """Return the place of a path relative to the folder that holds the ledger's root. Raises InvalidParameterValue."""
    if root.is_local:
        return _locate_path(field, text, posixpath.join(posixpath.dirname(root.text), text))
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
        return _locate_path("location", text, "/" + uri[2].lstrip("/"))
    return recorded(text)


def is_name(text: object) -> TypeGuard[str]:
    """Return whether a text has the form of a name in a catalog, such as `catalog.schema.table`."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def _locate_uri(field: str, text: str, scheme: str, rest: str) -> Location:
    if scheme == FILE:
        return _locate_path(field, text, _parse_file_uri(field, text, rest))
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
    path = _normalize_path(f"/{path}")
    return Location(scheme, f"{scheme}://{authority}{path}" if authority else f"{scheme}:{path}")


def _parse_file_uri(field: str, text: str, rest: str) -> str:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidParameterValue(
                field, text, f"{host!r} would be another machine", f"Write file:///{host}/... or a path"
            )
        rest = slash + path
    if not rest.startswith("/"):
        raise InvalidParameterValue(
            field, text, "A file: URI begins with file:/", "Write a relative path without file: before it"
        )
    if _UNESCAPED.search(rest):
        raise InvalidParameterValue(
            field, text, "In a URI, a ?, # or % of a name is written %3F, %23 or %25", "Write it so, or give a path."
        )
    if _NOT_IN_NAMES.search(rest):
        raise InvalidParameterValue(
            field, text, "A file's name cannot have %00 or %2F (a null character or a /)", "Name another folder."
        )
    try:
        return unquote_to_bytes(rest).decode()
    except UnicodeDecodeError as error:
        raise InvalidParameterValue(field, text, "Its %-escapes are not UTF-8", "Give a path.") from error


def _locate_path(field: str, given: object, path: str) -> Location:
    _require_usable(field, given, path)
    return Location(FILE, _normalize_path(path))


def _normalize_path(path: str) -> str:
    """Return a path without `.`, `..` and doubled /, as delta-rs and Spark do. `..` removes even a link before it."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _require_usable(field: str, given: object, path: str) -> None:
    unusable = _UNUSABLE.search(path)
    if unusable:
        raise InvalidParameterValue(
            field, given, f"The engines cannot use a path with {unusable[0]!r}", "Name another folder."
        )


#: The schemes of S3. delta-rs commits by a put that fails if the file exists (If-None-Match). Spark puts without a
#: condition, and so could overwrite commits of delta-rs.
S3 = ("s3", "s3a")
AZURE = ("abfs", "abfss", "az", "adl")
GCS = ("gs",)
OBJECT_STORES = (*S3, *AZURE, *GCS)
#: Schemes on which commits are atomic between machines, for Spark and for delta-rs.
SAFE_FOR_BOTH = (*AZURE, *GCS)
#: delta-rs does not know these schemes.
SAFE_FOR_SPARK = ("hdfs", "viewfs", "wasb", "wasbs", "dbfs")
#: On these schemes delta-rs commits, unless the caller asks for Spark.
DELTA_RS_COMMITS = (FILE, *OBJECT_STORES)

PREFIXES = ("aws_", "azure_storage_", "azure_", "google_")
#: The default storage_options. delta-rs's own retry_timeout is 180 seconds, and nobody can interrupt that wait.
DEFAULT_OPTIONS = {"retry_timeout": "30s"}
#: For the very first request, whose error mostly means a wrong name or key.
FIRST_REQUEST = {"max_retries": "2", "retry_timeout": "5s"}
#: For each option of Hadoop's S3A, the option of delta-rs with the same meaning.
OF_HADOOP = {
    "fs.s3a.access.key": "aws_access_key_id",
    "fs.s3a.secret.key": "aws_secret_access_key",
    "fs.s3a.session.token": "aws_session_token",
    "fs.s3a.endpoint": "aws_endpoint, with https:// or http:// before it",
    "fs.s3a.endpoint.region": "aws_region",
    "fs.s3a.path.style.access": "aws_virtual_hosted_style_request, with the opposite value (the default is false)",
    "fs.s3a.connection.ssl.enabled": "aws_allow_http, with the opposite value",
    "fs.s3a.assumed.role.arn": "aws_iam_role_arn",
}


def explain_unknown_scheme(scheme: str) -> tuple[str, str]:
    if scheme == "s3n":
        return (
            "s3n: has gone from Hadoop, and no other engine ever knew it",
            "Write s3a://..., which is the same place.",
        )
    schemes = ", ".join((*SAFE_FOR_BOTH, *SAFE_FOR_SPARK, *S3))
    fix = f"Known are paths and {schemes}; another scheme needs Spark, with a Hadoop file system for it."
    return f"{scheme}: is no storage that is known here", fix


def advise_on_reaching(scheme: str) -> str:
    options = "the bucket, and google_service_account or the environment"
    if scheme in S3:
        options = (
            "the bucket and its region; the keys aws_access_key_id and aws_secret_access_key, or those of the "
            "environment or a role; aws_endpoint for a store other than AWS, and aws_allow_http if aws_endpoint begins "
            "with http:"
        )
    if scheme in AZURE:
        options = "the container; azure_storage_account_name and _key, or those of the environment or an identity"
    return f"Look at the storage_options and what belongs to them: {options}"


def name_for_delta_rs(place: str) -> str:
    """Return delta-rs's name of a place: s3a: is Hadoop's name for S3."""
    return "s3" + place[3:] if place.startswith("s3a:") else place


def name_for_spark(place: str) -> str:
    """Return Spark's name of a place: s3: has no file system in Hadoop."""
    return "s3a" + place[2:] if place.startswith("s3:") else place


def convert_options(options: Mapping[str, object]) -> dict[str, str]:
    if not isinstance(options, Mapping):
        kind = type(options).__name__
        raise InvalidParameterValue(
            "storage_options", kind, "Must be a mapping of names to values", "Give a dictionary."
        )
    texts = {}
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, (str, bool, int, float)):
            # Do not show the value: it may be a secret.
            raise InvalidParameterValue(
                "storage_options",
                f"{name}: {type(value).__name__}",
                "Names must be text, and values text, numbers or booleans",
                "Write the option as text, or leave it out.",
            )
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def strip_prefix(option: str) -> str:
    """Return the name of an option in lower case, without a prefix that delta-rs accepts."""
    name = option.lower()
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)


def with_defaults(given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    given_names = set(map(strip_prefix, given))
    return {**{name: value for name, value in defaults.items() if name not in given_names}, **given}


def find_hadoop_option(options: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first option of Hadoop or Spark, which delta-rs ignores, and the fix."""
    for name in options:
        if name.lower().startswith(("fs.", "spark.")):
            delta_rs_option = OF_HADOOP.get(name.lower().removeprefix("spark.hadoop."))
            return (
                name,
                f"delta-rs's option is {delta_rs_option}." if delta_rs_option else "Give it to Spark's session.",
            )
    return None
