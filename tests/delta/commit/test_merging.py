"""Commits of few rows without a query: the same rows as a MERGE leaves, only where nobody was first, else a MERGE."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Ledger, __version__
from ledger.delta_log import by_delta_rs, log
from ledger.delta_log.protocol import EXPECTED_REVISION, OPERATION, Conflict
from ledger.delta_log.storage import HeldLog, LocalFiles
from ledger.errors import StorageFailed
from ledger.store.delta.model.tables import VISIBILITY, Where
from tests.delta.commit.test_engines import CHANGED, HELD, QUEUE, Decision, recorded, rows
from tests.delta.commit.test_failures import full_disk


@pytest.fixture
def one(engine_of):
    return engine_of("delta-rs")


@pytest.fixture
def other(engine_of):
    return engine_of("delta-rs")


def table_of(root, name="visibility"):
    return DeltaTable(f"{root}/{name}")


def operation(root, name="visibility"):
    """How the last commit was made."""
    by = table_of(root, name).history(1)[0].get("engineInfo")
    return "written out" if by == f"ledger/{__version__}" else "by a query"


def test_a_commit_says_which_release_made_it_and_that_rows_were_rewritten_directly(one, root):
    Decision(one, lane=0).commit()
    (said,) = table_of(root).history(1)
    assert (said["operation"], said["engineInfo"]) == ("MERGE", f"ledger/{__version__}")
    assert said["operationParameters"] == {"rewrittenDirectly": "true"}


def files(root):
    return set(table_of(root).file_uris())


def test_only_the_files_of_touched_partitions_give_way_to_one_each(one, root):
    for lane in (0, 1):
        Decision(one, lane=lane).commit()
    before = files(root)
    Decision(one, CHANGED, 5, 9, lane=0).commit()
    assert operation(root) == "written out" and len(files(root)) == 2
    (kept,) = before & files(root)
    assert "lane=1" in kept and recorded(one) == [(0, 4, HELD.visible_at), (5, 9, CHANGED.visible_at)]


def test_a_commit_goes_through_beside_others_that_touch_other_partitions(one, other):
    Decision(one, lane=0).commit()
    late = Decision(one, CHANGED, lane=0)
    for lane in (1, 2, 3):
        Decision(other, lane=lane).commit()
    version = one.version("visibility")
    assert late.commit() == version + 1
    assert recorded(other, 0) == [(0, 9, CHANGED.visible_at)] and len(recorded(other, 1)) == 1


def test_a_commit_says_its_own_version_though_others_were_next(one, other, monkeypatch):
    """It is a claim's fencing token."""
    Decision(one, lane=0).commit()
    late, version = Decision(one, CHANGED, lane=0), one.version("visibility")
    put_new = HeldLog.put_new

    def then_another_one(*arguments):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        landed = put_new(*arguments)
        Decision(other, lane=1).commit()
        return landed

    monkeypatch.setattr(HeldLog, "put_new", then_another_one)
    assert late.commit() == version + 1 == one.version("visibility") - 1


def test_new_lanes_do_not_disturb_each_other(one, other):
    late = Decision(one, lane=0)
    Decision(other, lane=1).commit()
    late.commit()
    assert len(recorded(other, 0)) == len(recorded(other, 1)) == 1


def test_a_lane_that_came_and_went_again_is_not_as_it_was(one, other):
    late = Decision(one)
    Decision(other).commit()
    other.delete("visibility", f"queue = '{QUEUE.id}'", {})
    with pytest.raises(Conflict):
        late.commit()
    assert recorded(other) == []


@pytest.mark.parametrize("was_there", [True, False], ids=["a lane", "a new lane"])
@pytest.mark.parametrize("by_merge", [True, False], ids=["by a MERGE", "written out"])
def test_whoever_comes_second_to_a_partition_changes_nothing(one, other, was_there, by_merge, monkeypatch):
    if was_there:
        Decision(one, first=20, last=29).commit()
    late = Decision(one)
    with monkeypatch.context() as patched:
        if by_merge:
            patched.setattr(log, "MOST_ROWS", 0)
        Decision(other, CHANGED).commit()
    known = recorded(other)
    with pytest.raises(Conflict):
        late.commit()
    assert recorded(other) == known


