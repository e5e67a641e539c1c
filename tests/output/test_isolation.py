"""Queue.work isolates the rows for which the function raises: all others are done, and each culprit has its reason."""

import re
from collections import Counter
from math import ceil, log2

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from ledger.errors import LeaseLost, OutputNotWritten
from ledger.output_tables.row_errors import make_row_error, parse_row_error
from ledger.store.protocol import GRANTED_RUNS, Grant
from ledger.work.isolation import EverythingFails, Evidence, Isolation
from tests.clock import FrozenClock
from tests.output.conftest import Place


def grant_of(count, receives=()):
    """So many messages, in two segments; `receives`: how often some of them were received, once the others."""
    rows = [
        {
            "lane": n % 2,
            "segment": "ab"[n % 2],
            "first_seq": n,
            "last_seq": n,
            "receive_count": dict(receives).get(n, 1),
        }
        for n in range(count)
    ]
    return Grant("receipt", 0, 0, 7, pa.Table.from_pylist(rows, GRANTED_RUNS))


class Attempts:
    """What isolation tries: `errors` by the number of the message."""

    def __init__(self, errors):
        self.errors, self.computed, self.tries, self.done = errors, Counter(), 0, Counter()

    def __call__(self, grant):
        numbers = grant.runs["first_seq"].to_pylist()
        self.computed.update(numbers)
        self.tries += 1
        for number in numbers:
            if number in self.errors:
                raise self.errors[number]
        self.done.update(numbers)


def search(count, errors, receives=()):
    attempts, grant = Attempts(errors), grant_of(count, receives)
    first = errors[min(errors)]
    found = Isolation(grant, attempts).search(first)
    return attempts, {one.run["first_seq"][0].as_py(): one.error.message for one in found}


def poison(*numbers):
    return {number: TypeError(f"poison {number}") for number in numbers}


@pytest.mark.parametrize(
    ("count", "culprits"),
    [(1_000, (7, 200)), (1_000, (7, 900)), (1_000, (0,)), (1_000, (999,)), (1_000, (0, 999)), (1_000, (500, 501)),
     (10, (0, 2, 4, 6, 8)), (64, range(0, 64, 2)), (3, (0, 1)), (2, (1,))],
)  # fmt: skip
def test_all_but_the_culprits_are_done_once_and_each_row_is_computed_at_most_log2_times_more(count, culprits):
    attempts, found = search(count, poison(*culprits))
    assert found == {number: f"poison {number}" for number in culprits}
    assert attempts.done == Counter(set(range(count)) - set(culprits))
    assert max(attempts.computed.values()) <= ceil(log2(count)) + 1, "alone as a witness, perhaps"


@pytest.mark.parametrize("count", [3, 10, 1_000, 100_000])
def test_where_everything_fails_alike_it_ends_early(count):
    attempts = Attempts({number: ValueError("no such thing") for number in range(count)})
    with pytest.raises(EverythingFails, match="ValueError: no such thing"):
        Isolation(grant_of(count), attempts).search(ValueError("no such thing"))
    assert attempts.tries <= 3 * ceil(log2(count)) + 5 and not attempts.done


@pytest.mark.parametrize("count", [1, 2])
def test_a_poison_pair_that_is_all_of_a_claim_is_two_culprits_and_a_missing_module_is_none(count):
    assert len(search(count, poison(*range(count)))[1]) == count
    with pytest.raises(EverythingFails, match="No module"):
        search(count, {number: ModuleNotFoundError("No module named 'x'") for number in range(count)})


def test_messages_that_came_before_are_no_witnesses():
    """Ten poison messages that are left of many come again as a claim of their own."""
    assert len(search(10, poison(*range(10)), [(number, 2) for number in range(8)])[1]) == 10
    with pytest.raises(EverythingFails):
        search(10, poison(*range(10)), [(number, 2) for number in range(7)])


def test_messages_that_each_raise_something_else_are_culprits():
    errors = {0: TypeError("a"), 1: ValueError("b"), 2: KeyError("c"), 3: ZeroDivisionError("d")}
    assert len(search(4, errors)[1]) == 4


def test_a_host_that_some_rows_name_is_no_lost_connection():
    errors = {number: ConnectionRefusedError(f"host {number}") for number in (3, 60)}
    attempts, found = search(100, errors)
    assert set(found) == {3, 60} and len(attempts.done) == 98


