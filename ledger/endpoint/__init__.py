"""The endpoint: a ledger as an SQS that existing clients can use. The theory of its operation.

It is a protocol layer: bytes in, a command out, and the result as bytes again; what a queue does is the library's. A
request's way goes down this list, and so do the imports::

    serving.py                  uvicorn's sockets, TLS, heads of requests within bounds, stopping
    application.py              ASGI: bodies within bounds, who waits for what, health and metrics
    access_log.py               a line for each request, without its body
    polls.py pool.py            long polls that hold no thread; threads for the rest, and whose call has the next one
    handling.py                 one request: verified, read, done, answered
    signatures.py keys.py       SigV4: whose key signed it, when, and not twice; keys read anew on SIGHUP
    signed_requests.py          what a request says of its signature, in a header or in its query
    json_protocol.py            bytes to a Command, a result or an error to bytes; query_protocol.py too
    query_json.py               the Query protocol's answers for clients that accept JSON
    service_model.py            botocore's model: which actions, parameters, types there are
    actions/                    the 23, by the library's public names; shapes.py addresses.py: messages and URLs
    callers.py                  may the caller do this to the queue? (the rule: rules/policy_decision.py)
    statuses.py                 what errors are called in both protocols, and all HTTP statuses
    wire.py refusals.py         requests and responses as values; what the endpoint itself refuses

**Concurrency.** One event loop reads and writes; everything that may touch a table runs on the pool. Group commit is
not here: threads that want something of one queue at the same time share its next commit in the library, each with an
answer of its own, so the pool is as large as such a group can be. A long poll looks once when it comes, on a thread;
if it finds nothing it waits as an object in a line (`polls.py`), 500 of them as cheaply as one.

**What is promised.** A request is accepted when it was read whole and verified; from then on it is done to its end and
answered, also while the endpoint stops, or it is refused with RequestThrottled before anything was begun. A client that
goes away after that loses the answer, and nothing else: what it sent is sent, and what it was to receive is in flight
until its visibility timeout ends. Processes that serve one ledger, and Spark jobs beside them, agree through the tables
alone: the endpoint keeps nothing of a queue in memory that a commit does not decide.

**What is logged.** Kinds of errors, and what the storage says; no body, no attribute, no header, no key. The access log
has a line for each request, of which the same holds.
"""
