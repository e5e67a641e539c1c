"""The messages that each queue has, as runs of ordinals, and their states.

An ordinal is a message's place in its segment: the column `seq`. The runs come from the log of `messages`. Files are
read only where the log does not show enough.

A piece is a part of a file's run whose messages share a record, or have none (see `message_runs`). Messages that were
moved to a queue stay in segments of the queues that they were sent to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledger.delta_log.rewrite import list_distinct_rows
from ledger.delta_log.statements import to_milliseconds
from ledger.rules.visibility import GONE, Status
from ledger.store.delta.engine import MessageFiles
from ledger.store.delta.model.message_runs import ABSENT, SEGMENT_SHIFT, Pieces, Runs, positions
from ledger.store.delta.model.tables import Where, sort_distinct
from ledger.store.delta.state.lane_records import Lanes, Records
from ledger.store.protocol import RUNS

COLUMNS = ["lane", "segment", "first_seq", "last_seq", "sent_at", "available_at"]
ORDINALS = ["segment", "first_seq", "last_seq"]


@dataclass(frozen=True)
class FileRuns:
    """The messages of one queue as runs of ordinals. Instants are in milliseconds.

    A run that the log shows is one file, with the earliest `sent_at` and the latest `available_at` of its messages. In
    a run that was read from files, all messages share both instants.
    """

    lane: np.ndarray
    segment: pa.Array
    first_seq: np.ndarray
    last_seq: np.ndarray
    sent_at: np.ndarray
    available_at: np.ndarray

    def take(self, chosen: np.ndarray) -> FileRuns:
        return FileRuns(
            self.lane[chosen],
            self.segment.filter(pa.array(chosen)),
            *(getattr(self, name)[chosen] for name in COLUMNS[2:]),
        )

    def joined(self, other: FileRuns, lane: np.ndarray) -> FileRuns:
        """Return these runs, followed by those of `other` with the lanes `lane`."""
        numbers = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in COLUMNS[2:])
        return FileRuns(np.concatenate([self.lane, lane]), pa.concat_arrays([self.segment, other.segment]), *numbers)


class Listings:
    def __init__(self, engine: MessageFiles) -> None:
        self._engine = engine
        self._kept: Listing | None = None

    def newest(self) -> Listing:
        kept = self._kept
        version = self._engine.version("messages")
        if kept is None or (kept.version, kept.generation) != (version, self._engine.generation()):
            # If the table is replaced after this read, the next call makes a new listing.
            generation = self._engine.generation()
            kept = self._kept = Listing(self._engine, *self._engine.files(version), generation)
        return kept


class Listing:
    """The files of `messages` as of one `version`, in one `generation` of the tables. Threads may share it."""

    def __init__(self, engine: MessageFiles, version: int, files: pa.Table, generation: int = 0) -> None:
        self._engine, self.version, self._files, self.generation = engine, version, files, generation
        self._files_of: dict[str, _QueueFiles] = {}
        self._runs: dict[tuple[str, tuple[str, ...]], FileRuns] = {}
        #: The gapless runs of each segment that was asked for.
        self._gapless: dict[str, list[tuple[int, int]]] = {}

    def of(self, queue: str, now: int, *borders: int) -> FileRuns:
        """Return the messages that were sent to a queue (by its id) and are not dropped, as runs.

        All messages of a run are on the same side of `now` (delayed or not), and of each instant in `borders` (sent up
        to it, or later).
        """
        files = self._find_queue_files(queue)
        inside = files.find_unclear_segments(now, *borders)
        if (queue, inside) not in self._runs:
            self._runs[queue, inside] = self._read(queue, files.files, inside)
        return self._runs[queue, inside]

    def queues(self) -> list[str]:
        ids: list[str] = self._files["queue"].unique().to_pylist()
        return ids

    def doubled(self, queue: str) -> set[str]:
        """Return the segments of a queue in which several messages may have one ordinal.

        Only processes that were forked under an earlier release could leave such segments.
        """
        return self._find_queue_files(queue).doubled

    def _find_queue_files(self, queue: str) -> _QueueFiles:
        queue_files = self._files_of.get(queue)
        if queue_files is None:
            queue_files = self._files_of[queue] = _QueueFiles(self._files.filter(pc.equal(self._files["queue"], queue)))
        return queue_files

    def places(self, segments: Sequence[str]) -> dict[str, list[tuple[str, int]]]:
        """Return the (segment, lane) pairs of each queue that the segments were sent to, without dropped segments."""
        places: dict[str, list[tuple[str, int]]] = {}
        named = self._files.select(["queue", "lane", "segment"])
        files = named.filter(pc.is_in(named["segment"], pa.array(segments, pa.string())))
        for row in list_distinct_rows(files, files.column_names):
            places.setdefault(row["queue"], []).append((row["segment"], row["lane"]))
        return places

    def homes(self, segments: Sequence[str]) -> dict[str, list[str]]:
        return {queue: [segment for segment, _ in places] for queue, places in self.places(segments).items()}

    def find_home_lanes(self, segments: Sequence[str]) -> dict[str, int]:
        return dict(place for places in self.places(segments).values() for place in places)

    def home(self, segment: str) -> tuple[str, int, int | None] | None:
        """Return a segment's queue, lane, and highest ordinal (None: not in the log), or None if it was dropped."""
        rows = self._files.filter(pc.equal(self._files["segment"], segment))
        if not rows.num_rows:
            return None
        highest = None if rows["last_seq"].null_count else pc.max(rows["last_seq"]).as_py()
        return rows["queue"][0].as_py(), rows["lane"][0].as_py(), highest

    def sent(self, first: str, last: str) -> tuple[int, tuple[str, ...]]:
        """Return the number of messages in the segments with names from `first` to `last`, and these names."""
        files = self._files
        named = files.filter(pc.and_(pc.greater_equal(files["segment"], first), pc.less_equal(files["segment"], last)))
        return pc.sum(named["messages"]).as_py() or 0, sort_distinct(named["segment"].to_pylist())

    def find_last_send_time(self, queue: str) -> int:
        """Return the latest instant of a send to a queue, as the log shows it (0: it shows none)."""
        files = self._files
        return pc.max(files.filter(pc.equal(files["queue"], queue))["last_sent_at"]).as_py() or 0

    def count_sent_since(self, queue: str, instant: int) -> int | None:
        """Return the most messages that can have been sent to a queue after an instant, without dropped messages.

        Return None if the log lacks the statistics of a file.
        """
        files = self._files.filter(pc.equal(self._files["queue"], queue))
        if files["last_sent_at"].null_count or files["messages"].null_count:
            return None
        return pc.sum(files.filter(pc.greater(files["last_sent_at"], instant))["messages"]).as_py() or 0

    def count(self, queue: str) -> int:
        return pc.sum(self._files.filter(pc.equal(self._files["queue"], queue))["messages"]).as_py() or 0

    def sizes(self, segments: pa.Array) -> pa.Table:
        """Return the (segment, messages, bytes) of some segments' data files. `messages` is null if the log does not
        show the count of a file."""
        files = self._files.filter(pc.is_in(self._files["segment"], segments))
        every = pc.ScalarAggregateOptions(skip_nulls=False)
        sums = files.group_by("segment").aggregate([("messages", "sum", every), ("bytes", "sum")])
        return sums.rename_columns(["segment", "messages", "bytes"])

    def ordinals(self, segments: pa.Array) -> pa.Table:
        """Return the ordinals of some segments' messages as runs (segment, first_seq, last_seq), which may overlap."""
        files = self._files.filter(pc.is_in(self._files["segment"], segments))
        span = pc.add(pc.subtract(files["last_seq"], files["first_seq"]), 1)
        is_gapless = pc.fill_null(pc.equal(span, files["messages"]), False)
        runs = [files.filter(is_gapless).select(ORDINALS)]
        for queue, names in self.homes(files.filter(pc.invert(is_gapless))["segment"].unique().to_pylist()).items():
            rows = self._engine.messages(Where(queue, None, sort_distinct(names)), ["segment", "seq"])
            runs.append(pa.table([rows["segment"], rows["seq"], rows["seq"]], names=ORDINALS))
        return pa.concat_tables([one.cast(runs[0].schema) for one in runs])

    def has_all(self, segment: str, first_seq: int, last_seq: int) -> bool:
        """Return True if the log shows that every message of a run exists. False proves nothing."""
        gapless = self._gapless.get(segment)
        if gapless is None:
            gapless = self._gapless[segment] = self._find_gapless(segment)
        return any(first <= first_seq and last_seq <= last for first, last in gapless)

    def _find_gapless(self, segment: str) -> list[tuple[int, int]]:
        columns = self._files.select(["first_seq", "last_seq", "messages"])
        of_segment = columns.filter(pc.equal(self._files["segment"], segment))
        files = zip(*(of_segment[name].to_pylist() for name in of_segment.column_names))
        runs: list[tuple[int, int]] = []
        for first, last in sorted((f, t) for f, t, count in files if count and t is not None and count == t - f + 1):
            if runs and first == runs[-1][1] + 1:
                runs[-1] = runs[-1][0], last
            else:
                runs.append((first, last))
        return runs

    def segments(self) -> set[str]:
        return set(self._files["segment"].unique().to_pylist())

    def _read(self, queue: str, files: pa.Table, inside: tuple[str, ...]) -> FileRuns:
        named = {"sent_at": "first_sent_at", "available_at": "last_available_at"}
        runs = pa.table([files[named.get(name, name)] for name in COLUMNS], names=COLUMNS)
        if inside:
            outside = pc.invert(pc.is_in(runs["segment"], pa.array(inside)))
            runs = pa.concat_tables([runs.filter(outside), self._read_inside(queue, inside, files)])
        return FileRuns(
            runs["lane"].to_numpy().astype(np.int64),
            runs["segment"].combine_chunks(),
            *(runs[name].to_numpy() for name in COLUMNS[2:]),
        )

    def _read_inside(self, queue: str, segments: tuple[str, ...], files: pa.Table) -> pa.Table:
        """Read the runs of segments from their files, at the newest version, which may be later than the listing's.

        Messages added behind the last listed file, or between two, are left out. Two kinds of later messages are seen
        early: those of a slow send that fill a gap in a file that upkeep joined, and those of a segment with a file
        whose ordinals the log does not show.
        """
        rows = self._engine.messages(
            Where(queue, None, segments), ["lane", "segment", "seq", "sent_at", "available_at"]
        )
        rows = rows.filter(pa.array(_mask_listed(rows, files)))
        rows = rows.sort_by([("segment", "ascending"), ("seq", "ascending")])
        seq, segment = rows["seq"].to_numpy(), rows["segment"].combine_chunks().dictionary_encode().indices.to_numpy()
        sent_at, available_at = (to_milliseconds(rows[name]).to_numpy() for name in ("sent_at", "available_at"))
        border = np.ones(len(seq), dtype=bool)
        border[1:] = (np.diff(seq) != 1) | (np.diff(segment) != 0)
        border[1:] |= (np.diff(sent_at) != 0) | (np.diff(available_at) != 0)
        starts = np.flatnonzero(border)
        ends = np.append(starts, len(seq))[1:] - 1
        first = rows.take(pa.array(starts))
        numbers = map(pa.array, (seq[starts], seq[ends], sent_at[starts], available_at[starts]))
        return pa.table([first["lane"], first["segment"], *numbers], names=COLUMNS)


