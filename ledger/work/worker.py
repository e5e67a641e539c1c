"""The loop of a worker: claim, compute, write and acknowledge, as long as `Work.until` says."""

from __future__ import annotations

import logging
from dataclasses import replace

from ledger.claim import Claim
from ledger.client.access import Access
from ledger.outputs.writers import require_declared
from ledger.results import Worked
from ledger.rules import limits as bounds
from ledger.rules.attributes import limits_of
from ledger.runtime.progress import Meter
from ledger.runtime.termination import ended_by_sigterm
from ledger.work.claim_source import STORED, ClaimSource
from ledger.work.claim_work import ClaimWork, require_own_columns
from ledger.work.isolation import Evidence
from ledger.work.tasks import Work

log = logging.getLogger("ledger.work")
#: In seconds: how long a receive waits.
WAIT = 2.0


class Worker:
    def __init__(self, access: Access, work: Work) -> None:
        require_own_columns(work)
        require_declared(access, work.output, work.schema)
        self._access = access
        self._source = ClaimSource(access, work.visibility_timeout, work.attempt_id, work.say)
        self._work = replace(work, visibility_timeout=self._source.timeout)
        bounds.visibility_timeout(work.park, limits_of(access.record().attributes), "park")
        self._evidence = Evidence()

    def run(self) -> Worked:
        self._access.spark("Queue.work")
        worked, once = Worked(0, 0, 0), self._work.until == "once"
        with ended_by_sigterm(), self._meter() as meter:
            for attempt_id, held in self._source.attempts():
                most = self._work.max_messages
                most = None if most is None else max(most, held)
                claim = self._source.receive(attempt_id, most, 0 if once else WAIT)
                if claim.count:
                    done = self.work(claim)
                    if done.lost:
                        self._source.part_ways()
                    worked = worked.and_then(done)
                    meter.update(worked.messages, worked.failed)
                if once or (not claim.count and self._work.until != "forever" and not self._source.may_get_more()):
                    return worked
        return worked

    def _meter(self) -> Meter:
        counts = self._access.store.counts(self._access.record(), self._access.clock).by_status
        stored = sum(counts.get(status, 0) for status in STORED)
        return Meter("messages", stored, self._work.say, show=self._work.bar)

    def work(self, claim: Claim) -> Worked:
        return ClaimWork(self._access, self._work, claim, self._evidence).run()
