-- How many messages each queue has in each state: a row per queue. Reads no body.
-- queue: the name of the queue
-- visible: may be received now
-- delayed: were sent with a delay that is not over
-- locked: hidden by Queue.lock
-- in_flight: held by a receiver
-- deleted: acknowledged or purged, and not removed by upkeep yet
-- expired: older than the retention of the queue, and not removed by upkeep yet
-- moved: were moved to another queue, where they count, and are not removed by upkeep yet
-- age_of_oldest: seconds since the oldest message that is still there was sent; null where there is none
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
