"""Scripts for Python or spark-submit. Each prints with --help what it does."""
