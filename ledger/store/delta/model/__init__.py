"""What lies in the tables: their columns and properties, runs of messages as arrays, and how storage fails."""
