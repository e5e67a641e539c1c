-- How many messages each queue has in each state: a row per queue. The view reads no body.
-- queue: the name of the queue
-- visible: messages that may be received now; on a FIFO queue, once no message before them in their group is hidden
-- delayed: messages that were sent with a delay that is not over
-- locked: messages hidden by Queue.lock
-- in_flight: messages that have a receipt and a deadline in the future
-- deleted: messages that were acknowledged or purged, and that upkeep did not remove yet
-- expired: messages older than the retention of the queue, that upkeep did not remove yet
-- moved: messages that were moved to another queue, and that upkeep did not remove from this one yet
-- age_of_oldest: seconds since the send of the oldest message that is not deleted, expired or moved (at present perhaps of an older message in its file); null if there is none
WITH counted AS (
    SELECT
        queue,
        count_if(status = 'visible') AS visible,
        count_if(status = 'delayed') AS delayed,
        count_if(status = 'locked') AS locked,
        count_if(status = 'in flight') AS in_flight,
        count_if(status = 'deleted') AS deleted,
        count_if(status = 'expired') AS expired,
        min(CASE WHEN status NOT IN ('deleted', 'expired') THEN sent_at END) AS oldest
    FROM ({messages_view}) AS message
    GROUP BY queue
),
left_behind AS (
    SELECT queue, last_seq - first_seq + 1 AS messages FROM {visibility} WHERE moved_to IS NOT NULL AND bits IS NULL
    UNION ALL
    SELECT queue, bit_count(word)
    FROM (SELECT queue, explode(bits) AS word FROM {visibility} WHERE moved_to IS NOT NULL AND bits IS NOT NULL) AS words
),
moved AS (
    SELECT queue, sum(messages) AS messages FROM left_behind GROUP BY queue
)
SELECT
    queues.name AS queue,
    coalesce(counted.visible, 0) AS visible,
    coalesce(counted.delayed, 0) AS delayed,
    coalesce(counted.locked, 0) AS locked,
    coalesce(counted.in_flight, 0) AS in_flight,
    coalesce(counted.deleted, 0) AS deleted,
    coalesce(counted.expired, 0) AS expired,
    coalesce(moved.messages, 0) AS moved,
    (unix_millis({now}) - unix_millis(counted.oldest)) / 1e3 AS age_of_oldest
FROM {queues} AS queues
LEFT JOIN counted ON counted.queue = queues.name
LEFT JOIN moved ON moved.queue = queues.queue
