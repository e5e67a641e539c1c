"""The judge catches what breaks the rules of retention, of the rows of queues, of tasks, and of what holders learn."""

import base64
import json
from types import SimpleNamespace

import pytest

from ledger.results import HandleOutcome
from ledger.store.delta.model.tables import HEAD
from tests.simulation import patching
from tests.simulation.bad import Bad, instant
from tests.simulation.test_judge import changed, held
from tests.simulation.worlds import OUTPUTS


@pytest.fixture(autouse=True)
def installed():
    with patching.installed():
        yield


def own_row(bad, name, **columns):
    """A change of one queue's row; `attributes` and `tags` are laid over those that it has."""

    def change(rows):
        row = next(row for row in rows if row["queue"] == bad.queue(name))
        for column, new in columns.items():
            row[column] = list({**dict(row[column] or []), **new}.items())
        return rows

    return change


def retained(bad, period, at=None):
    bad.commit(
        "queues",
        own_row(bad, "brief", attributes={"MessageRetentionPeriod": period}),
        {"verb": "set_attributes", "at": bad.now if at is None else at},
    )


def of_brief(row):
    return row["queue"].startswith("brief-")


def receives(bad, name, at=None, **columns):
    """Somebody is given the oldest message of a queue."""
    message = min(bad.rows("messages", queue=bad.queue(name)), key=lambda row: row["sent_at"])
    row = dict.fromkeys(bad.run.storage.tables["visibility"].schema.names)
    row |= {column: message[column] for column in ("queue", "lane", "segment")}
    row |= {"first_seq": message["seq"], "last_seq": message["seq"], "receive_count": 1, "receipt_id": "e" * 32}
    row |= {"visible_at": instant(bad.now + 9_000), **columns}
    bad.visibility(columns.pop("verb", "receive"), lambda rows: [*rows, row], None, at)
    return message


def given_expired(bad):
    receives(bad, "brief")
    return "is given by receive, and had expired"


def given_after_it_came_back(bad):
    retained(bad, "300")
    receives(bad, "brief")
    return "is given by receive, and had expired"


def moved_expired(bad):
    receives(bad, "brief", receipt_id=None, visible_at=None, moved_to=bad.queue("dead"))
    return "is moved by receive, and had expired"


def restored_expired(bad):
    receives(bad, "brief", at=bad.now - 90_000, deleted_at=instant(bad.now - 80_000))
    mine = bad.call("restore", "brief", error="LeaseLost", receipt="e" * 32)
    changed(bad, "restore", lambda row: row["deleted_at"], mine, deleted_at=None, receipt_id=None, visible_at=None)
    return "is restored by restore, and had expired"


def dropped_before_it_expired(bad):
    message = bad.rows("messages", queue=bad.queue("long"))[0]
    row = dict.fromkeys(bad.run.storage.tables["visibility"].schema.names)
    row |= {column: message[column] for column in ("queue", "lane", "segment")}
    row |= {"first_seq": message["seq"], "last_seq": message["seq"], "receive_count": 0}
    bad.visibility("upkeep", lambda rows: [*rows, {**row, "deleted_at": instant(bad.now - 30_000)}])
    return "too late to have expired"


def noted_too_early(bad):
    noted = {"ExpiredBefore": str(bad.now - 60_000)}
    bad.commit("queues", own_row(bad, "brief", attributes=noted), {"verb": "expire", "at": bad.now})
    return "too late for it"


RETENTION = [given_expired, given_after_it_came_back, moved_expired, restored_expired]
RETENTION += [dropped_before_it_expired, noted_too_early]


@pytest.mark.parametrize("spoil", RETENTION)
def test_what_breaks_a_rule_of_retention_is_caught(spoil):
    bad = Bad("retention")
    expected = spoil(bad)
    assert any(expected in problem for problem in bad.violations()), bad.violations()


def tagged_beside(bad):
    call = bad.call("tag", "once", id=bad.queue("once"), tags={"team": "a"})
    bad.commit("queues", own_row(bad, "once", tags={"team": "a", "cost": "b"}), {"verb": "set_attributes"}, call)
    return "unasked"


