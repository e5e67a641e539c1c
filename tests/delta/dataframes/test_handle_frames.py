"""DataFrames of receipt handles: delete, change and settle, with an outcome for every row."""

import itertools

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from ledger.client.arrow_rows import SentTable
from ledger.errors import InvalidParameterValue
from ledger.rules.receipt_handle import decode, encode

INVALID = "ReceiptHandleIsInvalid"
#: A bitmap of handles ends here, and so does a block of ordinals.
BORDER = 32_768
_numbers = itertools.count()


@pytest.fixture
def ledger(frames_ledger):
    return frames_ledger


@pytest.fixture
def clock(frames_clock):
    return frames_clock


@pytest.fixture
def queue(ledger):
    return ledger.create_queue(f"handles-{next(_numbers)}", {"Lanes": 1})


@pytest.fixture
def commits(ledger):
    """The commits of verbs since the test began."""
    engine = ledger.store.engine
    since = engine.version("visibility")
    return lambda: engine.history("visibility", since)


@pytest.fixture
def handles(spark):
    """A DataFrame of receipt handles."""
    return lambda *given: spark.createDataFrame([(handle,) for handle in given], "receipt_handle STRING")


def bodies(claim):
    return sorted(message.body for message in claim)


def outcomes(frame):
    """Handle -> (action, outcome, error code)."""
    names = ("receipt_handle", "action", "outcome", "error_code", "error_message")
    assert frame.dtypes == [(name, "string") for name in names]
    rows = frame.collect()
    assert all((row.error_code is None) is (row.error_message is None) for row in rows)
    found = {row.receipt_handle: (row.action, row.outcome, row.error_code) for row in rows}
    assert len(found) == len(rows), "a row per distinct handle"
    return found


#: Handles with timeouts.
SECONDS = "receipt_handle STRING, seconds INT"


@pytest.fixture
def kinds(queue, ledger, clock):
    """A handle of each kind. Of six messages one was deleted, and two were received a second time."""
    queue.send([f"message {n}" for n in range(6)])
    old = [message.receipt_handle for message in queue.receive(6, visibility_timeout=30)]
    queue.delete(old[0])
    clock.advance(30)
    new = [message.receipt_handle for message in queue.receive(2, visibility_timeout=30)]
    other = ledger.create_queue("other")
    other.send("foreign")
    read = decode(new[1], queue.id)
    return {
        "good": new[0],
        "stale": old[1],
        "late": old[3],
        "deleted": old[0],
        "foreign": other.receive().messages()[0].receipt_handle,
        "of another receipt": encode(read._replace(receipt_id="f" * 32)),
        "never sent": encode(read._replace(seq=60)),
        "changed by hand": new[1][:-1] + ("0" if new[1][-1] != "0" else "1"),
        "no handle": "handle",
        "null": None,
    }


def test_delete_answers_an_outcome_for_every_handle_and_once_for_a_handle_given_twice(queue, ledger, kinds, handles):
    found = outcomes(queue.delete(handles(*kinds.values(), kinds["good"], kinds["foreign"], None)))
    assert {kind: found.pop(handle) for kind, handle in kinds.items()} == {
        "good": ("delete", "deleted", None),
        "stale": ("delete", "stale", None),
        "late": ("delete", "deleted", None),
        "deleted": ("delete", "already deleted", None),
        "foreign": ("delete", "invalid", INVALID),
        "of another receipt": ("delete", "stale", None),
        "never sent": ("delete", "invalid", INVALID),
        "changed by hand": ("delete", "invalid", INVALID),
        "no handle": ("delete", "invalid", INVALID),
        "null": ("delete", "invalid", INVALID),
    }
    assert found == {}
    assert queue.counts().deleted == 3, "the one before, the good one and the late one"
    assert queue.counts().in_flight == 1, "the stale handle's message is held by another receipt"
    assert ledger.queue("other").counts().deleted == 0


def test_a_change_answers_what_a_list_of_the_same_handles_is_answered(queue, kinds, handles):
    answer = queue.change_visibility(handles(*kinds.values()), 60)
    frame, said = outcomes(answer), {row.receipt_handle: row.error_message for row in answer.collect()}
    listed = queue.change_visibility(list(kinds.values()), 60)
    assert said == {one.receipt_handle: one.error_message for one in listed}
    assert frame == {one.receipt_handle: ("extend", one.outcome, one.error_code) for one in listed}
    assert {kind: frame[handle][1:] for kind, handle in kinds.items() if kind in ("good", "stale", "late")} == {
        "good": ("changed", None),
        "stale": ("stale", INVALID),
        "late": ("not in flight", "MessageNotInflight"),
    }


