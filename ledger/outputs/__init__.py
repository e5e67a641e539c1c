"""Writes of a claim's rows to output tables: the writers, the tables, and the acknowledged messages."""