@pytest.mark.parametrize("was_there", [True, False], ids=["a lane", "a new lane"])
def test_a_merge_comes_second_to_what_was_written_out(one, other, was_there, monkeypatch):
    if was_there:
        Decision(one, first=20, last=29).commit()
    late = Decision(one)
    Decision(other, CHANGED).commit()
    monkeypatch.setattr(log, "MOST_ROWS", 0)
    with pytest.raises(Conflict):
        late.commit()
    assert (0, 9, CHANGED.visible_at) in recorded(other)


def test_who_loses_all_the_time_to_others_that_touch_other_partitions_says_so(one, other, monkeypatch):
    monkeypatch.setattr(log, "REBASES", 2)
    Decision(one, lane=0).commit()
    put_new, lanes = HeldLog.put_new, iter((1, 2))
    late = Decision(one, CHANGED, lane=0)

    def another_one_is_first(*arguments):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        Decision(other, lane=next(lanes)).commit()
        monkeypatch.setattr(HeldLog, "put_new", another_one_is_first)
        return put_new(*arguments)

    monkeypatch.setattr(HeldLog, "put_new", another_one_is_first)
    with pytest.raises(Conflict, match="2 times"):
        late.commit()
    monkeypatch.undo()
    assert recorded(other) == [(0, 9, HELD.visible_at)]


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.alter.add_constraint({"positive": "last_seq > -2"}),
        lambda table: table.alter.add_columns([Field("note", "string")]),
        lambda table: table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"}),
    ],
    ids=["a constraint", "a column", "change data"],
)
def test_a_table_that_asks_more_of_a_row_is_written_by_a_merge(one, root, change):
    Decision(one).commit()
    change(table_of(root))
    Decision(one, CHANGED).commit()
    assert operation(root) == "by a query"
    assert recorded(one) == [(0, 9, CHANGED.visible_at)]


def test_a_table_that_is_changed_between_a_read_and_its_commit_is_a_conflict(one, root):
    Decision(one).commit()
    late = Decision(one, CHANGED)
    table_of(root).alter.add_constraint({"positive": "last_seq > -2"})
    with pytest.raises(Conflict):
        late.commit()


def test_many_rows_are_left_to_a_merge(one, root, monkeypatch):
    monkeypatch.setattr(log, "MOST_ROWS", 1)
    Decision(one).commit()
    assert operation(root) == "by a query" and recorded(one) == [(0, 9, HELD.visible_at)]


def test_a_folder_whose_name_needs_escapes_is_no_matter(tmp_path, clock):
    root = tmp_path / "a b" / "ä=1&c"
    queue = Ledger.open(str(root), engine="delta-rs", clock=clock).create_queue("jobs.fifo", {"FifoQueue": True})
    queue.send([{"MessageBody": "a", "MessageGroupId": "g", "MessageDeduplicationId": "1"}])
    (message,) = queue.receive(1).messages()
    queue.change_visibility(message.receipt_handle, 0)
    again = Ledger.open(str(root), engine="delta-rs", clock=clock).queue("jobs.fifo").receive(1)
    assert [one.body for one in again] == ["a"] and operation(root) == operation(root, "queues") == "written out"


def test_old_commits_are_summed_up_in_checkpoints(one, root):
    for last in range(60):
        Decision(one, last=last).commit()
    assert Path(root, "visibility", "_delta_log", "_last_checkpoint").exists()


@pytest.mark.parametrize("how", ["made anew", "cut"])
def test_a_commit_to_a_log_that_is_gone_is_taken_back_and_decided_anew(one, other, root, empty_ledger, how):
    Decision(one).commit()
    late = Decision(one, CHANGED)
    log = Path(root, "visibility", "_delta_log")
    if how == "made anew":
        shutil.rmtree(Path(root, "visibility"))
        shutil.copytree(empty_ledger / "visibility", Path(root, "visibility"))
    else:
        for last in (10, 11):
            Decision(other, last=last).commit()
        DeltaTable(f"{root}/visibility").create_checkpoint()
        for version in range(3):
            (log / f"{version:020}.json").unlink()
    known = sorted(log.iterdir())
    with pytest.raises(Conflict, match="lost version"):
        late.commit()
    assert sorted(log.iterdir()) == known
    found = recorded(one)
    Decision(one, CHANGED, 20, 29).commit()
    assert found == recorded(other)[:-1], "what is loaded next is of the log that there is"


