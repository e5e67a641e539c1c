-- Who holds what right now: a row per receipt. Reads no message, so what expired while it was held still counts here.
SELECT
    queues.name AS queue,
    recorded.receipt_id,
    recorded.attempt_id,
    sum(coalesce(
        aggregate(recorded.bits, 0L, (messages, word) -> messages + bit_count(word)),
        recorded.last_seq - recorded.first_seq + 1
    )) AS messages,
    min(recorded.received_at) AS received_at,
    min(recorded.visible_at) AS earliest_deadline,
    max(recorded.visible_at) AS latest_deadline,
    max(recorded.receive_count) AS greatest_receive_count
FROM {visibility} AS recorded
JOIN {queues} AS queues ON queues.queue = recorded.queue
WHERE recorded.receipt_id IS NOT NULL AND recorded.deleted_at IS NULL AND recorded.moved_to IS NULL AND recorded.visible_at > {now}
GROUP BY queues.name, recorded.receipt_id, recorded.attempt_id
