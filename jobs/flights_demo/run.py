"""The run of jobs/flights.py, step by step."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from jobs.common import table
from jobs.flights_demo import data, delays, picture, proof
from jobs.flights_demo.history import History
from jobs.flights_demo.progress import Progress
from jobs.flights_demo.workers import Accident, Workers
from ledger.ledger import Ledger
from ledger.runtime.session import spark_session
from ledger.store.delta.verbs.receipts import read_events as history_of

QUEUE = "flights"
PARK, MAXIMUM_RECEIVES = 3_600, 2


class Run:
    """One run of the job: it sends, works, proves and draws, all in one folder."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self._root, self._options = root, options
        self._file, self._ledger_root = root / "flights.csv", root / "ledger"
        self._delays, self._left_over = root / "results" / "delays", root / "results" / "left_over"
        self._by_route, self._picture = root / "results" / "delays_by_route", root / "flights.png"

    def run(self) -> int:
        """Run all steps, and return the exit code: 0 if every check holds, else 1."""
        self._root.mkdir(parents=True, exist_ok=True)
        self._total = data.write_flights(self._file, self._options.flights)
        self._spark = spark_session("flights")
        self._ledger = Ledger.open(str(self._ledger_root), self._spark, owner="flights")
        self._queue = self._ledger.create_queue(QUEUE)
        self._send()
        with Workers() as self._workers:
            self._work()
        delays.summarise(self._spark, str(self._delays), str(self._by_route))
        return self._report()

    def _send(self) -> None:
        started = time.monotonic()
        rows = self._spark.read.csv(str(self._file), header=True, schema=delays.FLIGHT)
        sent = self._queue.send(rows)
        self._sent_at = time.time()
        print(f"sent {sent.count:,} flights as messages in one commit, {time.monotonic() - started:.1f} s", flush=True)

    def _work(self) -> None:
        options, progress = self._options, Progress(self._total)
        claim = options.claim or -(-self._total // 9)
        self._workers.start(
            options.workers,
            [
                str(self._ledger_root),
                QUEUE,
                "--function",
                "jobs.flights_demo.delays:process",
                "--reason",
                "reason",
                "--output",
                str(self._delays),
                "--failed",
                str(self._left_over),
                "--claim",
                str(claim),
                "--visibility-timeout",
                str(options.visibility_timeout),
                "--max-receives",
                str(MAXIMUM_RECEIVES),
                "--park",
                str(PARK),
                "--until-empty",
            ],
            self._root / "logs",
        )
        progress.say(
            f"started {options.workers} spark-submit workers, claims of up to {claim:,}; logs in {self._root / 'logs'}"
        )
        self._accident = None if options.no_accident else Accident(self._workers[1], self._queue, self._delays)
        seen = 0.0
        while self._workers.alive:
            if time.monotonic() - seen >= 1:
                seen, counts = time.monotonic(), self._queue.counts()
                progress.show(counts, self._workers_in_words())
            if self._accident and not self._accident.is_watching and counts.deleted >= self._total / 4:
                self._accident.watch()
            if self._accident and self._accident.is_news():
                progress.say(
                    f"killed {self._accident.victim.name}: it had written the results of "
                    f"{self._accident.messages:,} flights and not acknowledged them"
                )
            time.sleep(0.05)
        progress.show(self._queue.counts(), self._workers_in_words())
        progress.close()

    def _workers_in_words(self) -> str:
        not_done = [
            f", {worker.name} {worker.fate}"
            for worker in self._workers
            if not worker.is_alive and worker.fate != "done"
        ]
        alive = len(self._workers.alive)
        return f"{alive} worker{'s' * (alive != 1)}{''.join(not_done)}"

    def _report(self) -> int:
        done, left_over = proof.read_delta(self._delays), proof.read_delta(self._left_over)
        # The table has a row for each failed receive. Keep the last row of each flight, and no row of a flight that was
        # done later.
        left_over = left_over.sort_values("claim_version").drop_duplicates("message_id", keep="last")
        left_over = left_over[~left_over["message_id"].isin(done["message_id"])]
        # Parked flights are hidden for an hour, and count as in flight. Release them: then they count as stored.
        self._queue.change_visibility(left_over["receipt_handle"].tolist() if len(left_over) else [], 0)
        events = history_of(self._ledger.store.engine, self._queue.id)
        history = History(events, self._sent_at, self._options.visibility_timeout, self._total)
        fates = {worker.name: worker.fate for worker in self._workers}
        print(f"\nWhat each worker did\n\n{table(history.by_worker(fates))}\n")
        if len(left_over):
            reasons = [
                {"left in the queue because": reason, "flights": int(n)}
                for reason, n in left_over["reason"].value_counts().items()
            ]
            print(f"{table(reasons)}\n")
        checks = proof.prove(data.read_flights(self._file), done, left_over, self._queue.counts())
        checks += self._accident_checks(history, done) if self._accident else []
        for check in checks:
            print(f"{'yes' if check.holds else 'NO '}  {check.statement}")
        is_proven = all(check.holds for check in checks)
        self._draw(history, is_proven)
        return int(not is_proven)

    def _accident_checks(self, history: History, done) -> list[proof.Check]:
        accident = self._accident
        if not accident.happened:
            return [
                proof.Check(False, f"{accident.victim.name} was killed while it held a claim (it was always too fast)")
            ]
        survived = int((done["receipt_id"] == accident.receipt_id).sum())
        over = history.taken_over(accident.receipt_id)
        return [
            proof.Check(
                survived > 0 and survived + over == accident.messages,
                f"{accident.victim.name} died holding {accident.messages:,}: the {survived:,} it had written "
                f"were found in the output and acknowledged by the next receiver, the other {over:,} were taken over",
            )
        ]

    def _draw(self, history: History, is_proven: bool) -> None:
        victim = self._accident.victim if self._accident and self._accident.happened else None
        killed = (victim.name, victim.killed_at - self._sent_at) if victim else None
        names = [worker.name for worker in self._workers]
        picture.draw(self._picture, history.all_moments(), history.holds(), names, killed, is_proven=is_proven)
        show = f"python jobs/show.py {self._ledger_root} --history 20"
        print(
            f"\npicture            {self._picture}",
            f"delays, by flight  {self._delays}",
            f"delays, by route   {self._by_route}",
            f"the ledger         {show}",
            f"try next           .venv/bin/ledger queues show {QUEUE} --root {self._ledger_root}",
            "                   and a function of your own: docs/how-to/spark-jobs.md",
            sep="\n",
        )
