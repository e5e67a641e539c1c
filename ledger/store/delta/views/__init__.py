"""The analysts' views: their SQL, views of the past, and queries without Spark.

The SQL is Spark's and stands once. A view is a file. Its first comment says what the view is, and then, in lines of
`name: text`, what each of its columns is. `{visibility}` and the like are the tables, `{now}` is the instant.
"""
