"""Writes of a claim's rows to output tables, and their acknowledgement."""
