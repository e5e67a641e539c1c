"""Verbs by statements of the engine (the setting merge), the path that commits take, and explanations."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, TableFeatures

from ledger import Ledger, RetryLater, Settings, Settled
from ledger.client.explanation import CLAIM_VERBS, QUEUE_VERBS
from ledger.delta_log import log as commits
from ledger.delta_log.statements import DIRECT, STATEMENT
from ledger.errors import InvalidParameterValue, LeaseLost, LedgerError
from ledger.store.delta.model.tables import Where


def taken(ledger, table="visibility"):
    """The paths and reasons of this process's commits to a table."""
    return {(one.path, one.reason) for one in ledger.store.engine.paths.counts() if one.table == table}


def merges(ledger):
    """How each MERGE of `visibility` was made, by its log."""
    return [commit.path for commit in ledger.store.engine.history("visibility", -1) if commit.path]


def every_verb(ledger):
    """Does what changes rows of state, on a queue, its dead letters and a FIFO queue."""
    dead = ledger.create_queue("dead")
    queue = ledger.create_queue(
        "jobs", {"Lanes": 2, "RedrivePolicy": {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1}}
    )
    fifo = ledger.create_queue("jobs.fifo", {"FifoQueue": True, "ContentBasedDeduplication": True})
    sent = queue.send(["a", "b", "c", "d", "e"])
    assert fifo.send("x", message_group_id="g") == fifo.send("x", message_group_id="g")
    queue.lock(sent[0], 0)
    claim = queue.receive(3, 600)
    handles = [message.receipt_handle for message in claim]
    assert claim.extend(60).messages == 3
    assert all(queue.settle(delete=handles[:1], release=handles[1:2]))
    queue.change_visibility(handles[2], 0)
    assert claim.count == 3 and not claim.held
    assert queue.restore(claim.receipt_id) == 1
    assert queue.receive(None).count == 2 and dead.counts().visible == 3, "what was received once is dead"
    assert dead.redrive() == 3 and queue.counts().visible == 3
    assert fifo.receive(10).delete().messages == 1
    assert queue.purge() == 5 and fifo.purge() == 0
    assert (queue.counts().visible, queue.counts().in_flight, fifo.counts().visible) == (0, 0, 0)
    queue.set_tags({"team": "data"})
    ledger.delete_queue("dead")


def test_with_statement_every_verb_is_one_of_the_engine(open_ledger):
    ledger = open_ledger(merge="statement")
    every_verb(ledger)
    assert len(merges(ledger)) > 10 and set(merges(ledger)) == {STATEMENT}
    for table in ("visibility", "messages", "queues"):
        assert taken(ledger, table) == {(STATEMENT, "setting")}, table
    assert all(one.by_statement.startswith("setting: ") for one in ledger.health().tables.values())
    assert ledger.upkeep(vacuum=False) and len(ledger.health().tables) == 5


def test_with_auto_the_same_verbs_are_written_out(open_ledger):
    ledger = open_ledger()
    every_verb(ledger)
    assert set(merges(ledger)) == {DIRECT}
    assert taken(ledger) == taken(ledger, "messages") == taken(ledger, "queues") == {(DIRECT, "")}
    health = ledger.health()
    assert not any(one.by_statement for one in health.tables.values())
    assert health.vitals.recent.merges == {DIRECT: len(merges(ledger)), STATEMENT: 0}
    assert {"verb": "purge", "table": "visibility", "path": DIRECT, "reason": "", "commits": 1} in health.commits


def test_both_rows_and_writers_are_the_same_beside_each_other(open_ledger):
    """A queue with a writer of each kind: what one holds the other does not get, and nothing is lost."""
    one, other = open_ledger(), open_ledger(merge="statement")
    queue, same = one.create_queue("jobs", {"Lanes": 3}), other.queue("jobs")
    sent = [*queue.send(["a", "b", "c"]), *same.send(["d", "e", "f"])]
    claims = [side.receive(1, 600) for side in (queue, same) * 3]
    assert sorted(message.message_id for claim in claims for message in claim) == sorted(sent)
    assert same.claim(claims[0].receipt_id).extend(900).messages == 1 and claims[0].delete().messages == 1
    assert claims[1].release().messages == 1 and queue.receive(5).count == 1
    assert sorted(set(merges(one))) == [DIRECT, STATEMENT]


