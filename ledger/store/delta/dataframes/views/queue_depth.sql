-- How many messages each queue has in each state: a row per queue. Reads no body.
SELECT
    queues.name AS queue,
    count_if(status = 'visible') AS visible,
    count_if(status = 'delayed') AS delayed,
    count_if(status = 'locked') AS locked,
    count_if(status = 'in flight') AS in_flight,
    count_if(status = 'deleted') AS deleted,
    count_if(status = 'expired') AS expired
FROM {queues} AS queues
LEFT JOIN ({every_message}) AS message ON message.queue = queues.name
GROUP BY queues.name
