"""The endpoint: serves a ledger over HTTP as SQS, for existing clients.

The endpoint is a protocol layer: it reads bytes as a command, and writes the result as bytes. The library does all work
on queues. A request passes these modules from top to bottom, and imports go the same way::

    serving.py                  uvicorn's sockets, TLS, bounds on request heads, stopping
    application.py              ASGI: bounds on bodies, dispatch to threads and polls, health, metrics
    access_log.py               a line for each request, without its body
    polls.py pool.py            long polls that hold no thread; threads for the other calls, and their order
    handling.py                 one request: verify, read, do, answer
    signatures.py keys.py       SigV4: the key that signed, the time, no replays; keys are read again on SIGHUP
    signed_requests.py          the parts of a signature, in a header or in the query
    json_protocol.py            bytes to a Command, a result or an error to bytes; query_protocol.py does the same
    query_json.py               the Query protocol's answers for clients that accept JSON
    service_model.py            botocore's model: actions, parameters, types
    actions/                    the 23 actions, by the library's public names
    shapes.py addresses.py      messages as SQS writes them, and queue URLs
    callers.py                  whether the caller may do this to the queue (the rule: rules/policy_decision.py)
    statuses.py                 names of errors in both protocols, and all HTTP statuses
    wire.py refusals.py         requests and responses as values; errors that the endpoint itself raises

**Concurrency.** One event loop reads and writes; every call that may touch a table runs in a thread of the pool. The
library groups commits, not the endpoint: threads that change one queue at the same time share its next commit, and each
gets its own answer. So the pool is as large as the largest such group. A long poll looks once when it arrives, on a
thread. If it finds nothing, it waits as an object in a line (`polls.py`); 500 polls cost no more than one.

**Promises.** The endpoint accepts a request once it was read whole and verified. Then it either does the request to its
end and answers, even while the endpoint stops, or it refuses the request with RequestThrottled before doing any of it.
A client that disconnects later loses only the answer: its sends are sent, and its received messages are in flight until
their visibility timeout ends. Processes that serve one ledger, and Spark jobs beside them, agree through the tables
alone: the endpoint keeps no state of a queue in memory that a commit does not decide.

**Logging.** The log has kinds of errors and the storage's messages, but no body, attribute, header or key. The access
log has a line for each request, without these as well.
"""
