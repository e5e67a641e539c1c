"""The same texts, model, server and kill for a ledger, for a plain script, and for Celery: see compare.py."""
