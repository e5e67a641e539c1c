"""The state that a decision reads: records, listing, statuses, FIFO groups. And the journal of what a verb did."""
