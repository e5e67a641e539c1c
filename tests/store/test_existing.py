"""The set-based states of a queue's messages are what the rules say of each message, alone."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.rules.visibility import Record, Retention, expires_at, status
from ledger.store.delta.model.message_runs import Runs, positions
from ledger.store.delta.model.tables import SEGMENT_FILES, VISIBILITY
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import STATES, Listing, find_existing_messages, find_states

NOW = 1_000
INSTANTS = st.integers(NOW - 3, NOW + 3)
MAYBE = st.none() | INSTANTS
RECORDS = st.builds(
    Record,
    receipt_id=st.sampled_from([None, "r"]),
    visible_at=MAYBE,
    deleted_at=st.none() | st.none() | INSTANTS,
    moved_to=st.sampled_from([None, None, None, "other-0"]),
    enqueued_at=MAYBE,
)
#: Files: whose they are, how many messages they have, when those were sent and are available; and what is recorded
#: about each message, or nothing.
FILES = st.lists(
    st.tuples(st.sampled_from(["own-0", "far-0", "far-1"]), st.integers(1, 4), INSTANTS, INSTANTS,
              st.lists(st.none() | RECORDS, min_size=4, max_size=4)),
    max_size=5,
)  # fmt: skip
#: What a change of the period noted lies before now.
RETENTIONS = st.builds(Retention, st.integers(1, 4), st.integers(NOW - 4, NOW - 1))


def listing(files):
    """Each file is a segment of its own, in the lane of its number."""
    rows = [
        (queue, number, f"s{number}", count, 0, count - 1, sent, sent, available, available, None, 1)
        for number, (queue, count, sent, available, _) in enumerate(files)
    ]
    columns = zip(*rows) if rows else [[]] * len(SEGMENT_FILES)
    return Listing(None, 1, pa.table([pa.array(c, f.type) for c, f in zip(columns, SEGMENT_FILES)], SEGMENT_FILES))


def recorded(files):
    """Lanes of the queue own-0 where that is recorded; foreign segments came to lane 9 there."""
    lanes = Lanes("own-0", VISIBILITY.empty_table())
    first, code = [], []
    for number, (queue, count, _, _, records) in enumerate(files):
        for seq, record in enumerate(records[:count]):
            if record is not None:
                lane = number if queue == "own-0" else 9
                first.append(int(positions(lanes.register(pa.array([f"s{number}"]), [lane]), [seq])[0]))
                code.append(lanes.code(record))
    sort = np.argsort(np.array(first, dtype=np.int64))
    first, code = np.array(first, dtype=np.int64)[sort], np.array(code, dtype=np.int64)[sort]
    lanes.runs = Runs(first, first, code)
    return lanes


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(FILES, RETENTIONS)
def test_every_message_of_a_queue_is_found_once_in_the_state_that_the_rules_say(files, retention):
    """A queue has what was sent to it, and of other queues' segments what is recorded about them here."""
    lanes = recorded(files)
    runs, pieces = find_existing_messages(lanes, listing(files), NOW, retention.expired(NOW))
    state = find_states(lanes, runs, pieces, NOW, retention.expired(NOW))
    found = {}
    lane, segment, first, last = (column.to_pylist() for column in lanes.to_arrow(pieces))
    for n in range(len(lane)):
        assert segment[n] == runs.segment[int(pieces.query[n])].as_py() and lane[n] == runs.lane[pieces.query[n]]
        for seq in range(first[n], last[n] + 1):
            assert found.setdefault((lane[n], segment[n], seq), STATES[state[n]]) is STATES[state[n]]
    expected = {}
    for number, (queue, count, sent, available, records) in enumerate(files):
        for seq, record in enumerate(records[:count]):
            if record is not None or queue == "own-0":
                known = record or Record()
                place = (number if queue == "own-0" else 9, f"s{number}", seq)
                expected[place] = status(known, available, NOW, expires_at(known, sent, retention))
    assert found == expected
    assert sum(int(n) for n in pieces.lengths) == len(expected), "none twice"
