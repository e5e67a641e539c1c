"""The endpoint, which serves a ledger over HTTP as SQS, for existing clients.

The endpoint is a protocol layer: it reads bytes as a command, and writes the result as bytes. The library does all work
on queues. A request passes these modules from top to bottom, and imports go the same way::

    command.py                  the options of `ledger serve`, and their checks
    serving.py                  uvicorn's sockets, TLS, bounds on request heads, stopping
    application.py              ASGI: bounds on bodies, dispatch to threads and polls, health
    metrics.py                  counts in the text format of Prometheus
    access_log.py               a line for each request, without its body
    polls.py pool.py            long polls that hold no thread; threads for calls, and the order of calls
    handling.py                 one request: verify, read, do, answer
    signatures.py keys.py       SigV4: which key signed, the time, no replays, new keys on SIGHUP
    signed_requests.py          the parts of a signature, in a header or in the query
    json_protocol.py            bytes to a Command, a result or an error to bytes
    query_protocol.py           the same for the Query protocol
    query_json.py               the Query protocol's answers for clients that accept JSON
    service_model.py            botocore's model: actions, parameters, types
    actions/                    the 23 actions, as calls of the library
    shapes.py addresses.py      messages as SQS writes them, and queue URLs
    callers.py                  whether the caller may do this to the queue (the rule: rules/policy_decision.py)
    statuses.py                 names of errors in both protocols, and all HTTP statuses
    wire.py refusals.py         requests and responses as values; errors that the endpoint itself raises

**Concurrency.** One event loop reads and writes. Every call that may touch a table runs in a thread of the pool. The
library groups commits, not the endpoint: threads that change one queue at the same time share its next commit, and each
gets its own answer. One queue may use as many threads as the largest such group has calls. A long poll looks once when
it arrives, on a thread. If the poll finds nothing, it waits as an object in a line (`polls.py`) and holds no thread.

**Promises.** Once the endpoint has read a whole request and verified it, it has two choices. Either it does the whole
request and answers, even while the endpoint stops. Or it refuses the request with RequestThrottled, and does none of
it. A client that disconnects later loses only the answer: its sends are sent, and its received messages are in flight
until their visibility timeout ends. Processes that serve one ledger, and Spark jobs beside them, agree through the
tables alone: commits decide the state of a queue, and the endpoint's memory decides nothing.

**Logging.** The log has kinds of errors and the storage's messages, but no body, attribute, header or key. The access
log has a line for each request, also without these.
"""
