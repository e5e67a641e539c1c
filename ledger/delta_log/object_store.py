"""Files on an object store, and the storage's own time.

Unlike calls of delta-rs, those of obstore let other threads run. Nothing is read through delta-rs's own file system for
Arrow. Arrow's threads release that file system's objects a moment after a read. If the process ends in that moment, it
can crash (exit code 134).

obstore finds credentials of AWS by itself, except for a role to assume, or a profile: these need boto3.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from obstore.exceptions import AlreadyExistsError, BaseError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, S3Store

from ledger.delta_log.failures import translating_errors
from ledger.delta_log.protocol import PartitionFilter
from ledger.delta_log.reading import Wanted, dataset_of
from ledger.delta_log.storage import (
    AT_ONCE,
    KEPT,
    LOG,
    SMALL,
    LogEntries,
    LogFile,
    Stamp,
    StoredFile,
    column_of,
    log_file,
    rows_of_file,
    version_of,
)
from ledger.errors import InvalidParameterValue, StorageFailed
from ledger.rules.limits import MILLISECONDS
from ledger.rules.location import (
    AZURE,
    FIRST_REQUEST,
    GCS,
    PREFIXES,
    S3,
    advise_on_reaching,
    recorded,
    strip_prefix,
    with_defaults,
)
from ledger.runtime.threads import map_at_once, require_own

STORES: dict[str, Any] = {
    **dict.fromkeys(S3, S3Store),
    **dict.fromkeys(AZURE, AzureStore),
    **dict.fromkeys(GCS, GCSStore),
}
#: Options about HTTP: obstore takes them in an argument of their own.
CLIENT = (
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only"),
    *("http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_only"),
    *("pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url"),
    *("randomize_addresses", "read_timeout", "timeout", "user_agent"),
)
#: The variables of the environment, without AWS_, that another process gets (`describe_opening`).
OF_ENVIRONMENT = ("access_key_id", "secret_access_key", "session_token", "region", "default_region", "endpoint_url")
ALIASES = {"endpoint_url": "endpoint", "token": "session_token"}
#: Options on S3 that only delta-rs knows.
OF_DELTA_RS = (
    *("access_key_id_dynamodb", "ec2_metadata_disabled", "ec2_metadata_timeout", "endpoint_url_dynamodb"),
    *("force_credential_load", "iam_role_arn", "iam_role_session_name", "profile", "region_dynamodb"),
    *("s3_addressing_style", "s3_allow_unsafe_rename", "s3_assume_role_arn", "s3_get_internal_server_error_retries"),
    *("s3_locking_provider", "s3_pool_idle_timeout_seconds", "s3_role_session_name", "secret_access_key_dynamodb"),
    *("session_token_dynamodb", "sts_pool_idle_timeout_seconds"),
    *("delta_dynamo_billing_mode", "delta_dynamo_max_elapsed_request_time", "delta_dynamo_table_name"),
    *("concurrency_limit", "max_concurrency", "object_store_concurrency_limit", "ssl_cert_file", "certificate_path"),
    *("allow_unsafe_rename", "mount_allow_unsafe_rename"),
)
#: The storages' messages for a missing bucket or container, which obstore reports as a missing file.
NO_BUCKET = ("NoSuchBucket", "bucket does not exist", "ContainerNotFound", "FilesystemNotFound")
UNITS = {
    **dict.fromkeys(("ms", "msec"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
}


class ObjectStore:
    """The files below one place of an object store. Threads may share it.

    `options` are delta-rs's storage_options, which override the environment. Methods may raise StorageFailed,
    ForkedProcess, and InvalidParameterValue for an option with an invalid value.
    """

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        self.place, self._options = location, dict(options or {})

    def get(self, path: str) -> bytes | None:
        """Return the content of a file; None: there is no such file. A missing bucket is an error."""
        with self._naming_errors():
            try:
                return bytes(obstore.get(self._store, path).bytes())
            except FileNotFoundError as error:
                if any(words in str(error) for words in NO_BUCKET):
                    raise
                return None

    def exists(self, path: str) -> bool:
        with self._naming_errors():
            try:
                obstore.head(self._store, path)
            except FileNotFoundError:
                return False
            return True

    def read_beginning(self, path: str, length: int) -> tuple[bytes, int]:
        """Return the first `length` bytes of an existing file, and its size, by one request."""
        with self._naming_errors():
            answer = obstore.get(self._store, path, options={"range": (0, length)})
            return bytes(answer.bytes()), answer.meta["size"]

    def part(self, path: str, start: int, length: int) -> bytes:
        with self._naming_errors():
            return bytes(obstore.get_range(self._store, path, start=start, length=length))

    def put(self, path: str, content: bytes) -> None:
        with self._naming_errors():
            obstore.put(self._store, path, content)

    def put_new(self, path: str, content: bytes) -> bool:
        """Write a file that must be new. Return False if it exists.

        An earlier try of the same call, whose answer was lost, may have made the file.
        """
        with self._naming_errors():
            try:
                obstore.put(self._store, path, content, mode="create")
            except AlreadyExistsError:
                return False
            return True

    def names(self, folder: str = "") -> list[str]:
        with self._naming_errors():
            prefixes = obstore.list_with_delimiter(self._store, folder or None)["common_prefixes"]
            return sorted(path.rstrip("/").rpartition("/")[2] for path in prefixes)

    def paths(self, folder: str = "", after: str | None = None) -> Iterator[str]:
        """Return the paths of all files in a folder, at any depth, that sort after the text `after`."""
        return (path for path, _ in self.written(folder, after))

    def written(self, folder: str = "", after: str | None = None) -> Iterator[tuple[str, float]]:
        """Yield what `paths` returns, with the time when each file was written, in seconds since 1970."""
        with self._naming_errors():
            for page in obstore.list(self._store, folder or None, offset=after):
                yield from ((file["path"], file["last_modified"].timestamp()) for file in page)

    def sizes(self) -> Iterator[tuple[str, int]]:
        with self._naming_errors():
            for page in obstore.list(self._store):
                yield from ((file["path"], file["size"]) for file in page)

    def files(self) -> Iterator[tuple[str, int, float]]:
        """Yield the paths of all files, their sizes, and when each was written, in seconds since 1970."""
        with self._naming_errors():
            for page in obstore.list(self._store):
                yield from ((file["path"], file["size"], file["last_modified"].timestamp()) for file in page)

    def remove_folder(self, folder: str) -> None:
        self.remove_all(list(self.paths(folder)))

    def remove_all(self, paths: Sequence[str]) -> None:
        with self._naming_errors():
            try:
                obstore.delete(self._store, paths)
                return
            except FileNotFoundError:
                # The storage stops at a file that is gone.
                pass
        for path in paths:
            self.delete(path)

    def delete(self, path: str) -> None:
        with self._naming_errors(), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, path)

    def find_write_time(self, path: str) -> int:
        """Return when a file was written, by the storage's clock, in milliseconds (often of whole seconds only)."""
        with self._naming_errors():
            return round(obstore.head(self._store, path)["last_modified"].timestamp() * MILLISECONDS)

    @property
    def address(self) -> tuple[str, ...]:
        """Return what distinguishes the place from all others: the same names may exist at several endpoints."""
        of_environment = [value for name, value in sorted(os.environ.items()) if name.startswith("AWS_ENDPOINT")]
        return self.place, str(self._store.config.get("endpoint")), *of_environment

    @property
    def _store(self) -> Any:
        require_own("obstore")
        return self._made

    def describe_opening(self) -> tuple[str, str, dict[str, Any]] | None:
        """Return obstore's class, the place, and the options, with AWS's keys, for another process to open this store.

        Returns None if the credentials come through boto3: another process may find others.
        """
        if self._store.credential_provider is not None:
            return None
        store = self._store
        variables = {
            ALIASES.get(name, name): os.environ.get(f"AWS_{name.upper()}")
            for name in OF_ENVIRONMENT
            if isinstance(store, S3Store)
        }
        options = {
            "config": {**{name: value for name, value in variables.items() if value}, **(store.config or {})},
            "client_options": store.client_options,
            "retry_config": store.retry_config,
        }
        return type(store).__name__, self.place, options

    @cached_property
    def _made(self) -> Any:
        kind = STORES[recorded(self.place).scheme]
        config, client, retries = split_options(self._options)
        # When obstore gets HTTP options, it ignores those of the environment.
        client = {**split_options({n: v for n, v in os.environ.items() if n.lower().startswith(PREFIXES)})[1], **client}
        provider = credential_provider(config) if kind is S3Store else None
        more = {} if provider is None else {"credential_provider": provider}
        while True:
            try:
                return kind.from_url(self.place, config=config, client_options=client, retry_config=retries, **more)
            except UnknownConfigurationKeyError as error:
                unknown = re.search(r"Configuration key: '(.*?)' is not valid", str(error))
                if unknown is None or unknown[1] not in config:
                    raise
                del config[unknown[1]]

    def _naming_errors(self) -> Any:
        return translating_errors(self.place, BaseError)


