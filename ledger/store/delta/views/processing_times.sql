-- How long messages were held until they were acknowledged, and what else happened: a row per queue and hour. The times
-- come from the receipts: a message took as long as from the grant of its claim to the commit that acknowledged it.
-- queue: the name of the queue
-- hour: when the hour begins
-- acknowledged: how many messages were acknowledged: the throughput
-- received: how many messages were received; a message that is received again counts again, but a retry with the same attempt id does not
-- released: how many messages were given back and became visible at once
-- postponed: how many messages were given back for a retry at a planned time, or extended with a reason until that time
-- parked: how many messages were hidden because they failed too often
-- timed_out: how many messages were received again, or became dead letters, after their lease had run out
-- redeliveries: the sum of released, postponed, parked and timed_out
-- p50: the seconds from receive to acknowledgement that 50 in 100 messages did not exceed
-- p95: the seconds that 95 in 100 messages did not exceed
-- p99: the seconds that 99 in 100 messages did not exceed
-- longest: the most seconds from receive to acknowledgement
-- suggested_timeout: six times p99, rounded up to whole seconds, for workers without a heartbeat; null if no message was acknowledged
WITH events AS (
    SELECT queue, event, receipt_id, version, messages, at, visible_at, reason,
        timestamp_millis(unix_millis(at) - unix_millis(at) % 3600000) AS hour
    FROM {receipts} AS every_event
),
-- A lease that was extended with a reason ends as planned, and is no timeout. Earlier releases of this package noted parked
-- messages in this way.
planned AS (
    SELECT DISTINCT queue, receipt_id, visible_at, TRUE AS is_planned
    FROM events WHERE event = 'extended' AND reason IS NOT NULL
),
granted AS (
    SELECT queue, receipt_id, min(at) AS at FROM events WHERE event = 'granted' GROUP BY queue, receipt_id
),
finished AS (
    SELECT events.queue, events.hour, events.messages, events.version, events.receipt_id,
        unix_millis(events.at) - unix_millis(granted.at) AS duration
    FROM events
    JOIN granted ON granted.queue = events.queue AND granted.receipt_id = events.receipt_id
    WHERE events.event = 'deleted'
),
ranked AS (
    SELECT queue, hour, duration,
        sum(messages) OVER (
            PARTITION BY queue, hour ORDER BY duration, version, receipt_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS so_many,
        sum(messages) OVER (PARTITION BY queue, hour) AS all_messages
    FROM finished
),
times AS (
    SELECT
        queue,
        hour,
        min(CASE WHEN so_many * 100 >= all_messages * 50 THEN duration END) AS p50,
        min(CASE WHEN so_many * 100 >= all_messages * 95 THEN duration END) AS p95,
        min(CASE WHEN so_many * 100 >= all_messages * 99 THEN duration END) AS p99,
        max(duration) AS longest
    FROM ranked
    GROUP BY queue, hour
),
counted AS (
    SELECT
        events.queue,
        events.hour,
        sum(CASE WHEN event = 'deleted' AND events.receipt_id IS NOT NULL THEN messages ELSE 0 END) AS acknowledged,
        sum(CASE WHEN event = 'granted' THEN messages ELSE 0 END) AS received,
        sum(CASE WHEN event = 'released' THEN messages ELSE 0 END) AS released,
        sum(CASE WHEN event = 'postponed' OR (event = 'extended' AND reason IS NOT NULL) THEN messages ELSE 0 END) AS postponed,
        sum(CASE WHEN event = 'parked' THEN messages ELSE 0 END) AS parked,
        sum(CASE WHEN event = 'expired' AND is_planned IS NULL THEN messages ELSE 0 END) AS timed_out
    FROM events
    LEFT JOIN planned ON event = 'expired' AND planned.queue = events.queue
        AND planned.receipt_id = events.receipt_id AND planned.visible_at = events.visible_at
    WHERE event IN ('granted', 'deleted', 'released', 'postponed', 'parked', 'expired')
        OR (event = 'extended' AND reason IS NOT NULL)
    GROUP BY events.queue, events.hour
)
SELECT
    queues.name AS queue,
    counted.hour,
    counted.acknowledged,
    counted.received,
    counted.released,
    counted.postponed,
    counted.parked,
    counted.timed_out,
    counted.released + counted.postponed + counted.parked + counted.timed_out AS redeliveries,
    times.p50 / 1e3 AS p50,
    times.p95 / 1e3 AS p95,
    times.p99 / 1e3 AS p99,
    times.longest / 1e3 AS longest,
    CAST(CASE WHEN times.p99 IS NOT NULL THEN greatest(1, ceil(times.p99 * 6 / 1e3)) END AS BIGINT) AS suggested_timeout
FROM counted
JOIN {queues} AS queues ON queues.queue = counted.queue
LEFT JOIN times ON times.queue = counted.queue AND times.hour = counted.hour