class _QueueFiles:
    def __init__(self, files: pa.Table) -> None:
        self.files = files
        span = pc.add(pc.subtract(files["last_seq"], files["first_seq"]), 1)
        is_known = pc.fill_null(pc.equal(span, files["messages"]), False)
        instants = []
        for kind in ("available_at", "sent_at"):
            first, last = files[f"first_{kind}"], files[f"last_{kind}"]
            is_known = pc.and_(is_known, pc.and_(pc.is_valid(first), pc.is_valid(last)))
            instants.append((pc.fill_null(first, 0).to_numpy(), pc.fill_null(last, 0).to_numpy()))
        self._unclear: np.ndarray = ~is_known.to_numpy()
        self.doubled = _find_doubled(files, pc.fill_null(pc.greater(files["messages"], span), False).to_numpy())
        self._available, self._sent = instants

    def find_unclear_segments(self, now: int, *borders: int) -> tuple[str, ...]:
        """Return the segments with a file about which the log does not show enough.

        Such a file lacks statistics, or has gaps, doubled ordinals, or messages on both sides of an instant (see
        `Listing.of`).
        """
        is_unclear = self._unclear.copy()
        for (first, last), instant in ((self._available, now), *((self._sent, border) for border in borders)):
            is_unclear |= (first <= instant) & (instant < last)
        return sort_distinct(self.files["segment"].filter(pa.array(is_unclear)).to_pylist()) if is_unclear.any() else ()


