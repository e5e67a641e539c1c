"""Scripts to run with Python or spark-submit; each says what it does with --help."""