def tagged_namesake(bad):
    call = bad.call("untag", "once", id="once-00000000", tags={"cost": None})
    bad.commit("queues", own_row(bad, "once", tags={"cost": "another"}), {"verb": "set_attributes"}, call)
    return "settings of once-00000000 changed once-"


def tag_lost(bad):
    bad.call("tag", "once", id=bad.queue("once"), tags={"team": "a"})
    return "answered, and at no time"


def permission_lost(bad):
    policy = {"Policy": '{"Statement": [{"Sid": "write"}]}'}
    call = bad.call("permit", "once", id=bad.queue("once"), labels={"write": True})
    bad.commit("queues", own_row(bad, "once", attributes=policy), {"verb": "set_attributes"}, call)
    return "the permissions ['read', 'write'] of once-"


def refused_for_nothing(bad):
    bad.call("forbid", "once", error="InvalidParameterValue", id=bad.queue("once"), labels={"read": False})
    return "refused, and the label read was there all the time"


@pytest.mark.parametrize("spoil", [tagged_beside, tagged_namesake, tag_lost, permission_lost, refused_for_nothing])
def test_what_breaks_a_rule_of_tags_and_permissions_is_caught(spoil):
    bad = Bad("named")
    expected = spoil(bad)
    assert any(expected in problem for problem in bad.violations()), bad.violations()


def tasks(bad, *changes, call=None):
    """Tasks of the dead-letter queue as a commit leaves them; each as what differs from one that runs."""
    common = dict.fromkeys(bad.run.storage.tables["tasks"].schema.names)
    common |= {"source": bad.queue("dead"), "status": "RUNNING", "to_move": 8, "moved": 0, "revision": 1}
    common |= {"started_at": instant(bad.now), "updated_at": instant(bad.now)}
    bad.commit("tasks", lambda rows: [{**common, **one} for one in changes], {"verb": "move_task"}, call)


FIRST, SECOND = {"task": "a" * 32}, {"task": "b" * 32}


def two_at_once(bad):
    tasks(bad, FIRST, SECOND)
    return "2 tasks run on"


def runs_again(bad):
    tasks(bad, {**FIRST, "status": "CANCELLED"})
    tasks(bad, FIRST)
    return "was CANCELLED, and is RUNNING"


def vanishes(bad):
    tasks(bad, FIRST)
    tasks(bad)
    return "the task aaaaaa vanished"


def counts_back(bad):
    tasks(bad, {**FIRST, "moved": 2})
    tasks(bad, {**FIRST, "moved": 1})
    return "had moved 2, and has 1"


def counts_too_many(bad):
    tasks(bad, {**FIRST, "moved": 2, "status": "COMPLETED"})
    return "say that they moved 2 messages, and it were 0"


def counts_too_few(bad):
    tasks(bad, FIRST)
    moved_by(bad, bad.call("step", "dead"))
    return "say that they moved 0 messages, and it were 4"


def moves_without(bad):
    moved_by(bad, bad.call("step", "dead"))
    return "and no task was running there"


def moved_by(bad, call):
    def change(rows):
        row = next(row for row in rows if row["queue"] == bad.queue("dead") and row["segment"] != HEAD)
        row["moved_to"] = bad.queue("left")
        return rows

    metadata = {"verb": "redrive", "at": bad.now, "queue": bad.queue("dead")}
    bad.commit("visibility", change, metadata, call)


def cancelled_in_words(bad):
    tasks(bad, FIRST)
    said = base64.b64encode(json.dumps({"taskId": "a" * 32, "sourceArn": "arn:aws:sqs:here:1:dead"}).encode())
    bad.call("cancel_task", "dead", 0, handle=said.decode())
    return "answered that the task is cancelled, and it is RUNNING"


def started_in_words(bad):
    said = base64.b64encode(json.dumps({"taskId": "c" * 32, "sourceArn": "arn:aws:sqs:here:1:dead"}).encode())
    bad.call("start_task", "dead", said.decode())
    return "answered a task that is not in the table"


