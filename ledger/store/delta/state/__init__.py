"""The state that a decision reads: records, listing, states, FIFO groups. And the journal of what a verb did."""
