"""The verbs on queues: each decides by the rules, in at most one commit."""
