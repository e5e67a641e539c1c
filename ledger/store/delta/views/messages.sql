-- Every message with the state that follows from what is recorded about it: a row per message.
SELECT
    queues.name AS queue,
    concat(stored.segment, lpad(lower(hex(stored.seq)), 8, '0')) AS message_id,
    {status} AS status,
    coalesce(receive_count, 0) AS receive_count,
    stored.sent_at,
    first_received_at,
    received_at,
    visible_at,
    released_at,
    deleted_at,
    receipt_id,
    stored.body,
    stored.message_attributes,
    stored.lane,
    stored.segment,
    stored.seq
FROM (SELECT *, shiftright(seq, {block_shift}) AS block FROM {messages}) AS stored
JOIN {queues} AS queues ON queues.queue = stored.queue
LEFT JOIN (
    SELECT *, explode(sequence(shiftright(first_seq, {block_shift}), shiftright(last_seq, {block_shift}))) AS block
    FROM {visibility}
    WHERE segment <> ''
) AS recorded
    ON recorded.queue = stored.queue AND recorded.lane = stored.lane AND recorded.segment = stored.segment
    AND recorded.block = stored.block AND stored.seq BETWEEN recorded.first_seq AND recorded.last_seq
