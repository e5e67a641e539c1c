"""The verbs on queues: each decides by the rules over whole lanes, in one commit or none."""
