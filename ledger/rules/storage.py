"""Which kinds of storage keep Delta's commits apart, by the scheme of a URI."""

#: Commits are atomic between machines, for Spark and for delta-rs alike.
AZURE = ("abfs", "abfss", "az", "adl")
GCS = ("gs",)
SAFE_FOR_BOTH = (*AZURE, *GCS)
#: Safe for Spark; delta-rs does not know them.
SAFE_FOR_SPARK = ("hdfs", "viewfs", "wasb", "wasbs", "dbfs")
#: Two drivers lose each other's commits, unless they share a log store that orders them.
S3 = ("s3", "s3a", "s3n")


def unknown(scheme: str) -> tuple[str, str]:
    """The bound and the fix of the error about a scheme that is none of these."""
    known = ", ".join((*SAFE_FOR_BOTH, *SAFE_FOR_SPARK, *S3))
    fix = f"Known are paths and {known}; another one needs Spark, with a file system of Hadoop's for it."
    return f"{scheme}: is no storage that is known here", fix


def log_store_setting(scheme: str) -> str:
    """Spark's setting for the log store of a scheme."""
    return f"spark.delta.logStore.{scheme}.impl"


def orders_commits(log_store: str) -> bool:
    """Whether a log store of S3 keeps the commits of several drivers apart."""
    return log_store.endswith("DynamoDBLogStore")
