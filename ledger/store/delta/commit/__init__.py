"""Commits of decisions: retried until they win, in turns, under the storage's locks."""
