-- What happened under each receipt, in the order of the commits: a row per event.
SELECT
    coalesce(queues.name, receipts.queue) AS queue,
    receipts.version,
    receipts.at,
    receipts.event,
    receipts.receipt_id,
    receipts.attempt_id,
    receipts.messages,
    receipts.visible_at,
    receipts.owner
FROM {receipts} AS receipts
LEFT JOIN {queues} AS queues ON queues.queue = receipts.queue
