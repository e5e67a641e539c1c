"""The tables' columns and formats, and runs of messages as arrays."""
