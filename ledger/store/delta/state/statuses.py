"""The messages that a queue has, wherever their bodies lie, cut to what is recorded about them; and their states.

Messages of a claim that have no row in `messages` are told from the log, without reading data files.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.rules.state import GONE, Status
from ledger.store.delta.model.run_algebra import ABSENT, Pieces, Runs, positions
from ledger.store.delta.state.lane_records import Lanes
from ledger.store.delta.state.listing import FileRuns, Listing
from ledger.store.delta.state.records import Records
from ledger.store.protocol import RUNS

STATES = list(Status)
INDEX = {state: index for index, state in enumerate(STATES)}
GONE_STATES = [INDEX[state] for state in GONE]


class PlacedRuns(NamedTuple):
    """The runs of the files that a queue's messages lie in, of which the first `own` were sent to the queue, and where
    they begin and end on the axis."""

    files: FileRuns
    own: int
    first: np.ndarray
    last: np.ndarray

    def messages(self, lanes: Lanes) -> Pieces:
        """See `existing_messages`."""
        pieces = lanes.runs.cut(self.first, self.last)
        return pieces.where((pieces.query < self.own) | (pieces.code != ABSENT))


def existing_messages(lanes: Lanes, listing: Listing, now: int, expired: int) -> tuple[FileRuns, Pieces]:
    """Every message of the queue as pieces, each with the code of what is recorded about it; `query` counts the
    runs of files. Dead letters are records about segments of other queues: of those, only what is recorded counts.

    No piece has both messages that came by the instant `expired` and later ones, nor delayed ones at `now` and others.
    """
    placed = placed_files(lanes, listing, now, expired)
    return placed.files, placed.messages(lanes)


def placed_files(lanes: Lanes, listing: Listing, now: int, *borders: int) -> PlacedRuns:
    """What `existing_messages` cuts: the same as long as no other segments are met in the lanes. `borders`: as of
    `Listing.of`."""
    own = listing.of(lanes.queue, now, *borders)
    known = set(own.segment.unique().to_pylist()) if lanes.segments else set()
    foreign = [name for name in lanes.segments if name not in known]
    files = own
    for queue, names in listing.homes(foreign).items():
        there = listing.of(queue, now, *borders)
        lent = there.take(pc.is_in(there.segment, pa.array(names)).to_numpy(zero_copy_only=False))
        lane = np.array([lanes.lane_of_segment(name) for name in lent.segment.to_pylist()], dtype=np.int64)
        files = files.joined(lent, lane)
    number = lanes.register(files.segment, files.lane)
    return PlacedRuns(files, len(own.lane), positions(number, files.first_seq), positions(number, files.last_seq))


def kept_from(lanes: Lanes, files: FileRuns, pieces: Pieces) -> np.ndarray:
    """From when the messages of each piece are kept: the twin of what `rules.state.expires_at` counts from."""
    # -1 where nothing is recorded.
    moved_in = lanes.records.numbers("enqueued_at")[pieces.code - ABSENT]
    kept: np.ndarray = np.maximum(moved_in, files.sent_at[pieces.query])
    return kept


def states(lanes: Lanes, files: FileRuns, pieces: Pieces, now: int, expired: int) -> np.ndarray:
    """Each piece's state as an index into STATES: the rules, once per distinct record and not per message."""
    state = recorded_states(lanes.records, now)[pieces.code - ABSENT]
    there = (state != INDEX[Status.DELETED]) & (state != INDEX[Status.MOVED])
    run_out = there & (kept_from(lanes, files, pieces) <= expired)
    delayed = (state == INDEX[Status.VISIBLE]) & (files.available_at[pieces.query] > now)
    return np.where(run_out, INDEX[Status.EXPIRED], np.where(delayed, INDEX[Status.DELAYED], state))


def recorded_states(records: Records, now: int) -> np.ndarray:
    """Twin of `rules.state.status` without a delay or an end, of all records by their codes: indices into STATES."""
    held = records.numbers("visible_at") > now
    in_flight = np.where(records.is_there("receipt_id"), INDEX[Status.IN_FLIGHT], INDEX[Status.LOCKED])
    there = np.where(held, in_flight, INDEX[Status.VISIBLE])
    left = np.where(records.is_there("moved_to"), INDEX[Status.MOVED], there)
    return np.where(records.is_there("deleted_at"), INDEX[Status.DELETED], left)


#: What places messages; the lane is none of it.
PLACES = [name for name in RUNS.names if name != "lane"]


def missing_of(listing: Listing, runs: pa.Table) -> pa.Table:
    """Return those messages of some runs (RUNS and more columns) that no file of the listing has, as RUNS.

    Only segments with gaps between the ordinals of a file are read. Of all others the log tells enough.
    """
    return outside(runs, listing.ordinals(runs["segment"].unique()))


def outside(runs: pa.Table, there: pa.Table) -> pa.Table:
    """Return the messages of some runs that are in none of the runs `there`, as RUNS. Either may have the columns in
    any order, and overlap."""
    names = pc.unique(pa.chunked_array([*runs["segment"].chunks, *there["segment"].chunks], pa.string()))
    known, asked = _united(_on_axis(there, names)), _on_axis(runs, names)
    pieces = known.cut(asked.first, asked.last)
    left = pieces.where(pieces.code == ABSENT)
    rows = runs.select(RUNS.names).take(pa.array(left.query))
    ordinals = [pa.array(left.first_seq), pa.array(left.first_seq + left.lengths - 1)]
    return pa.table([rows["lane"], rows["segment"], *ordinals], schema=RUNS)


def _on_axis(runs: pa.Table, names: pa.Array) -> Runs:
    segment = pc.index_in(runs["segment"], names).to_numpy().astype(np.int64)
    return Runs.from_arrow(runs, segment, np.zeros(runs.num_rows, dtype=np.int64))


def _united(runs: Runs) -> Runs:
    """Return the same places without overlap, in order."""
    ordered = runs.where(np.argsort(runs.first, kind="stable"))
    last = np.maximum.accumulate(ordered.last) if len(ordered) else ordered.last
    first = ordered.first.copy()
    first[1:] = np.maximum(first[1:], last[:-1] + 1)
    return Runs(first, last, ordered.code).where(first <= last).joined()
