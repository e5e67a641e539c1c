"""Writes of a claim's rows to output tables, their writers, and their demands on tables."""