def test_what_is_not_of_the_rows_ends_the_search():
    with pytest.raises(LeaseLost):
        search(8, {3: TypeError("poison"), 6: LeaseLost("others have it")})


SPARK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/pyspark/worker.py", line 90, in f
    return g(x)
  File "/home/me/orders_work.py", line 12, in number
    raise TypeError("poison")
{0}
"""
JAVA = """An error occurred while calling o251.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/x. SQLSTATE: 58030
\tat org.apache.spark.sql.X.y(X.scala:843)
Caused by: org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'x7' is bad. SQLSTATE: 22018
== SQL (line 1, position 1) ==
cast(body as int) as x
\tat org.apache.spark.sql.errors.Z(Z.scala:1)
\t... 1 more
"""


class Unreadable(Exception):
    """Its text is computed, and that fails."""

    def __str__(self):
        return str(1 / 0)


class Py4JJavaError(Exception):
    """As Py4J's, which needs a JVM."""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Exception(SPARK.format("TypeError: poison\nsecond line")), "TypeError: poison (orders_work.py:12)"),
        (Exception(SPARK.format("mine.errors.NoTotal")), "mine.errors.NoTotal (orders_work.py:12)"),
        (Exception(SPARK.format("KeyError: 'a'") + SPARK.format("ValueError: b")), "ValueError: b (orders_work.py:12)"),
        (Py4JJavaError(JAVA), "SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'x7' is bad."),
        (OSError("full"), "OSError: full"),
        (ValueError("x" * 900), f"ValueError: {'x' * 297}..."),
        (ValueError(), "ValueError"),
        (ValueError("half \ud83d a character"), r"ValueError: half \ud83d a character"),
        (Unreadable(), "Unreadable: its text cannot be read (ZeroDivisionError)"),
        (
            Exception(SPARK.format("") + "  no more"),
            "PythonException: it has no text that could be read (orders_work.py:12)",
        ),
        (
            Exception("Python worker exited unexpectedly (crashed): x\nCaused by: java.io.EOFException"),
            "SparkException: Python worker exited unexpectedly (crashed): "
            "it was killed, ended itself, or had no memory left",
        ),
    ],
)
def test_an_exception_is_told_in_a_line_with_the_users_file_and_line(error, text):
    assert make_row_error(error).text == text
    assert parse_row_error(text) == make_row_error(error)
    written = OutputNotWritten("table", "why")
    written.__cause__ = error
    assert make_row_error(written) == make_row_error(error)


def test_an_exception_of_the_driver_names_the_users_line():
    with pytest.raises(ZeroDivisionError) as raised:
        re.sub("a", lambda match: 1 / 0, "a")
    assert re.fullmatch(
        r"ZeroDivisionError: division by zero \(test_isolation.py:\d+\)", make_row_error(raised.value).text
    )


def culprits_of(errors, receives=()):
    return Isolation(grant_of(len(errors), receives), Attempts(errors)).search(errors[0])


def test_claims_that_are_too_small_to_tell_are_witnesses_together():
    evidence = Evidence()
    for _ in range(2):
        evidence.add(culprits_of(poison(0)), any_succeeded=False)
    with pytest.raises(EverythingFails, match="poison"):
        evidence.add(culprits_of(poison(0)), any_succeeded=False)


@pytest.mark.parametrize("between", ["success", "another error", "messages that came before"])
def test_small_claims_tell_nothing_of_everything_when_something_differs(between):
    evidence = Evidence()
    for _ in range(4):
        if between == "messages that came before":
            evidence.add(culprits_of(poison(0, 1), [(0, 2), (1, 3)]), any_succeeded=False)
            continue
        evidence.add(culprits_of(poison(0)), any_succeeded=False)
        if between == "success":
            evidence.add((), any_succeeded=True)
        else:
            evidence.add(culprits_of({0: KeyError("other")}), any_succeeded=False)


# From here on through Queue.work.


@pytest.fixture
def place(tmp_path, spark):
    place = Place(tmp_path, FrozenClock(), spark=spark)
    dead = place.ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 3}
    place.queue.set_attributes({"VisibilityTimeout": 600, "RedrivePolicy": policy})
    return place


