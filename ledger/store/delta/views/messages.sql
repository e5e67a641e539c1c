-- Every message with its state: a row per message. A message that was moved (to a dead-letter queue, or back) is a row of
-- the queue that has it now.
-- queue: the name of the queue that has the message
-- message_id: its id, which stays when it is moved
-- status: visible, delayed, locked, in flight, deleted or expired
-- receive_count: how often it was received, without receives whose release did not count; a redrive sets the count to 0
-- first_received_at: when it was received for the first time
-- received_at: when it was received for the last time
-- visible_at: the deadline of its last hold or lock, also after the deadline; after a release, when it becomes visible
-- released_at: when its last receiver gave it back; null if that receiver did not
-- deleted_at: when it was acknowledged, or purged
-- expires_at: when its retention ends
-- receipt_id: the receipt of its last receive
-- dead_letter_source: the queue that it was moved from, as a dead letter or by a redrive
-- body: its text
-- message_attributes: the attributes that its sender gave it
-- message_group_id: its group, on FIFO queues
-- message_deduplication_id: the id by which a second send of it is known, on FIFO queues
-- aws_trace_header: the system attribute AWSTraceHeader of SQS
-- sequence_number: its number in the order of the sends, on FIFO queues
-- sent_at: when it was sent
-- sender_id: the sender, if the send named one
-- lane: the lane of its queue that it is in
-- segment: its segment: messages that one writer wrote
-- seq: its place in the segment
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
    CAST(coalesce(receive_count, 0) AS INT) AS receive_count,
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
