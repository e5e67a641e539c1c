"""What the ledger needs from the machine: a Java, the Delta jars, a Spark session, and a doctor."""
