"""The analysts' views: their SQL, which is Spark's and stands once, the past, and queries without Spark.

A view is a file. The comment that it begins with says what the view is, and then, in lines of `name: text`, what each
of its columns is. `{visibility}` and the like are the tables, `{now}` is the instant.
"""
