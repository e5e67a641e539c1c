"""Loops that work on claims: `Queue.work` for DataFrames and `Queue.consume` for single messages."""