def _find_doubled(files: pa.Table, too_many: np.ndarray) -> set[str]:
    """Return the segments with overlapping files, or a file with more messages than ordinals (`too_many`)."""
    segments = files["segment"].combine_chunks().dictionary_encode()
    numbers = segments.indices.to_numpy().astype(np.int64)
    first, last = (positions(numbers, pc.fill_null(files[name], -1).to_numpy()) for name in ("first_seq", "last_seq"))
    has_ordinals = np.flatnonzero(files["last_seq"].is_valid().to_numpy())
    order = has_ordinals[np.argsort(first[has_ordinals], kind="stable")]
    overlapping = numbers[order][1:][first[order][1:] <= last[order][:-1]].tolist()
    return {segments.dictionary[number].as_py() for number in {*overlapping, *numbers[too_many].tolist()}}


def _mask_listed(rows: pa.Table, files: pa.Table) -> np.ndarray:
    """Return a mask of the messages between the first and the last ordinal of a file.

    If the log does not show these ordinals, every message of the segment counts as listed.
    """
    names, highest = files["segment"].unique(), (1 << SEGMENT_SHIFT) - 1
    first, last, at = (
        positions(
            pc.index_in(table["segment"], names).to_numpy().astype(np.int64),
            pc.fill_null(table[name], otherwise).to_numpy(),
        )
        for table, name, otherwise in ((files, "first_seq", 0), (files, "last_seq", highest), (rows, "seq", 0))
    )
    sort = np.argsort(first, kind="stable")
    # Files of one segment may overlap: compare with the highest end so far.
    before = np.searchsorted(first[sort], at, "right") - 1
    listed: np.ndarray = (before >= 0) & (at <= np.maximum.accumulate(last[sort])[before])
    return listed


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


