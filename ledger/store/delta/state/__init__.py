"""The state that a decision reads, and the journal of what a verb did.

State: records as arrays, the listing of messages, their statuses, and the groups of FIFO queues.
"""