def test_a_column_of_timeouts_is_for_each_row_its_own(queue, spark, clock, commits):
    queue.send([f"{n}" for n in range(7)])
    messages = queue.receive(7, visibility_timeout=100).messages()
    clock.advance(10)
    # The last one is in range, but beyond twelve hours from the receive.
    asked = [200, 0, None, -1, 43_201, 43_190, 43_191]
    rows = [(message.receipt_handle, seconds) for message, seconds in zip(messages, asked)]
    frame = spark.createDataFrame(rows, "receipt_handle STRING, `how long` INT")
    found = outcomes(queue.change_visibility(frame, "how long"))
    refused = ("extend", "beyond the ceiling", "InvalidParameterValue")
    changed = ("extend", "changed", None)
    expected = [changed, ("release", "changed", None), refused, refused, refused, changed, refused]
    assert [found[message.receipt_handle] for message in messages] == expected
    left = [(queue.peek(m.message_id).visible_at.timestamp() - clock() / 1_000) for m in messages]
    assert left == [200, 0, 90, 90, 90, 43_190, 90]
    assert len(commits()) == 2, "the receive and the change"


def test_a_column_that_is_missing_or_of_another_type_is_refused_with_the_fix(queue, spark):
    frame = spark.sql("SELECT 'h' AS receipt_handle, 1.5 AS half, '1' AS text")
    whole = "tinyint or smallint or int or bigint"
    for call, said in {
        lambda: queue.delete(frame.select("text")): "'receipt_handle'.*no such column; it has text",
        lambda: queue.delete(frame.selectExpr("1 AS receipt_handle")): "int and must be string.*Cast it",
        lambda: queue.change_visibility(
            frame, "seconds"
        ): "'seconds'.*no such column; it has receipt_handle, half, text",
        lambda: queue.change_visibility(frame, "half"): rf"'half'.*decimal\(2,1\) and must be {whole}",
        lambda: queue.change_visibility(frame, "text"): f"'text'.*string and must be {whole}",
    }.items():
        with pytest.raises(InvalidParameterValue, match=said):
            call()


def test_three_frames_are_settled_in_one_commit(queue, handles, clock, commits):
    queue.send([f"{n}" for n in range(8)])
    claim = queue.receive(8, visibility_timeout=30)
    before = len(commits())
    by_body = {message.body: message for message in claim}
    done, failed, longer = ([by_body[body].receipt_handle for body in part] for part in ("012", "34", "56"))
    answer = claim.settle(
        delete=handles(*done), release=handles(*failed), extend=handles(*longer), visibility_timeout=90
    )
    (commit,) = commits()[before:]
    assert sorted((event["event"], event["messages"]) for event in commit.metadata["events"]) == [
        ("deleted", 3),
        ("extended", 2),
        ("released", 2),
    ]
    assert outcomes(answer) == {
        **dict.fromkeys(done, ("delete", "deleted", None)),
        **dict.fromkeys(failed, ("release", "changed", None)),
        **dict.fromkeys(longer, ("extend", "changed", None)),
    }
    clock.advance(30)
    assert bodies(queue.receive(None)) == ["3", "4", "7"], "released, and what was not named ran out"
    clock.advance(59.999)
    assert not set(bodies(queue.receive(None))) & {"5", "6"}
    clock.advance(0.001)
    assert bodies(queue.receive(None)) == ["5", "6"]


def test_m2_what_one_call_would_do_in_two_ways_is_left_as_it_is_and_the_rest_is_done(queue, handles, spark, clock):
    queue.send([f"{n}" for n in range(5)])
    messages = queue.receive(5, visibility_timeout=100).messages()
    one, two, three, four, five = (message.receipt_handle for message in messages)
    refused = ("contradicted", "InvalidParameterValue")
    settled = queue.settle(
        delete=handles(one, two), release=handles(two), extend=[three, four], visibility_timeout=[7, -1]
    )
    rows = [tuple(row) for row in settled.orderBy("receipt_handle", "action").collect()]
    by_handle = {handle: {row[1:4] for row in rows if row[0] == handle} for handle in (one, two, three, four)}
    assert by_handle == {
        one: {("delete", "deleted", None)},
        two: {("delete", *refused), ("release", *refused)},
        three: {("extend", "changed", None)},
        four: {("extend", "beyond the ceiling", "InvalidParameterValue")},
    }
    twice = spark.createDataFrame(
        [(three, 60), (three, 70), (four, 60), (five, 50_000), (five, 5), (five, None)], SECONDS
    )
    rows = queue.change_visibility(twice, "seconds").collect()
    found = {(row.receipt_handle, row.outcome, row.error_message) for row in rows}
    listed = queue.change_visibility([three, three, five, five], [60, 70, 50_000, None])
    bad = {(o.receipt_handle, o.outcome, o.error_message) for o in listed}
    assert found == {*bad, (four, "changed", None), (five, "changed", None)} and len(rows) == 6
    assert queue.counts().deleted == 1
    left = [queue.peek(m.message_id).visible_at.timestamp() - clock() / 1_000 for m in messages]
    assert left[1:] == [100, 7, 60, 5]


