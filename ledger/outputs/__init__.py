"""Writes of a claim's rows to output tables, and the acknowledgement of their messages."""