def open_checked(location: str, options: Mapping[str, str], user_options: Mapping[str, str]) -> ObjectStore:
    """Return the store at a place, after one request with `user_options` and a bound of a few seconds.

    If this request fails, raise a StorageFailed that says what to check.
    """
    try:
        ObjectStore(location, with_defaults(user_options, FIRST_REQUEST)).names()
    except StorageFailed as error:
        raise StorageFailed(
            location, f"{error.cause}. {advise_on_reaching(recorded(location).scheme)}", "opening"
        ) from error
    return ObjectStore(location, options)


def unknown_options(place: str, options: Mapping[str, str]) -> list[str]:
    return [name for name, value in options.items() if _is_unknown(place, name, value)]


def _is_unknown(place: str, name: str, value: str) -> bool:
    config: Any = split_options({name: value})[0]
    if not config or not config.keys().isdisjoint(OF_DELTA_RS):
        return False
    try:
        S3Store.from_url(place, config=config)
    except UnknownConfigurationKeyError:
        return True
    except BaseError:
        return False
    return False


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    config, client, retries, backoff = {}, {}, {}, {}
    for option, value in options.items():
        name = strip_prefix(option)
        if name in CLIENT:
            client[name] = value
        elif name == "max_retries":
            retries[name] = _parse_number(option, value, int)
        elif name == "retry_timeout":
            retries[name] = timedelta(seconds=_parse_seconds(option, value))
        elif name == "backoff_config.base":
            backoff["base"] = _parse_number(option, value, float)
        elif name.startswith("backoff_config."):
            backoff[name.partition(".")[2]] = timedelta(seconds=_parse_seconds(option, value))
        else:
            config[ALIASES.get(name, name)] = value
    return config, client, {**retries, **({"backoff": backoff} if backoff else {})}


