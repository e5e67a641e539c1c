"""Delta's protocol, read and written by hand: no code of the project's, of delta-rs's or of Spark's.

The document is delta-io/delta's PROTOCOL.md. `replay` reads a log as its "Action Reconciliation" says, `rows_of` reads
the files that are left, and `violations` holds every entry against what the document asks of a writer. `write_entry`
writes one. Tables with a feature that is not here are refused: nothing is passed by in silence.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

KINDS = {"add", "remove", "txn", "metaData", "protocol", "commitInfo"}
#: Beside them, features that say nothing of which rows there are.
IGNORED = {"cdc", "domainMetadata", "checkpointMetadata"}
READER_FEATURES = {"timestampNtz", "v2Checkpoint"}
PLAIN = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(?:\d{10}\.(\d{10})\.)?parquet|[0-9a-f-]{36}\.(?:parquet|json))")


@dataclass
class State:
    """What a log says as of one version. `files`: the `add` of each live file, by its path: decoded, as a writer may
    encode a path in another way than the one that wrote it before."""

    version: int = -1
    protocol: dict = field(default_factory=dict)
    metadata: dict = field(default_factory=dict)
    files: dict[str, dict] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [(one["name"], arrow_type(one["type"])) for one in json.loads(self.metadata["schemaString"])["fields"]]
        )

    def apply(self, action: dict) -> None:
        """One action, reconciled."""
        ((kind, said),) = action.items()
        if kind == "add":
            assert not said.get("deletionVector"), "a deletion vector, which is not read by hand"
            self.files[unquote(said["path"])] = said
        elif kind == "remove":
            self.files.pop(unquote(said["path"]), None)
        elif kind == "txn":
            self.transactions[said["appId"]] = said["version"]
        elif kind == "metaData":
            self.metadata = said
        elif kind == "protocol":
            reads, features = said["minReaderVersion"], set(said.get("readerFeatures") or ())
            assert reads in (1, 3) and features <= READER_FEATURES, f"a protocol that is not read by hand: {said}"
            self.protocol = said
        else:
            assert kind in {"commitInfo", *IGNORED}, f"an action that the protocol does not name: {kind}"


def arrow_type(kind: object) -> pa.DataType:
    """A type of a schema string."""
    if isinstance(kind, str):
        decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else PLAIN[kind]
    if kind["type"] == "struct":
        return pa.struct([(one["name"], arrow_type(one["type"])) for one in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(pa.field("element", arrow_type(kind["elementType"])))
    assert kind["type"] == "map", kind
    return pa.map_(arrow_type(kind["keyType"]), arrow_type(kind["valueType"]))


def entry_path(location: str, version: int) -> Path:
    return Path(location, "_delta_log", f"{version:020d}.json")


def entry(location: str, version: int) -> list[dict]:
    """The actions of a version."""
    return [json.loads(line) for line in entry_path(location, version).read_bytes().splitlines()]


def write_entry(location: str, version: int, actions: list[dict]) -> None:
    """Commits a version, which must be new."""
    with entry_path(location, version).open("x") as file:
        file.writelines(json.dumps(action) + "\n" for action in actions)


def versions_of(location: str) -> list[int]:
    """The versions whose entries are there."""
    names = (_COMMIT.fullmatch(file.name) for file in Path(location, "_delta_log").iterdir())
    return sorted(int(name[1]) for name in names if name)


def checkpoints_of(location: str) -> dict[int, list[Path]]:
    """The complete checkpoints, by version."""
    found: dict[int, list[tuple[Path, int | None]]] = {}
    for file in sorted(Path(location, "_delta_log").iterdir()):
        if name := _CHECKPOINT.fullmatch(file.name):
            found.setdefault(int(name[1]), []).append((file, int(name[2]) if name[2] else None))
    complete = {}
    for version, files in found.items():
        single = [file for file, parts in files if parts is None]
        whole = single[:1] or ([file for file, _ in files] if len(files) == files[0][1] else [])
        if whole:
            complete[version] = whole
    return complete


def replay(location: str, version: int | None = None, *, from_entries: bool = False) -> State:
    """What a log says as of a version, or the newest one. `from_entries`: without a checkpoint."""
    newest = versions_of(location)[-1] if version is None else version
    checkpoints = {} if from_entries else checkpoints_of(location)
    begins = max((one for one in checkpoints if one <= newest), default=-1)
    state = State(begins)
    for file in checkpoints.get(begins, ()):
        for action in _actions_of_checkpoint(file):
            state.apply(action)
    for following in range(begins + 1, newest + 1):
        for action in entry(location, following):
            state.apply(action)
        state.version = following
    return state


def _actions_of_checkpoint(file: Path) -> list[dict]:
    if file.suffix == ".json":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    else:
        rows = _dictionaries(pq.read_table(file))
    actions = []
    for row in rows:
        ((kind, said),) = [(kind, said) for kind, said in row.items() if said is not None]
        if kind == "sidecar":
            actions += _actions_of_checkpoint(file.parent / "_sidecars" / said["path"])
        elif kind != "remove":
            # A tombstone of a checkpoint is for VACUUM: its file is not among the others.
            actions.append({kind: said})
    return actions


def _dictionaries(rows: pa.Table) -> list[dict]:
    """Rows in which maps are dictionaries, as JSON has them."""

    def plain(value, kind):
        if value is None:
            return None
        if pa.types.is_map(kind):
            return {key: plain(one, kind.item_type) for key, one in value}
        if pa.types.is_struct(kind):
            return {one.name: plain(value[one.name], one.type) for one in kind}
        return value

    return [{one.name: plain(row[one.name], one.type) for one in rows.schema} for row in rows.to_pylist()]


def rows_of(location: str, version: int | None = None) -> pa.Table:
    """All rows of a table, as of a version or the newest one."""
    state = replay(location, version)
    parts = [rows_of_file(location, state, one) for one in state.files.values()]
    return pa.concat_tables([state.schema.empty_table(), *parts])


def rows_of_file(location: str, state: State, added: dict) -> pa.Table:
    """The rows of a live file, with the columns of its partition, and nulls where it is older than a column."""
    rows = pq.ParquetFile(Path(location, unquote(added["path"]))).read()
    columns = []
    for one in state.schema:
        if one.name in state.metadata["partitionColumns"]:
            value = partition_value(added["partitionValues"][one.name], one.type)
            columns.append(pa.array([value] * rows.num_rows, one.type))
        elif one.name in rows.column_names:
            columns.append(rows[one.name].cast(one.type))
        else:
            columns.append(pa.nulls(rows.num_rows, one.type))
    return pa.table(columns, schema=state.schema)


def partition_value(text: str | None, kind: pa.DataType) -> object:
    """What the text of a partition's value says ("Partition Value Serialization")."""
    if not text:
        return None
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text]
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_date(kind):
        return datetime.strptime(text, "%Y-%m-%d").date()
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=timezone.utc)
    assert pa.types.is_string(kind), kind
    return text


