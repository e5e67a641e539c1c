"""A segment has one writer: where it is there twice, by a fork or a snapshot of a machine, one of the two goes on."""

import copy
import json
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from ledger.delta_log.data_files import FileStatistics
from ledger.store.delta.engine import SegmentEnd, SegmentTaken
from ledger.store.delta.model.tables import TABLES
from tests.delta.commit.test_engines import QUEUE, SEGMENT
from tests.delta.verbs.test_small_sends import append

#: A process that opens a ledger at module level, sends, and forks; both of it send on.
FORKING = """
import os, sys
from ledger import Ledger
name = sys.argv[2]
fifo = {"FifoQueue": True, "ContentBasedDeduplication": True} if name.endswith(".fifo") else {}
queue = Ledger.open(sys.argv[1]).create_queue(name, {"Lanes": 2, **fifo})

def send(body):
    assert queue.send(body, **({"message_group_id": "g"} if fifo else {}))

send("before")
send("and before")
for turn in range(3):
    child = os.fork()
    who = f"parent {turn}" if child else f"child {turn}"
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for n in range(4):
        send(f"{who}, send {n}")
    if not child:
        os._exit(0)
"""
READING = """
import sys
from ledger import Ledger
ledger = Ledger.open(sys.argv[1])
ledger.upkeep()
bodies = [message.body for message in ledger.queue(sys.argv[2]).receive(None).messages()]
assert len(bodies) == len(set(bodies)), "received twice"
print(len(bodies))
"""


def run(script, *arguments):
    found = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize("name", ["work", "work.fifo"])
def test_what_a_parent_and_its_forked_children_send_is_received_once(root, name):
    run(FORKING, root, name)
    assert run(READING, root, name).strip() == str(2 + 3 * 8)


def test_a_machine_that_is_resumed_twice_writes_no_segment_twice(open_ledger):
    """The two of it know the same of the log, and of its writer."""
    ledger = open_ledger()
    queue = ledger.create_queue("work", {"Lanes": 1})
    queue.send("before")
    twin = open_ledger()
    twin.store._sends._sender._segments = copy.deepcopy(ledger.store._sends._sender._segments)
    ids = [str(sender.queue("work").send(f"{n}")[0]) for n in range(6) for sender in (ledger, twin)]
    assert len(set(ids)) == len(ids)
    received = queue.receive(None).messages()
    assert sorted(m.message_id for m in received if m.body != "before") == sorted(ids)


def test_an_append_commits_only_where_the_segment_ends_as_its_writer_knows_it(engine_of):
    one, other = engine_of("delta-rs"), engine_of("delta-rs")
    new, first = end(None), end(0)
    append(one, 0, ends=[new])
    append(one, 1, ends=[first])
    for wrong in (new, first):
        with pytest.raises(SegmentTaken, match=r"ends at 1, and this writer left it at (None|0)"):
            append(other, 2, ends=[wrong])
    append(other, 2, ends=[end(1)])


def test_joined_files_end_where_they_ended(engine_of):
    from ledger.store.delta.model.tables import Where

    one, other = engine_of("delta-rs"), engine_of("delta-rs")
    for first in range(4):
        append(one, first, ends=[end(first - 1 if first else None)])
    assert other.compact(Where(QUEUE.id, (0,), (SEGMENT,)))
    append(one, 4, ends=[end(3)])


def test_of_files_without_statistics_nobody_knows_where_they_end():
    told = {
        "path": "a",
        "partitionValues": {"queue": "q", "lane": "0", "segment": "s"},
        "size": 1,
        "stats": '{"numRecords": 1}',
    }
    known = {**told, "path": "b", "stats": '{"numRecords": 1, "minValues": {"seq": 0}, "maxValues": {"seq": 0}}'}
    nothing = FileStatistics.listed(pa_nothing(), TABLES["messages"])
    assert nothing.after([known], []).find_last_ordinal("s") == 0
    assert nothing.after([known, told], []).find_last_ordinal("s") is None


def test_the_end_of_a_segment_is_the_same_however_many_commits_it_is_carried_over():
    """The files of small sends become rows of a table late; a join takes them out again, and adds one of them all."""

    def file(path, segment, first, last):
        stats = {"numRecords": last - first + 1, "minValues": {"seq": first}, "maxValues": {"seq": last}}
        values = {"queue": "q", "lane": "0", "segment": segment}
        return {"path": path, "partitionValues": values, "size": 1, "stats": json.dumps(stats)}

    following = FileStatistics.listed(pa_nothing(), TABLES["messages"])
    for number in range(3 * FileStatistics.MOST_ADDED):
        following = following.after([file(f"{number}", f"s{number % 20}", number, number)], [])
        assert following.find_last_ordinal(f"s{number % 20}") == number
        assert following.find_last_ordinal("s0") == number // 20 * 20
    listed = following.table.add_column(0, "path", pa.array([""] * following.table.num_rows))
    added = FileStatistics(TABLES["messages"], listed)
    assert len(following.table) == 3 * FileStatistics.MOST_ADDED
    last = {f"s{number}": following.find_last_ordinal(f"s{number}") for number in range(20)}
    assert last == {segment: added.find_last_ordinal(segment) for segment in last}
    gone = [f"{number}" for number in range(0, 3 * FileStatistics.MOST_ADDED, 20)]
    joined = following.after([file("joined", "s0", 0, 7)], gone)
    assert joined.find_last_ordinal("s0") == 7
    assert joined.after([file("next", "s0", 8, 9)], []).find_last_ordinal("s0") == 9
    assert following.find_last_ordinal("s0") == last["s0"]


def test_threads_that_send_much_at_once_extend_no_segment_together(open_ledger):
    queue = open_ledger().create_queue("work", {"Lanes": 1})
    ids, errors = [], []

    def send(who):
        try:
            for n in range(4):
                ids.extend(map(str, queue.send([f"{who} {n} {m}" for m in range(120)])))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(set(ids)) == 4 * 4 * 120
    assert queue.counts().visible == 4 * 4 * 120


def test_where_nobody_can_tell_where_a_segment_ends_each_send_has_its_own(open_ledger, root):
    """A table that somebody has altered is appended to by an engine's query, which looks at no segment."""
    from deltalake import DeltaTable, Field

    queue = open_ledger().create_queue("work", {"Lanes": 1})
    queue.send("before")
    DeltaTable(f"{root}/messages").alter.add_columns([Field("note", "string")])
    other = open_ledger().queue("work")
    ids = [str(sender.send(f"{n}")[0]) for n in range(3) for sender in (queue, other)]
    assert len({identifier[:28] for identifier in ids}) == len(ids)
    assert queue.counts().visible == 7


def pa_nothing():
    return pa.table({"path": pa.array([], pa.string())})


def end(last):
    return SegmentEnd(QUEUE.id, 0, SEGMENT, last)
