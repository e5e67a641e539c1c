"""The analysts' views: their SQL, views of the past, and queries without Spark.

Each view is one file of Spark's SQL. The file begins with a comment on the view, and then has a line `name: text` for
each column. A table's name in braces, such as `{visibility}`, is replaced by the table, and `{now}` by the view's
instant. See `statements.view_statement` for the other names in braces.
"""
