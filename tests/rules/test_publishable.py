"""To which tables files may be published, and what a new table is made with."""

import json
from dataclasses import replace

import pytest

from ledger.rules.publishable import Demands, demands_of_new, list_unapplied_demands


def column(name, kind="string", **metadata):
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def demands(reader=1, writer=2, features=None, columns=None, partitions=(), **properties):
    protocol = {"minReaderVersion": reader, "minWriterVersion": writer}
    if features is not None:
        protocol["writerFeatures"] = list(features)
    schema = json.dumps({"type": "struct", "fields": columns or [column("a")]})
    return Demands(protocol, schema, tuple(partitions), {f"delta.{name}": value for name, value in properties.items()})


@pytest.mark.parametrize(
    "known",
    [
        demands(),
        demands(writer=4, enableChangeDataFeed="true"),
        demands(writer=3, **{"constraints.short": "length(a) < 3"}),
        demands(writer=7, features=("checkConstraints", "generatedColumns", "appendOnly")),
        demands(columns=[column("a", **{"delta.generationExpression": "b + 1"})], writer=4),
        demands(**{"columnMapping.mode": "none", "enableRowTracking": "false"}),
        demands(columns=[{"name": "a", "type": "string", "nullable": True}]),
    ],
)
def test_what_spark_applies_while_it_writes_does_not_keep_files_from_being_published(known):
    assert list_unapplied_demands(known) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (demands(reader=2, writer=5), "the protocol (2, 5)"),
        (demands(writer=6), "the protocol (1, 6)"),
        (demands(writer=7, features=("rowTracking", "domainMetadata")), "the feature domainMetadata"),
        (demands(reader=3, writer=7, features=("deletionVectors",)), "the feature deletionVectors"),
        (demands(**{"columnMapping.mode": "name"}), "the property delta.columnMapping.mode"),
        (
            demands(**{"compatibility.symlinkFormatManifest.enabled": "true"}),
            "the property delta.compatibility.symlinkFormatManifest.enabled",
        ),
        (demands(**{"universalFormat.enabledFormats": "hudi"}), "the property delta.universalFormat.enabledFormats"),
        (demands(columns=[column("n", "long", **{"delta.identity.start": 1})]), "the column n"),
        (demands(columns=[column("n", CURRENT_DEFAULT="1")]), "the column n"),
    ],
)
def test_what_depends_on_the_tables_own_state_or_is_not_known_keeps_files_from_being_published(other, said):
    assert said in list_unapplied_demands(other)


def test_a_feature_of_readers_alone_that_is_not_known_keeps_files_from_being_published():
    known = demands(reader=3, writer=7, features=())
    assert list_unapplied_demands(known) == []
    other = replace(known, protocol={**known.protocol, "readerFeatures": ["deletionVectors"]})
    assert list_unapplied_demands(other) == ["the feature deletionVectors"]


def test_files_keep_to_the_demands_that_they_were_written_by_and_to_no_others():
    known = demands(writer=7, features=("b", "a"))
    assert known.is_equivalent(demands(writer=7, features=("a", "b")))
    for other in (
        demands(writer=7, features=("a",)),
        demands(writer=7, features=("a", "b"), columns=[column("b")]),
        demands(writer=7, features=("a", "b"), partitions=("a",)),
        demands(writer=7, features=("a", "b"), **{"constraints.c": "a > 0"}),
    ):
        assert not known.is_equivalent(other)


def test_a_new_table_has_the_rows_columns_and_every_value_may_be_missing():
    inner = {"type": "struct", "fields": [{**column("x", "long"), "nullable": False}]}
    array = {"type": "array", "elementType": inner, "containsNull": False}
    pairs = {"type": "map", "keyType": "string", "valueType": "decimal(4,2)", "valueContainsNull": False}
    fields = [{**column("a"), "nullable": False}, column("b", array), column("c", pairs)]
    made = demands_of_new(json.dumps({"type": "struct", "fields": fields}))
    inner = {"type": "struct", "fields": [column("x", "long")]}
    array = {"type": "array", "elementType": inner, "containsNull": True}
    pairs = {"type": "map", "keyType": "string", "valueType": "decimal(4,2)", "valueContainsNull": True}
    fields = [column("a"), column("b", array), column("c", pairs)]
    assert json.loads(made.schema) == {"type": "struct", "fields": fields}
    assert list_unapplied_demands(made) == [] and made.partitions == () and made.properties == {}


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [column("a b")],
        [column("a"), column("A")],
        [column("a", "timestamp_ntz")],
        [column("a", {"type": "array", "elementType": "variant", "containsNull": True})],
        [column("a", __CHAR_VARCHAR_TYPE_STRING="char(2)")],
    ],
)
def test_a_table_of_other_columns_is_made_by_spark(fields):
    assert demands_of_new(json.dumps({"type": "struct", "fields": fields})) is None


def test_the_first_commit_of_a_table_has_its_demands_and_asks_for_no_compaction_after_a_write():
    first = demands(partitions=("a",), **{"autoOptimize.autoCompact": "true", "appendOnly": "true"})
    said = first.actions("an id", 7)
    assert said["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert said["metaData"] == {
        "id": "an id",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": first.schema,
        "partitionColumns": ["a"],
        "configuration": {"delta.appendOnly": "true"},
        "createdTime": 7,
    }
