"""The analysts' views: their SQL, views of the past, and queries without Spark.

Each view is one file of Spark's SQL. The file begins with a comment on the view, and then has a line `name: text` for
each column. `{visibility}` and the other names of tables stand for the tables, `{now}` for the instant of the view. See
`statements.view_statement` for the other names in braces.
"""
