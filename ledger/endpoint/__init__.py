"""The endpoint, which serves a ledger over HTTP as SQS, for existing clients.

A request passes through most of these modules, about from top to bottom. A module imports only modules of the endpoint
on its line or below::

    command.py                  the options of `ledger serve`
    serving.py                  uvicorn
    application.py              ASGI
    bodies.py metrics.py access_log.py connections.py line_writer.py
    polls.py pool.py            long polls; threads for calls
    handling.py                 one request: verify, read, do, answer
    signatures.py
    query_json.py json_protocol.py query_protocol.py service_model.py
    actions/                    the 23 actions, as calls of the library
    shapes.py addresses.py statuses.py keys.py wire.py

**Concurrency.** One event loop reads requests and writes answers. Every call that may touch a table runs in a thread of
the pool. One queue may use 32 of the default 36 threads, so 32 calls that change one queue can share a commit.

**Promises.** A request that was read and verified is done and answered, or refused with RequestThrottled and not done.
(An action of several commits may have made some of them, see `Exchange.done`.) After an error with the status 500 or
503, the request may have taken effect. A stop waits for answers only a bounded time (`serving.GRACE`). If a client
disconnects after its request was read, a long poll ends, and any other request is done. The state of a queue is in the
tables alone: processes that serve one ledger, and Spark jobs beside them, agree through commits.

**Logging.** The log has kinds of errors and the storage's messages, but no message's body or attribute, and no secret.
Of headers and queries, the log has at most the date, the region and the lifetime of a refused signature.

**Sources.** "Recorded" in a comment means that a recorded answer of SQS shows the fact.
"""
