"""Output tables as delta-rs and Spark reach them: their contents, fences, and commits."""
