-- Why messages are dead letters: a row for the messages of one dead-letter queue that had the same last receipt, end and
-- reason.
-- queue: the name of the dead-letter queue that has the messages
-- source: the name of the queue that the messages came from
-- cause: released, when the last holder gave the messages back, at once or for later; timed out, when its lease ran out
-- reason: the reason that the last holder gave when it gave the messages back, or hid them for longer
-- owner: the process that held the messages last
-- receipt_id: the last receipt of the messages
-- attempt_id: the attempt id of the last receive, if it had one
-- received_at: when the last holder received the messages
-- ended_at: when the last holder gave the messages back, or its lease ran out
-- messages: how many dead letters the row is about
-- greatest_receive_count: the greatest receive count of one of these messages
-- oldest_sent_at: when the oldest of these messages was sent
-- example: the id of one of these messages
WITH dead AS (
    SELECT queue, message_id, dead_letter_source, receive_count, first_received_at, sent_at, segment, seq,
        shiftright(seq, {block_shift}) AS block
    FROM ({messages_view}) AS message
    WHERE dead_letter_source IS NOT NULL AND status NOT IN ('deleted', 'expired')
),
recorded AS (
    SELECT * EXCEPT (bits), {word} AS word, {bits} AS bits
    FROM (SELECT *, {blocks} FROM {visibility} WHERE moved_to IS NOT NULL) AS left_behind
),
died AS (
    SELECT dead.queue, dead.dead_letter_source, dead.message_id, dead.receive_count, dead.sent_at, recorded.receipt_id,
        recorded.attempt_id, recorded.received_at, recorded.visible_at, recorded.released_at
    FROM dead
    JOIN recorded
        ON recorded.segment = dead.segment AND recorded.block = dead.block AND {is_member_dead}
        AND left(recorded.queue, length(recorded.queue) - 9) = dead.dead_letter_source
        AND left(recorded.moved_to, length(recorded.moved_to) - 9) = dead.queue
        -- A message that was redriven has a later first receive, or none: its record from before does not match.
        AND recorded.first_received_at = dead.first_received_at
),
said AS (
    SELECT receipt_id, visible_at, reason, row_number() OVER (PARTITION BY receipt_id, visible_at ORDER BY version DESC) AS latest
    FROM {receipts} AS events
    WHERE event IN ('released', 'postponed', 'parked', 'extended') AND reason IS NOT NULL
),
owners AS (
    SELECT receipt_id, owner, row_number() OVER (PARTITION BY receipt_id ORDER BY version DESC) AS latest
    FROM {receipts} AS events WHERE event IN ('granted', 'granted again')
)
SELECT
    died.queue,
    died.dead_letter_source AS source,
    CASE WHEN died.released_at IS NULL THEN 'timed out' ELSE 'released' END AS cause,
    said.reason,
    owners.owner,
    died.receipt_id,
    died.attempt_id,
    died.received_at,
    died.visible_at AS ended_at,
    count(*) AS messages,
    max(died.receive_count) AS greatest_receive_count,
    min(died.sent_at) AS oldest_sent_at,
    min(died.message_id) AS example
FROM died
LEFT JOIN said ON said.receipt_id = died.receipt_id AND said.visible_at = died.visible_at AND said.latest = 1
LEFT JOIN owners ON owners.receipt_id = died.receipt_id AND owners.latest = 1
GROUP BY died.queue, died.dead_letter_source, died.released_at, said.reason, owners.owner, died.receipt_id,
    died.attempt_id, died.received_at, died.visible_at