def violations(location: str) -> list[str]:
    """What in the entries of a log, and in the files that live, is not as the protocol asks; empty for a valid table.

    The first entry that is there must be that of version 0. Files that VACUUM has removed are not looked into.
    """
    found: list[str] = []
    state = State()
    for version in versions_of(location):
        before = dict(state.files)
        if version != state.version + 1:
            found.append(f"version {version} follows {state.version}")
        actions = entry(location, version)
        for number, action in enumerate(actions):
            found += [f"version {version}, line {number}: {one}" for one in _flaws(location, state, action, version)]
            state.apply(action)
        state.version = version
        found += [f"version {version}: {one}" for one in _flaws_together(location, state, before, actions)]
    for version in checkpoints_of(location):
        summed, told = replay(location, version), replay(location, version, from_entries=True)
        if summed.files.keys() != told.files.keys() or summed.transactions != told.transactions:
            found.append(f"checkpoint {version} is not what the entries say")
        if summed.metadata["schemaString"] != told.metadata["schemaString"]:
            found.append(f"checkpoint {version} has other columns than the entries")
    return found


def _flaws(location: str, state: State, action: dict, version: int) -> list[str]:
    if len(action) != 1 or not action.keys() <= KINDS | IGNORED:
        return [f"no action: {[*action]}"]
    ((kind, said),) = action.items()
    partitions = set(state.metadata.get("partitionColumns", ()))
    flaws = []
    if kind in ("add", "remove"):
        values = said.get("partitionValues")
        if not isinstance(said["path"], str) or not isinstance(said["dataChange"], bool):
            flaws.append("path or dataChange has the wrong type")
        if (kind == "add" or said.get("extendedFileMetadata")) and (
            values is None or set(values) != partitions or not isinstance(said["size"], int)
        ):
            flaws.append(f"partitionValues {values} of a table with the partition columns {partitions}, or no size")
        if any(not isinstance(one, str | None) for one in (values or {}).values()):
            flaws.append(f"partitionValues that are no texts: {values}")
    if kind == "add":
        if not isinstance(said["modificationTime"], int):
            flaws.append("no modificationTime")
        flaws += _flaws_of_file(location, state, said)
    if kind == "remove":
        if unquote(said["path"]) not in state.files:
            flaws.append(f"{said['path']} is removed, and does not live")
        if not isinstance(said.get("deletionTimestamp"), int):
            flaws.append("no deletionTimestamp")
    if kind == "txn" and not (isinstance(said["appId"], str) and isinstance(said["version"], int)):
        flaws.append("no txn")
    if kind == "metaData" and version and said["id"] != state.metadata["id"]:
        flaws.append("another table id")
    return flaws


