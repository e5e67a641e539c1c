"""A queue's messages as pieces with one record each, and their states.

A piece is a part of a file's run whose messages share a record, or have none (see `run_algebra`). Messages that were
moved to the queue stay in segments of the queues that they were sent to.
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
    """The runs of the files that have a queue's messages, and their places on the lanes' axis.

    The first `own` runs were sent to the queue itself.
    """

    files: FileRuns
    own: int
    first: np.ndarray
    last: np.ndarray

    def messages(self, lanes: Lanes) -> Pieces:
        pieces = lanes.runs.cut(self.first, self.last)
        return pieces.where((pieces.query < self.own) | (pieces.code != ABSENT))


def existing_messages(lanes: Lanes, listing: Listing, now: int, expired: int) -> tuple[FileRuns, Pieces]:
    """Return every message of the queue as pieces, each with its record's code and, as `query`, its run's number.

    Messages of other queues' segments count only if they have a record in this queue. `now` and `expired` are the
    borders of `Listing.of`.
    """
    placed = placed_files(lanes, listing, now, expired)
    return placed.files, placed.messages(lanes)


def placed_files(lanes: Lanes, listing: Listing, now: int, *borders: int) -> PlacedRuns:
    """Return the runs that `existing_messages` cuts, and register their segments in `lanes`.

    The result stays valid until the lanes register another segment.
    """
    own = listing.of(lanes.queue, now, *borders)
    own_segments = set(own.segment.unique().to_pylist()) if lanes.segments else set()
    foreign = [name for name in lanes.segments if name not in own_segments]
    files = own
    for queue, names in listing.homes(foreign).items():
        files_of_home = listing.of(queue, now, *borders)
        lent = files_of_home.take(pc.is_in(files_of_home.segment, pa.array(names)).to_numpy(zero_copy_only=False))
        lane = np.array([lanes.lane_of_segment(name) for name in lent.segment.to_pylist()], dtype=np.int64)
        files = files.joined(lent, lane)
    number = lanes.register(files.segment, files.lane)
    return PlacedRuns(files, len(own.lane), positions(number, files.first_seq), positions(number, files.last_seq))


def kept_from(lanes: Lanes, files: FileRuns, pieces: Pieces) -> np.ndarray:
    """Return the instant from which each piece's retention counts."""
    moved_in = lanes.records.numbers("enqueued_at")[pieces.code - ABSENT]
    kept: np.ndarray = np.maximum(moved_in, files.sent_at[pieces.query])
    return kept


def states(lanes: Lanes, files: FileRuns, pieces: Pieces, now: int, expired: int) -> np.ndarray:
    state = recorded_states(lanes.records, now)[pieces.code - ABSENT]
    is_present = (state != INDEX[Status.DELETED]) & (state != INDEX[Status.MOVED])
    run_out = is_present & (kept_from(lanes, files, pieces) <= expired)
    delayed = (state == INDEX[Status.VISIBLE]) & (files.available_at[pieces.query] > now)
    return np.where(run_out, INDEX[Status.EXPIRED], np.where(delayed, INDEX[Status.DELAYED], state))


def recorded_states(records: Records, now: int) -> np.ndarray:
    """Return the states of all records by code, as indices into STATES.

    The twin of `rules.state.status`, for messages without a delay or an expiry.
    """
    held = records.numbers("visible_at") > now
    in_flight = np.where(records.is_there("receipt_id"), INDEX[Status.IN_FLIGHT], INDEX[Status.LOCKED])
    present = np.where(held, in_flight, INDEX[Status.VISIBLE])
    undeleted = np.where(records.is_there("moved_to"), INDEX[Status.MOVED], present)
    return np.where(records.is_there("deleted_at"), INDEX[Status.DELETED], undeleted)


def missing_of(listing: Listing, runs: pa.Table) -> pa.Table:
    """Return those of some messages (RUNS and more columns) that no file of the listing has, as RUNS."""
    return outside(runs, listing.ordinals(runs["segment"].unique()))


def outside(runs: pa.Table, existing: pa.Table) -> pa.Table:
    """Return the messages of `runs` that are in none of `existing`, as RUNS."""
    names = pc.unique(pa.chunked_array([*runs["segment"].chunks, *existing["segment"].chunks], pa.string()))
    covered, queries = _united(_on_axis(existing, names)), _on_axis(runs, names)
    pieces = covered.cut(queries.first, queries.last)
    uncovered = pieces.where(pieces.code == ABSENT)
    rows = runs.select(RUNS.names).take(pa.array(uncovered.query))
    ordinals = [pa.array(uncovered.first_seq), pa.array(uncovered.first_seq + uncovered.lengths - 1)]
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