@pytest.mark.parametrize("changed", [False, True], ids=["what it wrote is there", "what it wrote has given way"])
def test_a_verb_that_stood_still_until_the_log_was_cut_is_not_done_again(
    open_ledger, other, root, changed, monkeypatch
):
    """Behind its commit, before it looks whether that has joined the log, others commit, and upkeep cuts the log."""
    queue = open_ledger().create_queue("work", {"Lanes": 1})
    queue.send(["a", "b", "c"])
    queue.receive(1)
    put_new, log = HeldLog.put_new, Path(root, "visibility", "_delta_log")

    def then_stands_still(files, path, content):
        monkeypatch.setattr(HeldLog, "put_new", put_new)
        landed = put_new(files, path, content)
        if changed:
            open_ledger().queue("work").receive(1)
        for lane in (1_000, 1_001):
            Decision(other, lane=lane).commit()
        table_of(root).create_checkpoint()
        for version in range(int(Path(path).stem) + changed):
            (log / f"{version:020}.json").unlink()
        return landed

    monkeypatch.setattr(HeldLog, "put_new", then_stands_still)
    if changed:
        with pytest.raises(StorageFailed, match="its log begins at version") as failed:
            queue.receive(1)
        assert failed.value.unknown
    else:
        assert len(queue.receive(1)) == 1
    assert queue.counts().in_flight == 2 + changed


def test_what_has_changed_can_be_read_from_the_log(one, root):
    for last in (1, 2, 3):
        Decision(one, last=last).commit()
    changes = pa.table(table_of(root).load_cdf(starting_version=1).read_all())
    assert changes.num_rows > 3 and operation(root) == "written out"


def test_nothing_is_left_of_a_commit_that_finds_no_room(one, root):
    late = Decision(one)
    with full_disk(), pytest.raises(StorageFailed):
        late.commit()
    assert not [file.name for file in Path(root, "visibility", "_delta_log").iterdir() if file.name.endswith(".tmp")]


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 4)), unique=True, min_size=1, max_size=12
)


def edit(operation, row, revision, expected):
    lane, segment, first = row
    known = {"queue": QUEUE.id, "lane": lane, "segment": segment, "first_seq": first, "last_seq": first}
    return {
        **known,
        "receipt_id": f"r{revision}",
        "revision": revision,
        OPERATION: operation,
        EXPECTED_REVISION: expected,
    }


def test_who_relies_on_more_than_is_changed_is_left_to_a_merge(one, root, monkeypatch):
    late = Decision(one)
    late.snapshot = one.load("visibility", Where(QUEUE.id))
    late.where = Where(QUEUE.id, (0, 1))
    late.commit()
    assert operation(root) == "by a query"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=ROWS, data=st.data())
def test_the_rows_are_those_that_a_merge_leaves(engine_of, before, data):
    """Whatever is inserted, updated and deleted: of two tables that hold the same rows each is changed in one way."""
    engine = engine_of("delta-rs")
    schema = pa.schema([*VISIBILITY, (OPERATION, pa.string()), (EXPECTED_REVISION, pa.int64())])

    def commit(edits):
        table = pa.Table.from_pylist(edits, schema)
        where = Where(QUEUE.id)
        engine.merge(engine.load("visibility", where), "visibility", where, table, {})
        return sorted(engine.load("visibility", where).rows.to_pylist(), key=str)

    def after(most_rows, todo):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log, "MOST_ROWS", most_rows)
            engine.delete("visibility", f"queue = '{QUEUE.id}'", {})
            commit([edit("insert", row, 1, None) for row in before])
            return commit(todo)

    kept = data.draw(st.lists(st.sampled_from(before), unique=True))
    new = [row for row in data.draw(ROWS) if row not in before]
    changes = [
        edit(data.draw(st.sampled_from(["update", "delete"])), row, 2, data.draw(st.sampled_from([None, 1])))
        for row in kept
    ]
    todo = [*changes, *(edit("insert", row, 2, None) for row in new)]
    if todo:
        assert after(log.MOST_ROWS, todo) == after(0, todo)


