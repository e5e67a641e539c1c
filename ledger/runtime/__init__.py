"""The ledger's needs of a machine: Java, Delta's jars, a Spark session, a doctor."""