@pytest.mark.parametrize("value", ["direct", "Statement", "", None, 1, True, ["statement"]])
def test_another_word_is_refused_with_both_words(root, value):
    with pytest.raises(InvalidParameterValue, match="Must be one of auto, statement") as refused:
        Settings(merge=value)
    assert refused.value.field == "merge" and 'Its default is "auto"' in str(refused.value)
    if value is not None:
        with pytest.raises(InvalidParameterValue, match="parameter merge"):
            Ledger.open(root, merge=value)


def test_what_open_says_goes_over_the_settings(root):
    assert Ledger.open(root, settings=Settings(merge="statement")).settings.merge == "statement"
    assert Ledger.open(root, settings=Settings(merge="statement"), merge="auto").settings.merge == "auto"


def column(table):
    table.alter.add_columns([Field("note", "string")])


def feature(table):
    table.alter.add_feature(TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True)


@pytest.mark.parametrize(
    ("alter", "what"),
    [
        (column, "the column note"),
        (feature, "changeDataFeed"),
        (lambda table: table.alter.add_constraint({"late": "last_seq > -2"}), "delta.constraints.late"),
    ],
    ids=["a column", "a feature", "a constraint"],
)
def test_a_table_that_was_altered_takes_statements_and_says_of_what(open_ledger, root, caplog, alter, what):
    queue = open_ledger().create_queue("jobs")
    queue.send(["a", "b"])
    alter(DeltaTable(f"{root}/visibility"))
    ledger = open_ledger()
    assert ledger.queue("jobs").receive(1).count == 1
    assert taken(ledger) == {(STATEMENT, "altered")} and merges(ledger) == [STATEMENT]
    health = ledger.health()
    assert what in health.tables["visibility"].by_statement and not health.tables["messages"].by_statement
    assert health.vitals.recent.merges == {DIRECT: 0, STATEMENT: 1}
    assert any(what in one.getMessage() and one.levelno == logging.WARNING for one in caplog.records)
    assert what in ledger.queue("jobs").explain("receive").why_statement


def test_a_commit_of_many_rows_takes_a_statement(open_ledger, monkeypatch):
    ledger = open_ledger()
    queue = ledger.create_queue("jobs")
    queue.send("a")
    monkeypatch.setattr(commits, "MOST_ROWS", 0)
    assert queue.receive().count == 1 and taken(ledger) == {(STATEMENT, "large")}


def test_the_log_has_each_statement_that_is_run_and_says_once_why(open_ledger, caplog):
    caplog.set_level(logging.DEBUG, "ledger.commits")
    ledger = open_ledger(merge="statement")
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    explained = queue.explain("receive").statement
    caplog.clear()
    queue.receive(1)
    queue.receive(1)
    told = [(one.levelno, one.getMessage()) for one in caplog.records if one.name == "ledger.commits"]
    (why,) = [text for level, text in told if level == logging.INFO]
    assert why == "delta-rs runs statements on the table visibility: setting (the user asks for statements)"
    first, second = [text for level, text in told if level == logging.DEBUG]
    assert first.startswith("receive through delta-rs (setting), 2 source rows: MERGE INTO delta.`")
    assert f"t.queue = '{queue.id}' AND t.lane IN (0)" in second and "WHEN NOT MATCHED" in second
    assert "USING source AS s\n" in first and "USING source AS s\n" in explained


