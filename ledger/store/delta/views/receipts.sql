-- What happened to messages, mostly under a receipt: a row per event.
-- queue: the name of the queue; the id of the queue if it was deleted
-- version: the version of the table visibility that made the event, as Claim.version; views take it as their version
-- at: when the event was committed; for expired, when the messages were received again or moved
-- event: granted, granted again, extended, released, postponed, parked, deleted, expired, locked, purged, moved, arrived, restored, writing, clock repaired
-- receipt_id: the receipt of the messages, if the event is about one
-- attempt_id: the attempt id of the receive, if it had one; a worker numbers its claims: ID/0, ID/1
-- messages: how many messages the event is about
-- visible_at: the deadline of the messages after the event; for expired, the deadline that had passed
-- owner: the process that caused the event (for expired: the earlier receiver): the name that Ledger.open was given, or user, machine and process
-- reason: the reason that was given when the messages were released, postponed, parked or extended
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
