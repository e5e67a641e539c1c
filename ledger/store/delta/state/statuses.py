"""The messages that a queue has, wherever their bodies lie, cut to what is recorded about them; and their states."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.rules.state import GONE, Status, status
from ledger.store.delta.model.run_algebra import ABSENT, Pieces, positions
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import FileRuns, Listing

STATES = list(Status)
INDEX = {state: index for index, state in enumerate(STATES)}
GONE_STATES = [INDEX[state] for state in GONE]


def existing_messages(lanes: Lanes, listing: Listing, now: int, expired: int) -> tuple[FileRuns, Pieces]:
    """Every message of the queue as pieces, each with the code of what is recorded about it; `query` counts the
    runs of files. Dead letters are records about segments of other queues: of those, only what is recorded counts.

    No piece has both messages that came by the instant `expired` and later ones, nor delayed ones at `now` and others.
    """
    own = listing.of(lanes.queue, now, expired)
    known = set(own.segment.unique().to_pylist()) if lanes.segments else set()
    foreign = [name for name in lanes.segments if name not in known]
    files = own
    for queue, names in listing.homes(foreign).items():
        there = listing.of(queue, now, expired)
        lent = there.take(pc.is_in(there.segment, pa.array(names)).to_numpy(zero_copy_only=False))
        lane = np.array([lanes.lane_of_segment(name) for name in lent.segment.to_pylist()], dtype=np.int64)
        files = files.joined(lent, lane)
    number = lanes.register(files.segment, files.lane)
    pieces = lanes.runs.cut(positions(number, files.first_seq), positions(number, files.last_seq))
    return files, pieces.where((pieces.query < len(own.lane)) | (pieces.code != ABSENT))


def arrived_at(lanes: Lanes, files: FileRuns, pieces: Pieces) -> np.ndarray:
    """When the messages of each piece came to the queue: the twin of `rules.state.arrived_at`."""
    moved_in = lanes.per_code(pieces.code, lambda r: -1 if r.enqueued_at is None else r.enqueued_at, np.int64)
    return np.where(moved_in < 0, files.sent_at[pieces.query], moved_in)


def states(lanes: Lanes, files: FileRuns, pieces: Pieces, now: int, expired: int) -> np.ndarray:
    """Each piece's state as an index into STATES: the rules, once per distinct record and not per message."""
    state = lanes.per_code(pieces.code, lambda r: INDEX[status(r, 0, now)], np.int64)
    there = (state != INDEX[Status.DELETED]) & (state != INDEX[Status.MOVED])
    run_out = there & (arrived_at(lanes, files, pieces) <= expired)
    delayed = (state == INDEX[Status.VISIBLE]) & (files.available_at[pieces.query] > now)
    return np.where(run_out, INDEX[Status.EXPIRED], np.where(delayed, INDEX[Status.DELAYED], state))