def raising(*bodies, error="TypeError"):
    """A function whose rows raise in Spark's executors, for these bodies."""

    @F.udf("double")
    def number(body):
        if body in bodies:
            raise __builtins__[error](f"poison {body}") if isinstance(__builtins__, dict) else TypeError(body)
        return float(body)

    return lambda messages: messages.select("message_id", number("body").alias("x"))


def failures_of(place):
    return DeltaTable(f"{place.table}_failed").to_pyarrow_table().to_pylist()


def work(place, function, **given):
    said = []
    more = {"failures": f"{place.table}_failed", "until": "once", "report": said.append, **given}
    return place.queue.work(function, place.table, **more), said


def test_two_rows_that_raise_take_no_other_message_with_them(place):
    place.queue.set_attributes({"RedrivePolicy": {"deadLetterTargetArn": "dead", "maxReceiveCount": 2}})
    place.queue.send([str(n) for n in (0, 1, 2, 3, 10)])
    worked, said = work(place, raising("3", "10"))
    assert (worked.claims, worked.messages, worked.failed, worked.lost) == (1, 3, 2, 0), said
    assert len(place.written()) == 3 == sum(place.written().values())
    rows = sorted(failures_of(place), key=lambda row: row["body"])
    assert [(row["body"], row["verdict"], row["receive_count"]) for row in rows] == [
        ("10", "release", 1), ("3", "release", 1)
    ]  # fmt: skip
    assert all(re.fullmatch(rf"TypeError: poison {r['body']} \(test_isolation.py:\d+\)", r["reason"]) for r in rows)
    told = [line for line in said if " failed: TypeError: poison" in line]
    assert len(told) == 2 and all(any(row["message_id"] in line for line in told) for row in rows)
    events = "SELECT reason, messages FROM receipts WHERE event = 'released' ORDER BY reason"
    assert place.ledger.sql(events).to_pylist() == [{"reason": row["reason"], "messages": 1} for row in rows]
    for _ in range(2):
        work(place, raising("3", "10"), maximum_receives=9)
    dead = place.ledger.sql("SELECT reason, messages, example FROM dead_letters ORDER BY reason").to_pylist()
    expected = [{"reason": row["reason"], "messages": 1, "example": row["message_id"]} for row in rows]
    assert dead == expected, "each has its own reason"
    verdicts = sorted((row["receive_count"], row["verdict"]) for row in failures_of(place))
    assert verdicts == [(1, "release")] * 2 + [(2, "dead_letter")] * 2
    assert place.queue.counts().deleted == 3 and place.ledger.queue("dead").counts().visible == 2


@pytest.mark.soak
def test_a_culprit_is_parked_when_it_was_received_often_enough(place):
    place.queue.send([str(n) for n in range(5)])
    for _ in range(2):
        work(place, raising("3"), maximum_receives=2, park=1_000)
    assert sorted((row["receive_count"], row["verdict"]) for row in failures_of(place)) == [(1, "release"), (2, "park")]
    (parked,) = place.ledger.sql("SELECT state, reason, messages, seconds_left FROM in_flight").to_pylist()
    assert (parked["state"], parked["messages"]) == ("parked", 1) and "poison 3" in parked["reason"]
    assert 999 <= parked["seconds_left"] <= 1_000
    assert place.queue.counts().in_flight == 1 and not place.queue.receive(None)


def test_an_exception_on_the_driver_is_isolated_too(place):
    def driver(messages):
        numbers = [1 / int(row["body"]) for row in messages.select("body").collect()]
        return messages.select("message_id", F.lit(len(numbers)).alias("n"))

    place.queue.send([str(n) for n in range(5)])
    worked, said = work(place, driver)
    assert (worked.messages, worked.failed) == (4, 1), said
    (row,) = failures_of(place)
    assert row["body"] == "0" and re.fullmatch(r"ZeroDivisionError: .* \(test_isolation.py:\d+\)", row["reason"])


def test_half_a_character_in_what_a_function_raises_is_kept_as_its_escape(place):
    """It ended the worker before the culprit had failed: the message was received, and ended it, for ever."""

    def driver(messages):
        if any(row["body"] == "bad" for row in messages.select("body").collect()):
            raise ValueError("half \ud83d a \x00 character")
        return messages.select("message_id", F.lit(1).alias("n"))

    place.queue.send(["1", "2", "bad"])
    worked, said = work(place, driver)
    assert (worked.messages, worked.failed) == (2, 1), said
    (row,) = failures_of(place)
    assert row["body"] == "bad" and r"half \ud83d a" in row["reason"]


