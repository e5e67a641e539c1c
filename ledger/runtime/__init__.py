"""The ledger's machine: Java, Delta's jars, Spark sessions, storage, threads, signals, progress, and the doctor."""
