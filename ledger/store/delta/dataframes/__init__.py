"""DataFrames of sends, claims, receipt handles, outputs and the analysts' views."""
