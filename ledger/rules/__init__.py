"""The rules of the queue: pure functions, without clock and I/O.

They need the standard library only. Instants are integer milliseconds, UTC.
"""
