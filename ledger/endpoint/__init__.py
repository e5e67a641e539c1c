"""The endpoint, which serves a ledger over HTTP as SQS, for existing clients.

A request passes through most of these modules, about from top to bottom. A module imports only modules of the endpoint
on its line or below::

    command.py                  the options of `ledger serve`, and their checks
    serving.py                  uvicorn's sockets, TLS, stopping
    application.py              ASGI: dispatch to threads and polls, health
    bodies.py                   bounds on bodies
    metrics.py                  counts in the text format of Prometheus
    access_log.py               a line for each request, without its body
    connections.py              bounds on connections and on request heads
    line_writer.py              a thread that writes lines
    polls.py pool.py            long polls that hold no thread; threads for calls, and the order of calls
    handling.py                 one request: verify, read, do, answer
    signatures.py keys.py       SigV4: which key signed, the time, no replays, new keys on SIGHUP
    signed_requests.py          the parts of a signature, in a header or in the query
    query_json.py               the Query protocol's answers for clients that accept JSON
    json_protocol.py            JSON to a Command, a result or an error to JSON
    query_protocol.py           the same for the Query protocol, in forms and XML
    service_model.py            botocore's model: actions, parameters, types
    actions/                    the 23 actions, as calls of the library
    shapes.py addresses.py      messages as SQS writes them, and queue URLs
    callers.py                  whether the caller may do an action to a queue (the rule: rules/policy_decision.py)
    statuses.py                 names of errors in both protocols, and all HTTP statuses
    wire.py refusals.py         requests and responses as values; errors that the endpoint itself raises

**Concurrency.** One event loop reads requests and writes answers. Every call that may touch a table runs in a thread of
the pool. At most 32 threads that change one queue at the same time can share a commit, so one queue may use 32 of the
default number of threads.

**Promises.** A request that was read and verified is done and answered, or refused with RequestThrottled and not done.
(An action of several commits may have made some of them, see `Exchange.done`.) After an error with the status 500 or
503, the request may have taken effect. A stop waits for answers only a bounded time (`serving.GRACE`). If a client
disconnects after its request was read, its long poll ends, and any other request is done. The state of a queue is in
the tables alone: processes that serve one ledger, and Spark jobs beside them, agree through commits.

**Logging.** The log has kinds of errors and the storage's messages, but no message's body or attribute, and no secret.
Of headers and queries it has at most the date, the region and the lifetime of a signature that was refused.

**Sources.** "Recorded" means that a recorded answer of SQS shows it.
"""
