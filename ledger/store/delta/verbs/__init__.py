"""The verbs on queues, and a ledger's upkeep, health and repair."""
