"""The analysts' views: their SQL, views of the past, and queries without Spark.

A view is a file of Spark's SQL. It begins with a comment on the view, and a line `name: text` for each column.
`statements.view_statement` replaces the names in braces.
"""
