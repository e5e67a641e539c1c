-- The messages that are held now, or that were given back and are still hidden: a row per receipt, state and reason. The
-- view reads no message, so messages whose retention ended meanwhile still count.
-- queue: the name of the queue
-- receipt_id: the receipt of the claim, as Claim.receipt_id
-- attempt_id: the attempt id of the receive, if it had one; a worker numbers its claims: ID/0, ID/1
-- owner: the receiver: the name that Ledger.open was given, or user, machine and process
-- state: held; postponed, when the holder gave messages back for a retry at the deadline; parked, when they failed too often
-- reason: the reason that the holder gave when it postponed or parked the messages
-- messages: how many messages the row is about; in the view messages they have this queue and receipt_id, and are in flight (or expired)
-- received_at: when the claim was granted
-- earliest_deadline: when the first of these messages become visible again, unless the holder extends them
-- latest_deadline: when the last of these messages become visible again
-- greatest_receive_count: the greatest receive count of one of these messages, this receive included
-- age: seconds since the claim was granted
-- seconds_left: seconds until the earliest deadline
-- last_beat: when the claim was last granted, granted again or extended, even in part
WITH current AS (
    SELECT * FROM {visibility}
    WHERE receipt_id IS NOT NULL AND deleted_at IS NULL AND moved_to IS NULL AND visible_at > {now}
),
held AS (
    SELECT queue, receipt_id, attempt_id, received_at, visible_at, released_at, receive_count,
        last_seq - first_seq + 1 AS messages
    FROM current WHERE bits IS NULL
    UNION ALL
    SELECT queue, receipt_id, attempt_id, received_at, visible_at, released_at, receive_count, bit_count(word)
    FROM (SELECT *, explode(bits) AS word FROM current WHERE bits IS NOT NULL) AS words
),
owners AS (
    SELECT queue, receipt_id, owner, row_number() OVER (PARTITION BY queue, receipt_id ORDER BY version DESC) AS latest
    FROM {receipts} AS events WHERE event IN ('granted', 'granted again')
),
said AS (
    SELECT queue, receipt_id, visible_at, event, reason,
        row_number() OVER (PARTITION BY queue, receipt_id, visible_at ORDER BY version DESC) AS latest
    FROM {receipts} AS events WHERE event IN ('postponed', 'parked')
),
beats AS (
    SELECT queue, receipt_id, max(at) AS last_beat
    FROM {receipts} AS events WHERE event IN ('granted', 'granted again', 'extended') GROUP BY queue, receipt_id
)
SELECT
    queues.name AS queue,
    held.receipt_id,
    held.attempt_id,
    owners.owner,
    CASE WHEN held.released_at IS NULL THEN 'held' ELSE coalesce(said.event, 'postponed') END AS state,
    CASE WHEN held.released_at IS NOT NULL THEN said.reason END AS reason,
    sum(held.messages) AS messages,
    min(held.received_at) AS received_at,
    min(held.visible_at) AS earliest_deadline,
    max(held.visible_at) AS latest_deadline,
    max(held.receive_count) AS greatest_receive_count,
    (unix_millis({now}) - unix_millis(min(held.received_at))) / 1e3 AS age,
    (unix_millis(min(held.visible_at)) - unix_millis({now})) / 1e3 AS seconds_left,
    max(beats.last_beat) AS last_beat
FROM held
JOIN {queues} AS queues ON queues.queue = held.queue
LEFT JOIN owners ON owners.queue = held.queue AND owners.receipt_id = held.receipt_id AND owners.latest = 1
LEFT JOIN beats ON beats.queue = held.queue AND beats.receipt_id = held.receipt_id
LEFT JOIN said ON said.queue = held.queue AND said.receipt_id = held.receipt_id AND said.visible_at = held.visible_at
    AND said.latest = 1
GROUP BY queues.name, held.receipt_id, held.attempt_id, owners.owner,
    CASE WHEN held.released_at IS NULL THEN 'held' ELSE coalesce(said.event, 'postponed') END,
    CASE WHEN held.released_at IS NOT NULL THEN said.reason END