def _flaws_of_file(location: str, state: State, added: dict) -> list[str]:
    """What is wrong with a file that is added: its size, its columns, its statistics."""
    path = Path(location, unquote(added["path"]))
    if not path.exists():
        return []
    if path.stat().st_size != added["size"]:
        return [f"{path.name} has {path.stat().st_size} bytes, and the log says {added['size']}"]
    rows, flaws = rows_of_file(location, state, added), []
    statistics = json.loads(added.get("stats") or "{}", parse_float=Decimal)
    if statistics.get("numRecords", rows.num_rows) != rows.num_rows:
        flaws.append(f"numRecords of {path.name} is wrong")
    for name, nulls in statistics.get("nullCount", {}).items():
        if not isinstance(nulls, dict) and rows[name].null_count != nulls:
            flaws.append(f"nullCount of {name} is wrong")
    for bound, is_out in (("minValues", lambda one, least: one < least), ("maxValues", lambda one, most: one > most)):
        for name, text in statistics.get(bound, {}).items():
            # delta-rs writes null for a bound that is infinite: the protocol has no way to say so.
            values = (
                []
                if text is None or isinstance(text, dict)
                else [one for one in rows[name].to_pylist() if one is not None]
            )
            limit = _bound(text, rows.schema.field(name).type, is_greatest=bound == "maxValues") if values else None
            if any(is_out(one, limit) for one in values):
                flaws.append(f"{bound} of {name} in {path.name}, {text}, does not hold")
    return flaws


def _bound(text: object, kind: pa.DataType, *, is_greatest: bool) -> object:
    """A value of the statistics. A timestamp's may be cut to milliseconds, so the greatest one is up to one more."""
    if pa.types.is_timestamp(kind):
        value = datetime.fromisoformat(text.replace("Z", "+00:00"))
        exact = value if value.tzinfo or kind.tz is None else value.replace(tzinfo=timezone.utc)
        return exact.replace(microsecond=exact.microsecond // 1_000 * 1_000 + 999) if is_greatest else exact
    if pa.types.is_date(kind):
        return datetime.strptime(text, "%Y-%m-%d").date()
    if pa.types.is_decimal(kind):
        # delta-rs writes a float: as exact as that can be.
        return Decimal(text) + (Decimal(1) if is_greatest else Decimal(-1)) * abs(Decimal(text)) * Decimal("1e-15")
    if pa.types.is_binary(kind):
        return text.encode()
    return float(text) if pa.types.is_floating(kind) else text


def _flaws_together(location: str, state: State, before: dict[str, dict], actions: list[dict]) -> list[str]:
    """What is wrong with the actions of one version taken together."""
    kinds = [kind for action in actions for kind in action]
    flaws = [f"more than one {kind}" for kind in ("metaData", "protocol", "commitInfo") if kinds.count(kind) > 1]
    paths = [unquote(said["path"]) for action in actions for kind, said in action.items() if kind in ("add", "remove")]
    if len(paths) != len(set(paths)):
        flaws.append("a path twice")
    applications = [action["txn"]["appId"] for action in actions if "txn" in action]
    if len(applications) != len(set(applications)):
        flaws.append("an application twice")
    if not state.version and not {"metaData", "protocol"} <= {*kinds}:
        flaws.append("no metaData or no protocol in the first one")
    moved = [said for action in actions for kind, said in action.items() if kind in ("add", "remove")]
    if moved and not any(said["dataChange"] for said in moved):
        gone = [before[path] for path in map(unquote, (one["path"] for one in moved)) if path in before]
        come = [one for one in moved if unquote(one["path"]) in state.files]
        if all(Path(location, unquote(one["path"])).exists() for one in [*gone, *come]):
            was, now = ([row for one in some for row in _shown(location, state, one)] for some in (gone, come))
            if sorted(was) != sorted(now):
                flaws.append("dataChange is false, and rows changed")
    return flaws


def _shown(location: str, state: State, added: dict) -> list[str]:
    return [repr(row) for row in rows_of_file(location, state, added).to_pylist()]
