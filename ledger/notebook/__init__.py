"""Ledgers, queues and claims in notebooks: as HTML tables, and as a timeline."""
