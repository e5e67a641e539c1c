"""Tables that a claim's rows are written to, as delta-rs and Spark reach them: what is in them, fences, and commits."""
