-- What happened under each receipt, in the order of the commits: a row per event.
-- queue: the name of the queue; of one that is deleted, its id
-- version: the commit of the table visibility that did it, as Claim.version: what views take as version
-- at: when
-- event: granted, granted again, extended, released, postponed, parked, deleted, expired, locked, purged, moved, arrived, restored, writing, clock repaired
-- receipt_id: the receipt that it happened under, if any
-- attempt_id: the attempt that received it, if it said one; a worker numbers its claims: ID/0, ID/1
-- messages: how many messages
-- visible_at: their deadline from then on
-- owner: who did it: what Ledger.open was given, or user, machine and process; of expired, who had received them before
-- reason: what was said as reason when they were released, postponed, parked or extended
WITH holders AS (
    SELECT queue, receipt_id, owner, row_number() OVER (PARTITION BY queue, receipt_id ORDER BY version DESC) AS latest
    FROM {receipts} AS grants WHERE event IN ('granted', 'granted again')
)
SELECT
    coalesce(queues.name, receipts.queue) AS queue,
    receipts.version,
    receipts.at,
    receipts.event,
    receipts.receipt_id,
    receipts.attempt_id,
    receipts.messages,
    receipts.visible_at,
    CASE WHEN receipts.event = 'expired' THEN holders.owner ELSE receipts.owner END AS owner,
    receipts.reason
FROM {receipts} AS receipts
LEFT JOIN {queues} AS queues ON queues.queue = receipts.queue
LEFT JOIN holders ON receipts.event = 'expired' AND holders.queue = receipts.queue
    AND holders.receipt_id = receipts.receipt_id AND holders.latest = 1
