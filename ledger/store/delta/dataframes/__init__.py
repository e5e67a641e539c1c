"""All that needs Spark to move rows: sends, claims, handles, outputs and the analysts' views as DataFrames."""
