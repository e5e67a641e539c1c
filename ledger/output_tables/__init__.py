"""Output tables as delta-rs and Spark reach them: columns, rows, fences, and commits."""
