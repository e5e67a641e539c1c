"""How notebooks show ledgers, queues and claims: as HTML tables, and as a timeline."""