def test_a_frame_without_rows_settles_nothing_and_commits_nothing(queue, handles, commits):
    queue.send("a")
    assert outcomes(queue.delete(handles().limit(0))) == {}
    assert commits() == []


def test_handles_on_both_sides_of_the_border_between_bitmaps_each_find_their_message(queue):
    queue.send([str(n) for n in range(BORDER + 100)])
    claim = queue.receive(None)
    near = claim.dataframe.where(f"int(body) BETWEEN {BORDER - 5} AND {BORDER + 4} AND int(body) % 4 <> 0")
    found = outcomes(queue.delete(near))
    deleted = [n for n in range(BORDER - 5, BORDER + 5) if n % 4]
    assert list(found.values()) == [("delete", "deleted", None)] * len(deleted)
    claim.release()
    left = queue.receive(None, visibility_timeout=0).messages()
    assert sorted(set(range(BORDER + 100)) - {int(message.body) for message in left}) == deleted


@pytest.mark.soak_variants("change_visibility")
@pytest.mark.parametrize(
    "act",
    [
        lambda queue, drawn: queue.delete(drawn),
        lambda queue, drawn: queue.change_visibility(drawn, 0),
        lambda queue, drawn: queue.settle(delete=drawn.where("body < '5'"), release=drawn.where("body >= '5'")),
    ],
    ids=["delete", "change_visibility", "settle"],
)
def test_the_outcomes_of_a_frame_that_changes_are_of_the_handles_that_were_acted_on(queue, act):
    """One evaluation decides what is acted on and what is told: drawn by chance, or joined with what is in flight."""
    queue.send([str(n) for n in range(200)])
    claim = queue.receive(None)
    # Other rows each time that anybody looks; rand() draws the same ones again.
    told = act(queue, claim.dataframe.where("CAST(reflect('java.lang.Math', 'random') AS DOUBLE) < 0.5"))
    found = outcomes(told)
    assert set(found.values()) <= {("delete", "deleted", None), ("release", "changed", None)}
    held = {message.receipt_handle for message in queue.claim(claim.receipt_id)}
    assert set(found) == {message.receipt_handle for message in claim} - held != set()
    did = [action for action, _, _ in found.values()]
    assert (queue.counts().deleted, queue.counts().visible) == (did.count("delete"), did.count("release"))
    assert outcomes(told) == found, "asked for again, the same"


def test_handles_in_a_frame_joined_with_what_is_in_flight_are_all_told_about(queue, ledger):
    queue.send(["a", "b", "c"])
    claim = queue.receive(None)
    mine = ledger.view("in_flight").where(f"queue = '{queue.name}'").select("receipt_id")
    frame = claim.dataframe.withColumn("receipt_id", F.element_at(F.split("receipt_handle", "[.]"), -2))
    assert len(outcomes(queue.delete(frame.join(mine, "receipt_id", "left_semi")))) == 3


def test_a_frame_that_its_user_cached_stays_cached_and_no_cache_of_ours_is_left(queue, spark):
    queue.send(["a", "b"])
    claim = queue.receive(None)
    frame = claim.dataframe.select("receipt_handle").cache()
    before = spark._jsparkSession.sharedState().cacheManager().isEmpty(), frame.count()
    outcomes(queue.delete(frame))
    assert (spark._jsparkSession.sharedState().cacheManager().isEmpty(), frame.count()) == before
    assert frame.storageLevel.useMemory
    frame.unpersist()
    queue.change_visibility(claim.dataframe, 60)
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


def test_arrow_tables_of_a_ledger_with_spark_are_sent_through_it_and_settled_without(queue):
    sent = queue.send(pd.DataFrame({"n": [1, 2, 3], "body": ["a", "b", "c"]}, index=[7, 8, 9]))
    assert isinstance(sent, SentTable) and sorted(sent.ids()["body"].to_pylist()) == ["a", "b", "c"]
    assert {queue.peek(row["message_id"]).body for row in sent.ids().to_pylist()} == {"a", "b", "c"}
    as_json = queue.send(pa.table({"n": [1, None], "text": [None, "x"]})).ids()["body"].to_pylist()
    assert sorted(as_json) == ['{"n":1}', '{"text":"x"}']
    claim = queue.receive(None)
    handles = claim.dataframe.select("receipt_handle").toArrow()
    assert set(queue.delete(handles.slice(0, 2))["outcome"].to_pylist()) == {"deleted"}
    mixed = queue.settle(delete=handles.slice(2, 1), release=claim.dataframe.join(
        queue.access.frames.of(handles.slice(3)), "receipt_handle", "left_semi"))  # fmt: skip
    assert sorted(how[:2] for how in outcomes(mixed).values()) == [("delete", "deleted"), *[("release", "changed")] * 2]