def contents(root):
    """Every file below a root, with what is in it."""
    return {path: path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def _postpone(message):
    raise RetryLater(600)


def asked(queue):
    """An explanation of each verb, by its name, on a queue that has something for each."""
    claim, others = queue.receive(2, 600), queue.receive(1, 600)
    (handle,) = [message.receipt_handle for message in others]
    done = queue.receive(1)
    done.delete()
    queue.consume(_postpone, until="once", max_messages=1)
    (message,) = queue.send(["left"])
    of_queue = {
        "receive": ((5,), {}),
        "receive_many": (([(1,), (2, 60)],), {}),
        "send": ((["x", "y"],), {}),
        "delete": (([handle],), {}),
        "change_visibility": ((handle, 60), {}),
        "settle": ((), {"release": [handle], "reason": "later"}),
        "lock": ((message, 60), {}),
        "purge": ((), {}),
        "restore": ((done.receipt_id,), {}),
        "release_postponed": ((), {"reason": "mended"}),
        "redrive": ((), {"destination": "other"}),
        "set_attributes": (({"VisibilityTimeout": 5},), {}),
        "set_tags": (({"a": "b"},), {}),
        "tag": (({"a": "b"},), {}),
        "untag": ((["known"],), {}),
    }
    of_claim = {
        "extend": ((60,), {}),
        "release": ((), {"reason": "later"}),
        "delete": ((), {}),
        "settle": ((), {"delete": [one.receipt_handle for one in claim]}),
    }
    assert (*of_queue, *of_claim) == (*QUEUE_VERBS, *CLAIM_VERBS)
    yield lambda: [queue.explain(verb, *args, **options) for verb, (args, options) in of_queue.items()]
    yield lambda: [claim.explain(verb, *args, **options) for verb, (args, options) in of_claim.items()]


@pytest.mark.parametrize("merge", ["auto", "statement"])
def test_every_verb_is_explained_and_nothing_is_changed(open_ledger, root, merge):
    ledger = open_ledger(merge=merge)
    queue = ledger.create_queue("jobs", {"Lanes": 2}, {"known": "tag"})
    ledger.create_queue("other")
    queue.send(["a", "b", "c", "d", "e"])
    explaining = list(asked(queue))
    before = contents(root)
    found = [one for explain in explaining for one in explain()]
    assert contents(root) == before
    for one in found:
        table = {"send": "messages", "set_attributes": "queues", "set_tags": "queues", "tag": "queues"}.get(one.verb)
        assert one and one.rows.num_rows and (one.table == (table or "visibility") or one.verb == "untag"), one.verb
        assert one.statement.startswith("INSERT INTO delta.`" if one.verb == "send" else "MERGE INTO delta.`")
        assert one.why_statement == ("" if merge == "auto" else "setting: the user asks for statements")
        assert str(one).startswith(f"{one.verb}: one commit to {one.table}; ") and "source:" in str(one)


def test_what_is_explained_is_what_the_verb_commits(open_ledger):
    ledger = open_ledger(merge="statement")
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b", "c"])
    shown = queue.explain("receive", 2, 60)
    claim = queue.receive(2, 60)
    rows = ledger.store.engine.load("visibility", Where(queue.id)).rows
    planned = shown.rows.select(rows.column_names).to_pylist()
    for row in planned:
        row["receipt_id"] = row["receipt_id"] and claim.receipt_id
    by_place = lambda row: row["first_seq"]  # noqa: E731
    assert sorted(planned, key=by_place) == sorted(rows.to_pylist(), key=by_place)
    assert shown.rows["operation"].to_pylist() == ["insert", "insert"]


def test_the_explained_statement_does_in_spark_what_the_verb_does(open_ledger, spark):
    ledger = open_ledger()
    ledger.create_queue("jobs", {"Lanes": 1}).send(["a", "b", "c"])
    queue = open_ledger("spark").queue("jobs")
    shown = queue.explain("receive", 2, 60)
    assert shown.engine == "spark" and not shown.why_statement
    spark.createDataFrame(shown.rows.combine_chunks()).createOrReplaceTempView("source")
    try:
        spark.sql(shown.statement)
        counts = ledger.queue("jobs").counts()
        assert (counts.visible, counts.in_flight) == (1, 2)
        with pytest.raises(Exception, match="the partition changed after it was read"):
            spark.sql(shown.statement)
    finally:
        spark.catalog.dropTempView("source")
    with pytest.raises(InvalidParameterValue, match=r"DataFrame.* for parameter argument 1 "):
        queue.explain("send", spark.range(3).selectExpr("'a' AS body"))


def test_a_verb_that_commits_nothing_says_so(open_ledger):
    queue = open_ledger().create_queue("jobs", {"ReceiveMessageWaitTimeSeconds": 20})
    shown = queue.explain("receive", 10)
    assert not shown and shown.rows is None and str(shown) == "receive commits nothing now."


@pytest.mark.parametrize("verb", ["extend", "release", "delete", "settle"])
@pytest.mark.parametrize("ends", ["claim", "handles"])
def test_of_what_the_claim_has_settled_itself_the_verbs_commit_nothing_and_are_explained_so(
    open_ledger, caplog, ends, verb
):
    queue = open_ledger().create_queue("jobs")
    queue.send(["a", "b"])
    claim = queue.receive(2)
    handles = [message.receipt_handle for message in claim]
    assert claim.delete().messages == 2 if ends == "claim" else all(queue.delete(handles))
    caplog.clear()
    arguments = {"delete": handles} if verb == "settle" else {}
    for _ in range(2):
        assert str(claim.explain(verb, **arguments)) == f"{verb} commits nothing now."
    assert not caplog.records
    done = getattr(claim, verb)(**arguments)
    assert done == Settled(0, 0) if verb != "settle" else all(done)


def test_what_is_explained_of_a_claim_leaves_the_claim_as_it_was(open_ledger, clock):
    queue = open_ledger().create_queue("jobs")
    queue.send(["a", "b"])
    claim = queue.receive(2, 60)
    first, _ = [message.receipt_handle for message in claim]
    assert all(claim.settle(delete=[first]))
    deadline = claim.deadline
    for verb, options in (
        ("extend", {"visibility_timeout": 600}),
        ("release", {}),
        ("delete", {}),
        ("settle", {"release": [first]}),
    ):
        claim.explain(verb, **options)
        assert (claim.held, claim.deadline) == (1, deadline), verb
        claim.check()
    clock.advance(61)
    assert queue.receive(2, 60).count == 1
    with pytest.raises(LeaseLost):
        claim.explain("extend", 600)
    assert claim.held == 1, "the explanation found the claim lost, and no verb has"
    with pytest.raises(LeaseLost):
        claim.extend(600)
    assert claim.held == 0


def test_what_is_explained_of_many_rows_shows_some(open_ledger):
    queue = open_ledger().create_queue("jobs")
    shown = queue.explain("send", [f"body\n{number} {'long' * 20}" for number in range(30)])
    assert shown.rows.num_rows == 30 and "Source rows: 30" in str(shown) and "... and 10 more" in str(shown)
    assert "body\\n19 long" in str(shown) and "body\\n20" not in str(shown)


def test_a_ledger_that_may_only_be_read_explains_too(open_ledger, root, clock):
    open_ledger().create_queue("jobs").send(["a"])
    assert Ledger.open(root, read_only=True, clock=clock).queue("jobs").explain("receive")


def test_what_cannot_be_explained_is_refused(open_ledger):
    queue = open_ledger().create_queue("jobs")
    with pytest.raises(InvalidParameterValue, match="Must be one of receive, "):
        queue.explain("counts")
    with pytest.raises(InvalidParameterValue, match="Must be one of extend, release, delete, settle"):
        queue.receive().explain("write")
    with pytest.raises(InvalidParameterValue):
        queue.explain("receive", 0)
    with pytest.raises(LedgerError, match="in memory"):
        Ledger.in_memory().create_queue("jobs").explain("receive")


def test_an_explanation_asks_output_tables_and_fences_nothing(open_ledger, root, tmp_path, clock):
    """A write that its writer left behind: a receive would fence it off in the output table."""
    ledger = open_ledger()
    queue = ledger.create_queue("jobs", {"Lanes": 1})
    queue.send(["a", "b"])
    output = str(tmp_path / "out")
    claim = queue.receive(1, 60)
    claim.write(pa.table({"message_id": [one.message_id for one in claim]}), output)
    claim = queue.receive(1, 60)
    outputs, runs = ledger.store.outputs, claim.grant.runs
    outputs.begin(claim.access.record(), claim.receipt_id, runs, output, outputs.table_id(output), clock)
    clock.advance(100)
    before = contents(output), contents(root)
    shown = queue.explain("receive")
    assert (contents(output), contents(root)) == before
    assert shown and queue.receive().count == 1 and contents(output) != before[0], "the receive itself fences it off"
