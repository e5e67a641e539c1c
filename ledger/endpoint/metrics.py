"""The endpoint's metrics, in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: In seconds.
BUCKET_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)
#: In calls.
GROUP_SIZES = (1, 2, 4, 8, 16, 32)
SUCCESS, UNKNOWN_ACTION = "ok", "unknown"


class Metrics:
    """Counts of the requests of one process. Only one thread may use a Metrics."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self.disconnects = 0

    def answered(self, action: str | None, refused_for: str | None, seconds: float) -> None:
        """Count an answered request. `refused_for` is the error's code, or None for a success."""
        name = action or UNKNOWN_ACTION
        self._requests[name, refused_for or SUCCESS] += 1
        buckets = self._buckets.setdefault(name, [0] * (len(BUCKET_SECONDS) + 1))
        buckets[bisect_left(BUCKET_SECONDS, seconds)] += 1
        self._seconds[name] += seconds  # type: ignore[assignment]

    def lines(self) -> Iterator[str]:
        yield from format_family("ledger_requests_total", "counter", "Requests, by action and outcome.", (
            ({"action": action, "outcome": outcome}, count) for (action, outcome), count in self._requests.items()
        ))  # fmt: skip
        yield from format_family(
            "ledger_disconnects_total", "counter", "Clients that went away.", [({}, self.disconnects)]
        )
        name = "ledger_request_seconds"
        yield f"# HELP {name} How long requests took, long polls included."
        yield f"# TYPE {name} histogram"
        for action, buckets in self._buckets.items():
            total = 0
            for bound, count in zip((*map(str, BUCKET_SECONDS), "+Inf"), buckets):
                total += count
                yield _format_sample(f"{name}_bucket", {"action": action, "le": bound}, total)
            yield _format_sample(f"{name}_sum", {"action": action}, self._seconds[action])
            yield _format_sample(f"{name}_count", {"action": action}, total)


def format_transactions(tally: Any) -> Iterator[str]:
    """Yield the metrics of commits, from a `Tally` (`store.delta.commit.transactions`)."""
    commits = [({"verb": verb}, count) for verb, count in tally.commits().items()]
    yield from format_family("ledger_commits_total", "counter", "Commits that landed.", commits)
    conflicts = [({"verb": verb}, count) for verb, count in tally.conflicts().items()]
    text = "Commits that lost to another writer."
    yield from format_family("ledger_conflicts_total", "counter", text, conflicts)
    sizes: dict[str, Counter[int]] = {}
    for (purpose, size), count in tally.groups().items():
        sizes.setdefault(purpose, Counter())[size] += count
    yield from _format_histograms("ledger_group_size", "How many calls shared a commit, or a read.", "of", sizes)


def format_refused_tables(reasons: Mapping[str, str]) -> Iterator[str]:
    text = "Tables whose verbs fail, as somebody altered them; `ledger doctor` says which, and what takes it back."
    samples = (({"table": table, "reason": what}, 1) for table, what in reasons.items())
    yield from format_family("ledger_table_refused", "gauge", text, samples)


def format_upkeep(commits: int, is_overdue: bool) -> Iterator[str]:
    text = "Commits of messages and visibility since the last round of upkeep."
    yield from format_family("ledger_commits_without_upkeep", "gauge", text, [({}, commits)])
    text = "1 where upkeep should have run long ago: run `ledger upkeep`, and `ledger upkeep --every 5m` as a service."
    yield from format_family("ledger_upkeep_overdue", "gauge", text, [({}, int(is_overdue))])


def format_dead_letters(counts: Mapping[str, Any], targets: Set[str]) -> Iterator[str]:
    """Yield the metric of the queues of `counts` that are in `targets`."""
    text = "Messages in a queue that another queue's RedrivePolicy names, and that nobody has acknowledged."
    kept = (({"queue": name}, one.stored + one.in_flight) for name, one in counts.items() if name in targets)
    yield from format_family("ledger_dead_letters", "gauge", text, kept)


def format_vitals(measured: Any) -> Iterator[str]:
    """Yield the metrics of load and of hanging workers, from a `Vitals` (`store.delta.verbs.vitals`)."""
    disk, recent = measured.disk, measured.recent
    gauges: list[tuple[str, str, float | None]] = [
        ("ledger_disk_bytes", "What the tables take, with their logs and their past.", disk.bytes),
        ("ledger_disk_free_bytes", "What may still be written on the disk of the tables.", disk.free),
        ("ledger_disk_written_bytes_per_day", "Written lately and still there, scaled to a day.", disk.written_a_day),
        ("ledger_files", "Files of the tables, with their logs and their past.", disk.files),
        ("ledger_log_files", "Files of the logs of the tables.", disk.log_files),
        ("ledger_log_bytes", "What the logs of the tables take.", disk.log_bytes),
        (
            "ledger_unjoined_receipts",
            "Receipts of acknowledged claims that upkeep has not joined.",
            measured.unjoined_receipts,
        ),
        ("ledger_conflicts_per_minute", "Commits that lost to others lately, in all processes.", _per_minute(recent)),
    ]
    for name, text, value in gauges:
        if value is not None:
            yield from format_family(name, "gauge", text, [({}, value)])
    merges = (({"path": path}, count) for path, count in recent.merges.items())
    yield from format_family("ledger_recent_merges", "gauge", "The newest MERGEs into visibility, by path.", merges)
    # An age of 0 would be wrong without a claim or a message, so there is no sample.
    claim, message = measured.oldest_claim, measured.oldest_message
    held = [] if claim is None else [({"queue": claim.queue}, claim.age)]
    yield from format_family("ledger_oldest_claim_age_seconds", "gauge", "Age of the oldest claim that is held.", held)
    beats = [] if claim is None or claim.beat_age is None else [({"queue": claim.queue}, claim.beat_age)]
    yield from format_family(
        "ledger_oldest_claim_beat_age_seconds", "gauge", "Seconds since the oldest claim's last beat.", beats
    )
    ages = [] if message is None else [({"queue": message.queue}, message.age)]
    yield from format_family(
        "ledger_oldest_message_age_seconds", "gauge", "Age of the oldest message of all queues.", ages
    )


def _per_minute(recent: Any) -> float:
    return round(float(recent.conflicts_a_minute), 3)


def format_commit_paths(counts: Mapping[Any, int]) -> Iterator[str]:
    """Yield the metrics of how commits put rows into tables, by `CommitKind` (`delta_log.statements`)."""
    text = "Commits of rows, by verb and table: direct, or by a statement of the engine and why."
    samples = (
        ({"verb": kind.purpose, "table": kind.table, "path": kind.path, "reason": kind.reason}, count)
        for kind, count in sorted(counts.items())
    )
    yield from format_family("ledger_commit_paths_total", "counter", text, samples)


def _format_histograms(name: str, text: str, label: str, sizes: Mapping[str, Mapping[int, int]]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} histogram"
    for label_value, counts in sizes.items():
        for bound in GROUP_SIZES:
            within = sum(count for size, count in counts.items() if size <= bound)
            yield _format_sample(f"{name}_bucket", {label: label_value, "le": str(bound)}, within)
        yield _format_sample(f"{name}_bucket", {label: label_value, "le": "+Inf"}, sum(counts.values()))
        yield _format_sample(f"{name}_sum", {label: label_value}, sum(size * count for size, count in counts.items()))
        yield _format_sample(f"{name}_count", {label: label_value}, sum(counts.values()))


def format_family(name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    yield from (_format_sample(name, labels, value) for labels, value in samples)


def _format_sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
