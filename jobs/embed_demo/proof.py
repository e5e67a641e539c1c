"""The proof of jobs/embed.py: each text has one row, and only unwritten texts were paid twice.

The proof compares the texts, the front's bills, and the rows that delta-rs reads. It shares only the model with the
work: the model counts the tokens, and embeds a sample again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.embed_demo.front import Front
from jobs.embed_demo.model import model
from jobs.flights_demo.proof import Check
from ledger.results import Consumed, Counts

#: The number of vectors that are computed again, and the least cosine of each with the written vector. The cosine is
#: not exactly 1, as the model rounds a batch as a whole.
SAMPLE, LEAST_COSINE = 200, 0.98


def prove(
    texts: list[str], rows: pa.Table, front: Front, done: Consumed, counts: Counts, victim: int | None
) -> list[Check]:
    """Return the checks that must hold. `victim` is the killed process, or None if none was killed."""
    written, n = rows["text"].to_pylist(), len(texts)
    messages = pc.count_distinct(rows["message_id"]).as_py()
    tokens = pc.sum(rows["tokens"]).as_py()
    again = front.paid_again()
    twice = sum(bill.tokens for bill in again)
    worst = _worst_cosine(rows)
    checks = [
        Check(
            len(written) == messages == n and sorted(written) == sorted(texts),
            f"{len(written):,} rows are the {n:,} texts: none was lost, none was written twice",
        ),
        Check(
            worst >= LEAST_COSINE, f"{min(SAMPLE, n)} vectors computed again are the same (cosine {worst:.3f} or more)"
        ),
        Check(
            tokens == sum(model().count_tokens(texts)) == front.paid - twice,
            f"the rows cost {tokens:,} tokens: what the front billed, {front.paid:,}, without what it billed twice",
        ),
        Check(
            (counts.deleted, counts.stored, counts.in_flight) == (n, 0, 0),
            f"the queue agrees: {counts.deleted:,} deleted, {counts.stored:,} stored, {counts.in_flight:,} in flight",
        ),
        Check(
            done.failed == done.rejected == counts.moved == 0 < front.requests[429] + front.requests[500],
            f"{front.requests[429]:,} answers 429 and {front.requests[500]:,} answers 500 counted against no text",
        ),
    ]
    return checks if victim is None else [*checks, _of_victim(front, again, victim)]


def _of_victim(front: Front, again: list[Any], victim: int) -> Check:
    """Check that the killed process had paid for every text that was paid for twice."""
    texts_of_victim = {bill.text for bill in front.bills if bill.worker == victim}
    tokens = sum(bill.tokens for bill in again)
    return Check(
        0 < len(again) == len({bill.text for bill in again} & texts_of_victim),
        f"{len(again):,} texts ({tokens:,} tokens) were paid for twice: process {victim} had paid for them when it was "
        "killed, and had not written them",
    )


def _worst_cosine(rows: pa.Table) -> float:
    sample = rows.slice(0, SAMPLE)
    vectors = np.array(sample["embedding"].to_pylist(), np.float32)
    again = np.vstack([model().embed([text]) for text in sample["text"].to_pylist()])
    return float((vectors * again).sum(1).min())
