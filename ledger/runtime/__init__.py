"""The ledger's needs of a machine: Java, Delta jars, a Spark session, a doctor."""
