"""Tables that a claim's rows are written to: the write itself, its writers, and what is asked of the tables."""