def test_an_exception_of_the_jvm_is_isolated_too(place):
    place.queue.send([*(str(n) for n in range(6)), "six"])
    worked, said = work(place, lambda m: m.select("message_id", F.col("body").cast("int").alias("n")))
    assert (worked.messages, worked.failed) == (6, 1), said
    (row,) = failures_of(place)
    assert row["body"] == "six" and "[CAST_INVALID_INPUT] The value 'six'" in row["reason"]


#: A missing module is looked for in each part of the claim; the two others are not looked for at all.
ALIKE = [("module", 2), ("column", 9), ("driver", 9)]
ALIKE += [pytest.param(*more, marks=pytest.mark.soak) for more in (("module", 9), ("column", 2), ("driver", 2))]


@pytest.mark.soak_variants("module-2")
@pytest.mark.parametrize(("how", "count"), ALIKE)
def test_where_everything_fails_alike_all_is_given_back_uncounted_and_the_error_ends_the_run(place, count, how):
    @F.udf("double")
    def missing(body):
        import no_such_module

        return no_such_module.number(body)

    functions = {
        "module": lambda m: m.select("message_id", missing("body").alias("x")),
        "column": lambda m: m.select("message_id", "no_such_column"),
        "driver": lambda m: undefined(m),  # noqa: F821
    }
    place.queue.send([str(n) for n in range(count)])
    for _ in range(2):
        said = []
        with pytest.raises(Exception, match=r"no_such_|undefined|Nothing was written") as raised:
            place.queue.work(functions[how], place.table, until="once", report=said.append)
        assert "held as before" not in str(raised.value)
        assert how != "module" or "ModuleNotFoundError: No module named 'no_such_module'" in str(raised.value)
        assert sum("everything fails alike" in line for line in said) == 1
    assert place.queue.counts().visible == count and not place.ledger.queue("dead").counts().visible
    assert {message.receive_count for message in place.queue.receive(None)} == {1}
    told = place.ledger.sql("SELECT reason, messages FROM receipts WHERE event = 'released'").to_pylist()
    assert len({row["reason"] for row in told}) == 1, "reasons group"
    assert [row["messages"] for row in told] == [count] * 2 and len({row["reason"] for row in told}) == 1


@pytest.mark.soak
def test_reasons_and_exceptions_fail_side_by_side(place):
    function = raising("4")

    def reasoned(messages):
        bad = F.when(F.col("body") == "8", "no eight")
        return function(messages).join(messages.select("message_id", bad.alias("reason")), "message_id")

    place.queue.send([str(n) for n in range(9)])
    worked, said = work(place, reasoned, reason="reason")
    assert (worked.messages, worked.failed) == (7, 2), said
    assert sorted(row["reason"].split(" (")[0] for row in failures_of(place)) == ["TypeError: poison 4", "no eight"]


def test_of_one_attempt_a_killed_run_leaves_only_what_is_not_done_yet(place):
    """The parts of a claim are written and acknowledged each for itself, under the claim's own receipt."""
    place.queue.send([str(n) for n in range(8)])
    function, tries = raising("6"), []

    def killed(messages):
        tries.append(1)
        if len(tries) == 4:
            raise KeyboardInterrupt
        return function(messages)

    with pytest.raises(KeyboardInterrupt):
        work(place, killed, attempt_id="task")
    done = place.queue.counts().deleted
    assert 0 < done < 8 and len(place.written()) == done
    worked, _ = work(place, function, attempt_id="task")
    assert worked.messages == 7 - done and len(place.written()) == 7 == sum(place.written().values())


@pytest.mark.soak
def test_claims_of_one_message_each_do_not_park_all_there_is_for_a_broken_function(place):
    @F.udf("double")
    def broken(body):
        return body.no_such_attribute

    place.queue.send([str(n) for n in range(6)])
    function = lambda m: m.select("message_id", broken("body").alias("x"))  # noqa: E731
    with pytest.raises(OutputNotWritten, match="was given back"):
        work(place, function, until="empty", max_messages=1)
    assert sum(row["verdict"] == "park" for row in failures_of(place)) <= 2
    assert place.queue.counts().visible >= 4
