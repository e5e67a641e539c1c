-- How many messages each queue has in each state: a row per queue. Reads no body.
WITH existing AS (
    SELECT queue, segment, count(*) AS messages, count_if(available_at > {now}) AS delayed
    FROM {messages}
    GROUP BY queue, segment
),
recorded AS (
    SELECT queue, segment,
        sum(last_seq - first_seq + 1) AS messages,
        sum(IF(deleted_at IS NOT NULL, last_seq - first_seq + 1, 0)) AS deleted,
        sum(IF(deleted_at IS NULL AND visible_at > {now} AND receipt_id IS NOT NULL, last_seq - first_seq + 1, 0)) AS in_flight,
        sum(IF(deleted_at IS NULL AND visible_at > {now} AND receipt_id IS NULL, last_seq - first_seq + 1, 0)) AS locked
    FROM {visibility}
    WHERE segment <> ''
    GROUP BY queue, segment
)
SELECT
    queues.name AS queue,
    coalesce(sum(existing.messages - existing.delayed - coalesce(deleted, 0) - coalesce(in_flight, 0) - coalesce(locked, 0)), 0) AS visible,
    coalesce(sum(existing.delayed), 0) AS delayed,
    coalesce(sum(locked), 0) AS locked,
    coalesce(sum(in_flight), 0) AS in_flight,
    coalesce(sum(deleted), 0) AS deleted
FROM {queues} AS queues
LEFT JOIN existing ON existing.queue = queues.queue
LEFT JOIN recorded ON recorded.queue = existing.queue AND recorded.segment = existing.segment
GROUP BY queues.name
