"""What needs Spark to move rows: sends, claims, handles and outputs as DataFrames, and the analysts' views."""
