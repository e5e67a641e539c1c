"""The run of jobs/embed.py, step by step."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from jobs.common import table
from jobs.embed_demo import proof
from jobs.embed_demo.accident import Accident
from jobs.embed_demo.front import Front
from jobs.embed_demo.handler import BATCH, embed
from jobs.embed_demo.model import FRONT_URL, WIDTH, model
from jobs.embed_demo.texts import real_texts
from jobs.flights_demo import picture
from jobs.flights_demo.history import History
from ledger.ledger import Ledger
from ledger.results import Consumed
from ledger.store.delta.verbs.receipts import read_events as history_of

QUEUE = "texts"
PROCESSES, CONCURRENCY, FLUSH_SECONDS, MAXIMUM_RECEIVES = 2, 2, 3.0, 3
SCHEMA = pa.schema([("text", pa.string()), ("tokens", pa.int64()), ("embedding", pa.list_(pa.float32()))])
QUESTION = "How long is a message hidden from other consumers?"


class Run:
    """One run of the job: it sends, embeds, proves and draws, all in one folder."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self._root, self._options = root, options
        self._output, self._picture = root / "embeddings", root / "embed.png"

    def run(self) -> int:
        """Run all steps, and return the exit code: 0 if every check holds, else 1."""
        self._root.mkdir(parents=True, exist_ok=True)
        self._texts = real_texts(self._options.texts)
        self._ledger = Ledger.open(str(self._root / "ledger"))
        dead = self._ledger.create_queue("dead")
        policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": MAXIMUM_RECEIVES}
        timeout = self._options.visibility_timeout
        self._queue = self._ledger.create_queue(QUEUE, {"VisibilityTimeout": timeout, "RedrivePolicy": policy})
        self._queue.send(pa.table({"body": self._texts}))
        self._sent_at = time.time()
        print(f"sent {len(self._texts):,} texts of AWS's documentation as messages, in one commit", flush=True)
        with Front(self._options.seed) as self._front:
            os.environ[FRONT_URL] = self._front.url
            self._accident = None if self._options.no_accident else Accident(self._front, 2 * len(self._texts) // 5)
            started = time.monotonic()
            done = self._consume()
            seconds = time.monotonic() - started
        return self._report(done, seconds)

    def _consume(self) -> Consumed:
        return self._queue.consume(
            embed,
            str(self._output),
            processes=PROCESSES,
            concurrency=CONCURRENCY,
            batch=BATCH,
            flush_seconds=FLUSH_SECONDS,
            schema=SCHEMA,
            cost="tokens",
            report=_print_few,
        )

    def _report(self, done: Consumed, seconds: float) -> int:
        rows = DeltaTable(str(self._output)).to_pyarrow_table()
        front, accident = self._front, self._accident
        victim = accident.victim if accident else None
        print(f"\nembedded {len(rows):,} texts in {seconds:.0f} s: {len(rows) / seconds:,.0f} a second\n")
        answers = [
            {"the front answered": status, "requests": front.requests[status], "texts": front.texts[status]}
            for status in sorted(front.requests)
        ]
        print(f"{table(answers)}\n")
        checks = proof.prove(self._texts, rows, front, done, self._queue.counts(), victim)
        if accident and victim is None:
            checks.append(proof.Check(False, "one of the two processes was killed (the other one was never there)"))
        for check in checks:
            print(f"{'yes' if check.holds else 'NO '}  {check.statement}")
        self._search(rows)
        is_proven = all(check.holds for check in checks)
        self._draw(is_proven)
        return int(not is_proven)

    def _search(self, rows: pa.Table) -> None:
        """Print the texts that are nearest to a question."""
        vectors = np.asarray(pc.list_flatten(rows["embedding"])).reshape(-1, WIDTH)
        likeness = vectors @ model().embed([QUESTION])[0]
        best = [(float(likeness[at]), rows["text"][int(at)].as_py()) for at in np.argsort(-likeness)[:3]]
        print(f"\n{QUESTION}", *(f"  {cosine:.2f}  {text}" for cosine, text in best), sep="\n")

    def _draw(self, is_proven: bool) -> None:
        events = history_of(self._ledger.store.engine, self._queue.id)
        history = History(events, self._sent_at, self._options.visibility_timeout, len(self._texts))
        # The owner of a claim is user@machine:pid.
        holds = [replace(hold, owner=f"process {hold.owner.rpartition(':')[2]}") for hold in history.holds()]
        owners = list(dict.fromkeys(hold.owner for hold in holds))
        accident, killed = self._accident, None
        if accident and accident.killed_at:
            killed = f"process {accident.victim}", accident.killed_at - self._sent_at
        picture.draw(self._picture, history.all_moments(), holds, owners, killed, "texts", is_proven=is_proven)
        print(
            f"\npicture         {self._picture}",
            f"rows            {self._output}",
            f"try next        .venv/bin/ledger history {QUEUE} --root {self._root / 'ledger'}",
            "                and a function of your own: docs/how-to/without-spark.md",
            sep="\n",
        )


def _print_few(step: str) -> None:
    """Print a consumer's report, except for its claims and commits."""
    if not any(word in step for word in ("claimed", "settled")):
        print(step, flush=True)