def _append(engine):
    engine.append("messages", rows(0, ["a"]), {})


def _change(engine):
    Decision(engine, CHANGED, lane=0).commit()


@pytest.mark.parametrize(("commit", "table"), [(_change, "visibility"), (_append, "messages")])
@pytest.mark.parametrize("when", ["before the commit", "in it"])
def test_files_that_a_vacuum_removed_before_a_commit_named_them_are_there_again(
    engine_of, root, monkeypatch, when, commit, table
):
    """Spark's removes what no commit names and is old: what a writer that stood still has written, too."""
    engine = engine_of("delta-rs")
    Decision(engine, lane=0).commit()
    written, write, put_new = [], LocalFiles.write, HeldLog.put_new

    def vacuum():
        while written:
            Path(root, table, written.pop()).unlink()

    def noted(files, content):
        monkeypatch.setattr(LocalFiles, "write", write)
        write(files, content)
        written.extend(content)
        if when == "before the commit":
            vacuum()

    def puts(files, path, content):
        vacuum()
        return put_new(files, path, content)

    monkeypatch.setattr(LocalFiles, "write", noted)
    monkeypatch.setattr(HeldLog, "put_new", puts)
    monkeypatch.setattr(log, "LISTED_AFTER", -1.0)
    commit(engine)
    monkeypatch.undo()
    assert len(recorded(engine_of("delta-rs"))) == 1
    there = Where(QUEUE.id if table == "visibility" else None)
    assert engine_of("delta-rs").load(table, there).rows.num_rows > 0


@pytest.fixture
def statements(engine_of):
    return engine_of("delta-rs by statements")


def test_a_statement_decided_before_a_checkpoint_is_made_on_the_version_that_it_was_decided_on(statements, other, root):
    """The copy of the log, in which delta-rs runs it, begins at the last checkpoint otherwise."""
    Decision(statements, lane=0).commit()
    late, version = Decision(statements, CHANGED, lane=0), statements.version("visibility")
    Decision(other, lane=1).commit()
    table_of(root).create_checkpoint()
    assert late.commit() == version + 2 and operation(root) == "by a query"
    assert recorded(other, 0) == [(0, 9, CHANGED.visible_at)] and len(recorded(other, 1)) == 1


def behind_the_run(monkeypatch, commit):
    """Lets another writer commit between a statement's run in the copy of the log and its own place in the log."""
    commit_on_copy = by_delta_rs.commit_on_copy

    def then_others(*arguments):
        monkeypatch.setattr(by_delta_rs, "commit_on_copy", commit_on_copy)
        found = commit_on_copy(*arguments)
        commit()
        return found

    monkeypatch.setattr(by_delta_rs, "commit_on_copy", then_others)


@pytest.mark.parametrize("was_there", [True, False], ids=["a lane", "a new lane"])
def test_a_statement_that_was_run_comes_second_to_whoever_was_first(statements, other, was_there, monkeypatch):
    if was_there:
        Decision(statements, first=20, last=29).commit()
    late = Decision(statements, CHANGED)
    behind_the_run(monkeypatch, Decision(other, HELD).commit)
    with pytest.raises(Conflict, match="others have committed to visibility since"):
        late.commit()
    assert (0, 9, HELD.visible_at) in recorded(other)


def test_a_statement_that_was_run_goes_behind_what_others_did_elsewhere(statements, other, monkeypatch):
    Decision(statements, lane=0).commit()
    late, version = Decision(statements, CHANGED, lane=0), statements.version("visibility")
    behind_the_run(monkeypatch, Decision(other, lane=1).commit)
    assert late.commit() == version + 2 == statements.version("visibility")
    assert recorded(other, 0) == [(0, 9, CHANGED.visible_at)] and len(recorded(other, 1)) == 1


def test_a_statement_that_was_run_is_no_commit_where_the_table_was_altered(statements, root, monkeypatch):
    Decision(statements).commit()
    late = Decision(statements, CHANGED)
    alter = lambda: table_of(root).alter.add_constraint({"positive": "last_seq > -2"})  # noqa: E731
    behind_the_run(monkeypatch, alter)
    with pytest.raises(Conflict, match="was altered since"):
        late.commit()
