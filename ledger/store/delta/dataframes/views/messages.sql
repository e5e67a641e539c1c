-- Every message with the state that follows from what is recorded about it: a row per message. A message that was moved
-- (to a dead-letter queue, or back) counts in the queue that has it, and stands there.
WITH stored AS (
    SELECT *, shiftright(seq, {block_shift}) AS block FROM {messages}
),
recorded AS (
    SELECT * EXCEPT (bits), {word} AS word, {bits} AS bits
    FROM (SELECT *, {blocks} FROM {visibility} WHERE segment <> '')
),
placed AS (
    SELECT stored.queue AS queue_id, stored.lane AS lane_here, stored.* EXCEPT (queue, lane, block),
        recorded.* EXCEPT (queue, lane, segment, block, first_seq, last_seq, word, bits)
    FROM stored
    LEFT JOIN recorded
        ON recorded.queue = stored.queue AND recorded.segment = stored.segment AND recorded.block = stored.block
        AND {is_member}
    UNION ALL
    SELECT recorded.queue, recorded.lane, stored.* EXCEPT (queue, lane, block),
        recorded.* EXCEPT (queue, lane, segment, block, first_seq, last_seq, word, bits)
    FROM stored
    JOIN recorded
        ON recorded.queue <> stored.queue AND recorded.segment = stored.segment AND recorded.block = stored.block
        AND {is_member}
),
kept AS (
    SELECT placed.*, queues.name, {expires_at} AS expires_at
    FROM placed
    JOIN {queues} AS queues ON queues.queue = placed.queue_id
    WHERE moved_to IS NULL
)
SELECT
    name AS queue,
    concat(segment, lpad(lower(hex(seq)), 8, '0')) AS message_id,
    {status} AS status,
    coalesce(receive_count, 0) AS receive_count,
    first_received_at,
    received_at,
    visible_at,
    released_at,
    deleted_at,
    expires_at,
    receipt_id,
    left(origin_queue, length(origin_queue) - 9) AS dead_letter_source,
    {fields},
    lane_here AS lane,
    segment,
    seq
FROM kept
