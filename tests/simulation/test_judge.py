"""The judge catches each kind of violation, on histories made by hand; and finds nothing where nothing happened."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ledger.store.delta.model.tables import HEAD
from tests.simulation import patching
from tests.simulation.bad import Bad, instant
from tests.simulation.programs import generate
from tests.simulation.run import Run
from tests.simulation.searching import play
from tests.simulation.shared import Step as Decided
from tests.simulation.worlds import OUTPUTS, WORLDS


@pytest.fixture(autouse=True)
def installed():
    with patching.installed():
        yield


def changed(bad, verb, which, call=None, at=None, **columns):
    """One row of `visibility`, the first that `which` says, gets other values."""

    def change(rows):
        row = next(row for row in rows if row["segment"] != HEAD and which(row))
        row.update(columns)
        return rows

    bad.visibility(verb, change, call, at)


def held(row):
    return row["receipt_id"] and row["visible_at"] and not row["deleted_at"] and not row["moved_to"]


def given_twice(bad):
    changed(bad, "receive", held, visible_at=instant(bad.now + 9_000))
    changed(bad, "receive", held, receipt_id="b" * 32)
    return "while receipt"


def came_back(bad):
    mine = bad.call("delete", error="LeaseLost", receipt="c" * 32)
    changed(bad, "delete", held, mine, receipt_id="c" * 32, deleted_at=instant(bad.now))
    changed(bad, "receive", lambda row: row["deleted_at"], deleted_at=None)
    return "came back by receive"


def deleted_by_its_holder(bad):
    mine = bad.call("delete", error="LeaseLost", receipt="c" * 32)
    changed(bad, "delete", held, mine, receipt_id="c" * 32, deleted_at=instant(bad.now))


def restored_by_another(bad):
    deleted_by_its_holder(bad)
    other = bad.call("restore", error="LeaseLost", receipt="d" * 32)
    changed(bad, "restore", lambda row: row["deleted_at"], other, deleted_at=None)
    return "deleted under receipt cccccc, and restored through receipt dddddd"


def changed_after_deletion(bad):
    deleted_by_its_holder(bad)
    changed(bad, "receive", lambda row: row["deleted_at"], receive_count=9)
    return "changed by receive after it was deleted"


def namesakes(bad):
    bad.commit("queues", lambda rows: [*rows, {**rows[0], "queue": "left-00000000"}], {"verb": "create_queue"})
    return "there are two queues"


def retagged(bad):
    queue = bad.queue("left")
    call = bad.call("settings", "left", id=queue, attributes={"DelaySeconds": "5"})

    def change(rows):
        next(row for row in rows if row["queue"] == queue)["tags"] = [("team", "another")]
        return rows

    bad.commit("queues", change, {"verb": "set_attributes"}, call)
    return f"the tags of {queue} changed"


def stale_worked(bad):
    stale = bad.call("release", receipt="d" * 32)
    changed(bad, "release", held, stale, visible_at=instant(bad.now), released_at=instant(bad.now))
    return "changed by release through receipt dddddd"


def forgotten(bad):
    bad.visibility("settle", lambda rows: [row for row in rows if row["segment"] == HEAD])
    return "vanished, and the message is still there"


def two_heads(bad):
    bad.visibility("receive", lambda rows: rows + [row for row in rows if row["segment"] == HEAD][:1])
    return "has 2 head rows"


def overlapping(bad):
    bad.visibility("receive", lambda rows: rows + [row for row in rows if row["segment"] != HEAD][:1])
    return "is recorded twice"


def two_lanes(bad):
    def change(rows):
        row = next(row for row in rows if row["segment"] != HEAD)
        return [*rows, {**row, "lane": row["lane"] + 1, "first_seq": 77, "last_seq": 77, "bits": None}]

    bad.visibility("redrive", change)
    return "is in lanes"


def two_queues(bad):
    def change(rows):
        row = next(row for row in rows if row["segment"] != HEAD and held(row))
        other = bad.queue("third")
        return [*rows, {**row, "queue": other, "receipt_id": None, "visible_at": None, "origin_queue": row["queue"]}]

    bad.visibility("redrive", change)
    return "is in 2 queues at once"


def no_queue(bad):
    changed(bad, "redrive", lambda row: not row["moved_to"], moved_to=bad.queue("third"))
    return "in no queue any more"


def dropped(bad):
    bad.commit("messages", lambda rows: rows[1:], {"verb": "upkeep"})
    return "was dropped, and is"


def dropped_too_early(bad):
    message = bad.rows("messages")[0]
    is_about = lambda row: (row["segment"], row["first_seq"]) == (message["segment"], message["seq"])  # noqa: E731
    changed(bad, "delete", is_about, receipt_id="e" * 32, deleted_at=instant(bad.now))
    bad.commit("messages", lambda rows: [row for row in rows if row != message], {"verb": "upkeep"})
    return "can restore it"


def stored_twice(bad):
    bad.commit("messages", lambda rows: rows + rows[:1], {"verb": "send"})
    return "is stored twice"


def altered(bad):
    bad.commit("messages", lambda rows: [{**rows[0], "body": "another"}, *rows[1:]], {"verb": "upkeep"})
    return "changed"


def old_clock(bad):
    changed(bad, "lock", lambda row: not row["moved_to"], at=bad.now - 5_000, receive_count=9)
    return "decided by a clock read 5000 ms before"


def no_such_message(bad):
    bad.call("send", "left", ["0" * 36], bodies=["hello"])
    return "not in the table"


def wrong_count(bad):
    bad.call("redrive", "left", 3, destination=None)
    return "answered 3 moved, and 0 were"


def wrong_clock(bad):
    bad.run.schedule = bad.run.schedule._replace(skews=(0,))
    bad.call("receive", "left", error="ClocksDisagree")
    return "no two clocks are further apart"


def bare_error(bad):
    bad.call("receive", "left", error="bare KeyError: 'x'")
    return "ended in bare KeyError"


def held_by_c(bad, milliseconds):
    """Some message is held under a receipt, so long from now on."""
    changed(bad, "receive", held, receipt_id="c" * 32, visible_at=instant(bad.now + milliseconds))


def by_c(row):
    return row["receipt_id"] == "c" * 32


def moved_while_held(bad):
    held_by_c(bad, 9_000)
    changed(bad, "redrive", by_c, moved_to=bad.queue("third"))
    return "moved by redrive while receipt cccccc holds it 9000 ms more"


def taken_while_held(bad):
    held_by_c(bad, 9_000)
    changed(bad, "lock", by_c, visible_at=instant(bad.now + 20_000))
    return "taken by lock from receipt cccccc, which holds it"


def moved_back_without_a_move(bad):
    changed(bad, "redrive", lambda row: row["moved_to"], moved_to=None, enqueued_at=None, origin_queue=None)
    return "moved away, and back by redrive without a move"


def over_hold_extended(bad):
    held_by_c(bad, -1_000)
    changed(bad, "extend", by_c, bad.call("extend", receipt="c" * 32), visible_at=instant(bad.now + 9_000))
    return "a hold that was over changed by extend"


def given_before_its_delay(bad):
    changed(bad, "receive", held, at=1_000, receipt_id="b" * 32)
    return "ms before its delay is over"


def never_came_there(bad):
    def change(rows):
        row = next(row for row in rows if row["segment"] != HEAD and held(row))
        return [*rows, {**row, "queue": bad.queue("third"), "receipt_id": "b" * 32}]

    bad.visibility("receive", change)
    return "received, and it never came to that queue"


def in_another_lane(bad):
    changed(bad, "release", held, lane=99)
    return "to 99"


def another_id(bad):
    message = bad.rows("messages")[0]
    bad.call("send", "left", [f"{message['segment']}{message['seq']:08x}"], bodies=["hello"])
    return f"answered the id of {message['body']!r} for 'hello'"


def wrong_count_of_a_delete(bad):
    bad.call("delete", "left", SimpleNamespace(messages=3), receipt="c" * 32)
    return "answered 3 deleted, and 0 were"


def wrong_count_of_a_receive(bad):
    bad.call("receive", "left", SimpleNamespace(receipt_id="c" * 32, count=2, version=1), attempt=None)
    return "answered 2 messages, and its commit gave 0"


def sent_once_and_there_twice(bad):
    bad.commit("messages", lambda rows: [*rows, {**rows[0], "seq": 500}], {"verb": "send"})
    known = bad.run.storage.tables["messages"]
    known.changes[-1] = replace(known.changes[-1], removed=())
    return "was sent once, and is there 2 times"


def shared_otherwise_than_decided(bad):
    """Two verbs share a commit; neither of them decided what it records."""
    held_by_c(bad, 9_000)
    known = bad.run.storage.tables["visibility"]
    nothing = Decided(None, "receive", [], [])
    known.changes[-1] = replace(known.changes[-1], actor=replace(known.changes[-1].actor, steps=(nothing, nothing)))
    return "is not recorded as it was decided"


FEEDING = [given_twice, came_back, stale_worked, forgotten, two_heads, overlapping, two_lanes, two_queues, no_queue]
FEEDING += [
    dropped,
    dropped_too_early,
    stored_twice,
    altered,
    old_clock,
    no_such_message,
    wrong_count,
    wrong_clock,
    bare_error,
    restored_by_another,
    changed_after_deletion,
    namesakes,
    retagged,
    moved_while_held,
    taken_while_held,
    moved_back_without_a_move,
    over_hold_extended,
    given_before_its_delay,
    never_came_there,
    in_another_lane,
    another_id,
    wrong_count_of_a_delete,
    wrong_count_of_a_receive,
    sent_once_and_there_twice,
    shared_otherwise_than_decided,
]


@pytest.mark.parametrize("spoil", FEEDING)
def test_what_breaks_a_rule_of_standard_queues_is_caught(spoil):
    bad = Bad("feeding")
    expected = spoil(bad)
    assert any(expected in problem for problem in bad.violations()), bad.violations()


def test_clients_that_wait_for_each_other_for_ever_are_told_of(monkeypatch):
    right = Run.play

    def play_stuck(run):
        for client in run.clients:
            client.body = lambda: run.scheduler.wait_for("a turn", lambda: False)
        return right(run)

    monkeypatch.setattr(Run, "play", play_stuck)
    (problem,) = play(generate("by hand@feeding")).problems
    assert problem.startswith("all clients wait for each other: client 0 waits for a turn")


def receive_rows(bad, name, count, numbers):
    """Rows of a receive of the messages with these places in the order of all messages of a FIFO queue."""
    queue = bad.queue(name)
    mine = sorted(bad.rows("messages", queue=queue), key=lambda row: row["sequence_number"])
    common = dict.fromkeys(bad.run.storage.tables["visibility"].schema.names)
    common |= {"queue": queue, "receipt_id": "e" * 32, "receive_count": count, "visible_at": instant(bad.now + 9_000)}
    return [
        {**common, "lane": row["lane"], "segment": row["segment"], "first_seq": row["seq"], "last_seq": row["seq"]}
        for row in (mine[number] for number in numbers)
    ]


def test_a_group_received_out_of_order_is_caught():
    bad = Bad("fifo")
    bad.visibility("receive", lambda rows: rows + receive_rows(bad, "first.fifo", 1, [4]))
    assert any("is received past" in problem for problem in bad.violations())


def test_a_group_in_two_lanes_is_caught():
    bad = Bad("fifo")
    (row,) = receive_rows(bad, "first.fifo", 1, [1])
    bad.visibility("receive", lambda rows: [*rows, {**row, "lane": 1 - row["lane"]}])
    assert any("is in lanes [0, 1]" in problem and "group" in problem for problem in bad.violations())


def test_more_in_flight_than_the_quota_is_caught():
    bad = Bad("quota")
    bad.now += 1
    queue = bad.queue("small")
    common = dict.fromkeys(bad.run.storage.tables["visibility"].schema.names)
    common |= {"queue": queue, "receipt_id": "e" * 32, "receive_count": 1, "visible_at": instant(bad.now + 9_000)}
    new = [
        {**common, "lane": row["lane"], "segment": row["segment"], "first_seq": row["seq"], "last_seq": row["seq"]}
        for row in bad.rows("messages", queue=queue)[:4]
    ]
    bad.visibility("receive", lambda rows: rows + new)
    assert any("4 messages of small" in problem and "quota is 3" in problem for problem in bad.violations())


def test_what_is_sent_twice_within_the_interval_is_caught():
    bad = Bad("fifo")

    def again(rows):
        row = rows[0]
        return [*rows, {**row, "seq": 500, "sequence_number": 1 << 50}]

    known = bad.run.storage.tables["messages"]
    before = len(known.changes)
    bad.commit("messages", again, {"verb": "send"})
    # As an append: nothing was removed.
    known.changes[before] = replace(known.changes[before], removed=())
    assert any("less than 5 minutes apart" in problem for problem in bad.violations())


def test_settings_that_nobody_asked_for_and_those_of_a_namesake_are_caught():
    for identifier, expected in (
        (None, "VisibilityTimeout of"),
        ("once-00000000", "settings of once-00000000 changed"),
    ):
        bad = Bad("anew")
        call = bad.call("settings", "once", id=identifier or bad.queue("once"), attributes={"DelaySeconds": "5"})

        def change(rows, bad=bad):
            row = next(row for row in rows if row["queue"] == bad.queue("once"))
            row["attributes"] = list({**dict(row["attributes"]), "VisibilityTimeout": "7"}.items())
            return rows

        bad.commit("queues", change, {"verb": "set_attributes"}, call)
        assert any(expected in problem for problem in bad.violations()), bad.violations()


def writing(bad, write="f" * 32, **more):
    """Some message of `work` is in flight, and its output being written."""
    message = bad.rows("messages", queue=bad.queue("work"))[0]
    row = dict.fromkeys(bad.run.storage.tables["visibility"].schema.names)
    row |= {name: message[name] for name in ("queue", "lane", "segment")}
    row |= {"first_seq": message["seq"], "last_seq": message["seq"], "receive_count": 1, "receipt_id": "e" * 32}
    row |= {"visible_at": instant(bad.now + 9_000), "writing_to": OUTPUTS[0], "write_id": write, **more}
    bad.visibility("receive", lambda rows: [*rows, row])
    return f"{message['segment']}{message['seq']:08x}"


def test_output_twice_is_caught():
    bad = Bad("outputs")
    identifier = writing(bad)
    bad.output(OUTPUTS[0], "f" * 32, 1, [identifier])
    bad.output(OUTPUTS[1], "a" * 32, 1, [identifier])
    assert any("is in 2 times" in problem for problem in bad.violations())


def test_a_write_that_is_decided_twice_is_caught():
    bad = Bad("outputs")
    identifier = writing(bad)
    bad.output(OUTPUTS[0], "f" * 32, 1, [identifier])
    bad.output(OUTPUTS[0], "f" * 32, 2, [])
    assert any("write ffffff is decided twice" in problem for problem in bad.violations())


def test_an_acknowledgement_without_its_output_is_caught():
    bad = Bad("outputs")
    writing(bad)
    call = bad.call("write", error="LeaseLost", receipt="e" * 32)
    changed(bad, "finish_write", held, call, deleted_at=instant(bad.now))
    assert any("its output is not in" in problem for problem in bad.violations())


def test_output_that_nothing_tells_of_is_caught():
    bad = Bad("outputs")
    identifier = writing(bad)
    bad.output(OUTPUTS[0], "f" * 32, 1, [identifier])
    changed(bad, "receive", held, writing_to=None, write_id=None)
    assert any("says so" in problem for problem in bad.violations())


def test_a_write_that_a_stale_receipt_ends_is_caught():
    bad = Bad("outputs")
    writing(bad)
    bad.output(OUTPUTS[0], "f" * 32, 2, [], bad.call("write", error="LeaseLost", receipt="a" * 32))
    assert any("is fenced off 9000 ms before its lease ends" in problem for problem in bad.violations())


#: Five days, in milliseconds.
AHEAD = 432_000_000


def committed_ahead(owners):
    """What the judge says of commits by clocks that are five days ahead, one of each owner; the first one's is an
    upkeep that has just started."""
    bad = Bad("clocks")
    calls = [
        bad.call("upkeep", ahead=AHEAD),
        *(bad.call("delete", error="LeaseLost", receipt="c" * 32) for _ in owners),
    ]
    for owner, call in zip(owners, calls):

        def change(rows, owner=owner):
            return [*rows, head(bad, len(owner), bad.now + AHEAD)] if owner != "first" else rows

        bad.commit("visibility", change, {"verb": "delete", "at": bad.now + AHEAD, "owner": owner}, call)
    return [problem for problem in bad.violations() if "delete" in problem]


def head(bad, lane, at):
    """The first head row of a lane."""
    row = dict.fromkeys(bad.run.storage.tables["visibility"].schema.names)
    return (
        row
        | {"queue": bad.queue("long"), "lane": lane, "segment": HEAD, "first_seq": -1, "last_seq": -1}
        | {
            "revision": 1,
            "received_at": instant(at),
        }
    )


def test_a_step_of_a_clock_that_another_owner_confirms_is_allowed():
    assert committed_ahead(["first", "other"]) == []


def test_a_step_of_a_clock_that_nobody_else_confirms_is_caught():
    wrong = committed_ahead(["first", "first"])
    assert len(wrong) == 1 and f"is done by a clock that is {AHEAD} ms off" in wrong[0]
    wrong = committed_ahead(["other", "other"])
    assert any("moves the time of lanes [5] into the future" in problem for problem in wrong)


def expired_ahead(owner):
    """What the judge says of an upkeep that lets messages expire by a clock that is five days ahead, behind a commit by
    as wrong a clock of the owner "other"."""
    bad = Bad("clocks")
    ahead = bad.now + AHEAD
    call = bad.call("upkeep", ahead=AHEAD)
    bad.commit("visibility", lambda rows: rows, {"verb": "upkeep", "at": ahead, "owner": "other"}, call)
    noted = {"ExpiredBefore": str(ahead - 60_000)}

    def change(rows):
        return [
            {**row, "attributes": [*row["attributes"], *noted.items()]} if row["queue"] == bad.queue("brief") else row
            for row in rows
        ]

    bad.commit("queues", change, {"verb": "expire", "at": ahead, "owner": owner})
    return [problem for problem in bad.violations() if "expire" in problem and "too late" in problem]


def test_what_is_old_by_two_wrong_clocks_that_agree_may_expire_and_by_one_may_not():
    assert expired_ahead("mine") == []
    assert expired_ahead("other") != []


@pytest.mark.parametrize("world", WORLDS)
def test_where_nothing_happened_nothing_is_wrong(world):
    assert Bad(world).violations() == []