def _parse_number(name: str, value: str, kind: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        bound = "Must be a whole number" if kind is int else "Must be a number"
        raise InvalidParameterValue("storage_options", f"{name}={value}", bound, "Such as 10.") from None


def _parse_seconds(name: str, value: str) -> float:
    parts = re.findall(r"(\d+)\s*([a-z]+)", value)
    if not parts or any(unit not in UNITS for _, unit in parts) or re.sub(r"(\d+)\s*([a-z]+)", "", value).strip():
        raise InvalidParameterValue(
            "storage_options", f"{name}={value}", "Must be a duration with its unit", "Such as 30s or 1m 30s."
        )
    return sum(int(number) * UNITS[unit] for number, unit in parts)


class Parts(io.RawIOBase):
    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store, self._path, self._size, self._at = store, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        length = left if size < 0 else min(size, left)
        content = self._store.part(self._path, self._at, length) if length else b""
        self._at += length
        return content


class ObjectFiles:
    """Table files on an object store."""

    is_synced = False

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def has(self, path: str) -> bool:
        return self._store.exists(path)

    def read(self, path: str) -> bytes | None:
        return self._store.get(path)

    def stamp(self, path: str) -> Stamp | None:
        return ()

    def write(self, files: Mapping[str, bytes]) -> None:
        # A storage may refuse a conditional put although the file does not exist.
        if len(files) == 1:
            self._store.put(*next(iter(files.items())))
        else:
            # The mapping may make each content only now (`data_files.Encoded`).
            map_at_once(lambda path: self._store.put(path, files[path]), files, AT_ONCE)

    def held_log(self) -> AbstractContextManager[LogEntries]:
        return nullcontext(self)

    def put_new(self, path: str, content: bytes) -> bool:
        return self._store.put_new(path, content)

    def remove(self, path: str) -> None:
        self._store.delete(path)

    def sync(self, paths: Iterable[str]) -> None:
        pass

    def make_durable(self, version: int) -> None:
        pass

    def sync_checkpoints(self) -> None:
        pass

    def find_newest_from(self, version: int) -> int | None:
        # List only later files: mostly one request.
        listed = map(version_of, self._store.paths(LOG, log_file(version)))
        return max((newer for newer in listed if newer is not None), default=version)

    def make_folder(self, path: str) -> None:
        pass

    def log_files(self) -> list[LogFile]:
        return [LogFile(path, at) for path, at in self._store.written(LOG)]

    def log_paths(self) -> list[str]:
        return list(self._store.paths(LOG))

    def files(self) -> Iterator[StoredFile]:
        return (StoredFile(*file) for file in self._store.files())

    def sizes(self, paths: Sequence[str]) -> Mapping[str, int]:
        wanted_paths = set(paths)
        return {path: size for path, size in self._store.sizes() if path in wanted_paths} if wanted_paths else {}

    def rows(self, loaded: DeltaTable, where: PartitionFilter, wanted: Wanted | None = None) -> pa.Table:
        # Nothing is read through this file system: the dataset only names the files and their partitions.
        dataset = dataset_of(loaded, arrow_fs.LocalFileSystem(), where, wanted)
        wanted = wanted or Wanted(dataset.schema.names)
        schema = pa.schema([dataset.schema.field(name) for name in dict.fromkeys((*wanted.columns, *wanted.asks))])
        parts = [self._rows_of(fragment, schema, wanted.where) for fragment in dataset.get_fragments(wanted.where)]
        rows = pa.concat_tables(parts) if parts else schema.empty_table()
        return rows.select(list(wanted.columns))

    def column(self, paths: Sequence[str], name: str) -> pa.ChunkedArray | None:
        return column_of(map(self.open, paths), name)

    def _rows_of(self, fragment: Any, schema: pa.Schema, where: Any) -> pa.Table:
        partition = pads.get_partition_keys(fragment.partition_expression)
        whole = rows_of_file(self.open(fragment.path), schema, partition)
        return whole if where is None else whole.filter(where)

    def open(self, path: str) -> pq.ParquetFile:
        with self._lock:
            kept = self._kept.get(path)
        if kept is None:
            kept, size = self._store.read_beginning(path, SMALL)
            if size > len(kept):
                # With read-ahead (pre_buffer), Arrow's threads would keep the file open.
                return pq.ParquetFile(pa.PythonFile(Parts(self._store, path, size), "r"), pre_buffer=False)
            self._keep(path, kept)
        return pq.ParquetFile(pa.BufferReader(kept), pre_buffer=False)

    def _keep(self, path: str, content: bytes) -> None:
        if len(content) > SMALL:
            return
        with self._lock:
            try:
                self._size += len(content) - len(self._kept.pop(path, b""))
                self._kept[path] = content
                while self._size > KEPT:
                    self._size -= len(self._kept.popitem(last=False)[1])
            except BaseException:
                # After an interrupt, the kept content and `_size` may not match.
                self._kept.clear()
                self._size = 0
                raise


#: delta-rs's option for the role to assume, and the option's earlier name.
ROLES = ("iam_role_arn", "s3_assume_role_arn")
#: Options with which obstore finds credentials by itself.
SUFFICIENT = ("access_key_id", "skip_signature", "web_identity_token_file", "container_credentials_relative_uri")
GIVE_KEYS = "give keys: storage_options={'aws_access_key_id': …, 'aws_secret_access_key': …, 'aws_region': …}"


def credential_provider(config: Mapping[str, str]) -> Any:
    """Return the provider that obstore asks for credentials. Return None if obstore finds credentials by itself.

    Raises InvalidParameterValue if boto3 is needed and missing.
    """

    def known(name: str) -> str | None:
        return config.get(name) or os.environ.get(f"AWS_{name.upper()}")

    role = next((value for value in map(known, ROLES) if value), None)
    # With an endpoint, no profile is looked for, as in delta-rs.
    elsewhere = known("endpoint") or known("endpoint_url")
    if role is None and (elsewhere or any(map(known, SUFFICIENT)) or known("container_credentials_full_uri")):
        return None
    if role is None and not _has_profile():
        return None
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider
    except ImportError:
        bound = (
            "Credentials by " + ("a role to assume" if role else "a profile of AWS") + " are looked up through boto3"
        )
        # Beside a role, keys do not replace boto3.
        no_role = "set no role to assume (aws_iam_role_arn, also in the environment) and " if role else ""
        fix = f"Install boto3, or {no_role}{GIVE_KEYS}"
        raise InvalidParameterValue("storage_options", role or known("profile") or "", bound, fix) from None
    session = boto3.Session(
        aws_access_key_id=known("access_key_id"),
        aws_secret_access_key=known("secret_access_key"),
        aws_session_token=known("session_token"),
        region_name=known("region") or known("default_region"),
    )
    if role is not None:
        name = known("iam_role_session_name") or known("s3_role_session_name") or "ledger"
        return StsCredentialProvider(session, RoleArn=role, RoleSessionName=name)
    # If the profile has no credentials, obstore finds those of the machine's role.
    return None if session.get_credentials() is None else Boto3CredentialProvider(session)


def _has_profile() -> bool:
    credentials_file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    return "AWS_PROFILE" in os.environ or Path(credentials_file or "~/.aws/credentials").expanduser().exists()