TASKS = [two_at_once, runs_again, vanishes, counts_back, counts_too_many, counts_too_few, moves_without]


@pytest.mark.parametrize("spoil", [*TASKS, cancelled_in_words, started_in_words])
def test_what_breaks_a_rule_of_move_tasks_is_caught(spoil):
    bad = Bad("tasks")
    expected = spoil(bad)
    assert any(expected in problem for problem in bad.violations()), bad.violations()


def gone(bad, name):
    identifier = bad.queue(name)
    bad.commit("queues", lambda rows: [row for row in rows if row["name"] != name], {"verb": "delete_queue"})
    return identifier


def test_what_a_receive_is_given_of_a_queue_that_was_deleted_before_is_caught():
    bad = Bad("waiting")
    gone(bad, "small")
    bad.looked = 5
    receives_of_gone(bad)
    assert any("is given, and its queue was deleted before" in problem for problem in bad.violations())


def receives_of_gone(bad):
    message = bad.rows("messages")[0]
    row = dict.fromkeys(bad.run.storage.tables["visibility"].schema.names)
    row |= {column: message[column] for column in ("queue", "lane", "segment")}
    row |= {"first_seq": message["seq"], "last_seq": message["seq"], "receive_count": 1, "receipt_id": "e" * 32}
    bad.visibility("receive", lambda rows: [*rows, {**row, "visible_at": instant(bad.now + 9_000)}])


def test_a_receive_that_answers_although_its_queue_was_deleted_is_caught():
    bad = Bad("waiting")
    bad.call("receive", "once", id=gone(bad, "once"), attempt=None).looked = 5
    assert any("answered, and its queue was deleted before" in problem for problem in bad.violations())


@pytest.mark.parametrize(
    ("verb", "error", "ends", "expected"),
    [
        ("beat", "LeaseLost", 9_000, "some of it is held for 9000 ms more"),
        ("check", "LeaseLost", 9_000, "some of it is held for 9000 ms more"),
        ("beat", None, -9_000, "nothing of it was held for the last 9000 ms"),
        ("check", None, -9_000, "nothing of it was held for the last 9000 ms"),
        ("check", None, 9_000, None),
        ("beat", "LeaseLost", -9_000, None),
    ],
)
def test_what_a_look_at_a_claim_says_wrongly_is_caught(verb, error, ends, expected):
    bad = Bad("handles")
    message = receives(bad, "work", visible_at=instant(bad.now + ends))
    keys = [(message["segment"], message["seq"])]
    call = bad.call(verb, "work", error=error, receipt="e" * 32, keys=keys)
    call.began, call.ended, call.clocks = 5, 6, (bad.now, bad.now)
    said = [problem for problem in bad.violations() if "it says" in problem]
    assert any(expected in problem for problem in said) if expected else not said


def test_a_heartbeat_that_ends_a_hold_earlier_is_caught():
    bad = Bad("handles")
    receives(bad, "work", visible_at=instant(bad.now + 60_000))
    beat = bad.call("beat", "work", receipt="e" * 32, keys=[])
    changed(bad, "extend", held, beat, visible_at=instant(bad.now + 9_000))
    assert any("a heartbeat ends its hold 51000 ms earlier" in problem for problem in bad.violations())


def test_lists_of_handles_and_several_receives_that_are_answered_wrongly_are_caught():
    bad = Bad("handles")
    keys = [("a" * 28, 0)]
    bad.call("delete_many", "work", [HandleOutcome("handle", "deleted")], receipts={"e" * 32}, keys=keys)
    claims = [SimpleNamespace(receipt_id=letter * 32, version=n, count=1) for n, letter in enumerate("ef")]
    bad.call("receive_many", "work", claims, requests=[(1, 5), (1, 5)])
    about = {"receipt": "e" * 32, "attempt": None, "ids": [], "table": OUTPUTS[0], "failed": keys}
    bad.call("write", "work", SimpleNamespace(failed=1), **about)
    said = "\n".join(bad.violations())
    for expected in (
        "answered that it changed",
        "under one of its receipts",
        "several versions",
        "1 given back, and 0",
    ):
        assert expected in said