def find_existing_messages(lanes: Lanes, listing: Listing, now: int, expired: int) -> tuple[FileRuns, Pieces]:
    """Return every message of the queue as pieces, each with its record's code and, as `query`, its run's number.

    Messages of other queues' segments count only if they have a record in this queue. `now` and `expired` are the
    borders of `Listing.of`.
    """
    placed = place_files(lanes, listing, now, expired)
    return placed.files, placed.messages(lanes)


def place_files(lanes: Lanes, listing: Listing, now: int, *borders: int) -> PlacedRuns:
    """Return the runs that `find_existing_messages` cuts, and register their segments in `lanes`.

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


def find_kept_from(lanes: Lanes, files: FileRuns, pieces: Pieces) -> np.ndarray:
    """Return the instant from which each piece's retention counts."""
    moved_in = lanes.records.numbers("enqueued_at")[pieces.code - ABSENT]
    kept: np.ndarray = np.maximum(moved_in, files.sent_at[pieces.query])
    return kept


def find_states(lanes: Lanes, files: FileRuns, pieces: Pieces, now: int, expired: int) -> np.ndarray:
    state = read_recorded_states(lanes.records, now)[pieces.code - ABSENT]
    is_present = (state != INDEX[Status.DELETED]) & (state != INDEX[Status.MOVED])
    run_out = is_present & (find_kept_from(lanes, files, pieces) <= expired)
    delayed = (state == INDEX[Status.VISIBLE]) & (files.available_at[pieces.query] > now)
    return np.where(run_out, INDEX[Status.EXPIRED], np.where(delayed, INDEX[Status.DELAYED], state))


def read_recorded_states(records: Records, now: int) -> np.ndarray:
    """Return the states of all records by code, as indices into STATES.

    The twin of `rules.visibility.status`, for messages without a delay or an expiry.
    """
    held = records.numbers("visible_at") > now
    in_flight = np.where(records.is_there("receipt_id"), INDEX[Status.IN_FLIGHT], INDEX[Status.LOCKED])
    present = np.where(held, in_flight, INDEX[Status.VISIBLE])
    undeleted = np.where(records.is_there("moved_to"), INDEX[Status.MOVED], present)
    return np.where(records.is_there("deleted_at"), INDEX[Status.DELETED], undeleted)


def find_missing(listing: Listing, runs: pa.Table) -> pa.Table:
    """Return, as RUNS, the messages of `runs` (RUNS and more columns) that no file of the listing has."""
    return outside(runs, listing.ordinals(runs["segment"].unique()))


def outside(runs: pa.Table, existing: pa.Table) -> pa.Table:
    """Return, as RUNS, the messages of `runs` that are in none of `existing`."""
    names = pc.unique(pa.chunked_array([*runs["segment"].chunks, *existing["segment"].chunks], pa.string()))
    covered, queries = _unite_runs(_place_on_axis(existing, names)), _place_on_axis(runs, names)
    pieces = covered.cut(queries.first, queries.last)
    uncovered = pieces.where(pieces.code == ABSENT)
    rows = runs.select(RUNS.names).take(pa.array(uncovered.query))
    ordinals = [pa.array(uncovered.first_seq), pa.array(uncovered.first_seq + uncovered.lengths - 1)]
    return pa.table([rows["lane"], rows["segment"], *ordinals], schema=RUNS)


def _place_on_axis(runs: pa.Table, names: pa.Array) -> Runs:
    segment = pc.index_in(runs["segment"], names).to_numpy().astype(np.int64)
    return Runs.from_arrow(runs, segment, np.zeros(runs.num_rows, dtype=np.int64))


def _unite_runs(runs: Runs) -> Runs:
    """Return the places of some runs as runs in order, without overlap."""
    ordered = runs.where(np.argsort(runs.first, kind="stable"))
    last = np.maximum.accumulate(ordered.last) if len(ordered) else ordered.last
    first = ordered.first.copy()
    first[1:] = np.maximum(first[1:], last[:-1] + 1)
    return Runs(first, last, ordered.code).where(first <= last).joined()
