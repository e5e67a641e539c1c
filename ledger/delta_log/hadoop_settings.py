"""What a Spark session knows of S3, said in delta-rs's words: its settings are those of Hadoop's S3A."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ledger.errors import InvalidParameterValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Secrets, which Hadoop may have in a store of its own, and delta-rs's names for them.
SECRETS = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
}
#: Amazon's own endpoints, which delta-rs knows by their region.
_AMAZON = re.compile(r"(?:https?://)?s3(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?/?")


def require_s3a(spark: SparkSession) -> None:
    """Raises InvalidParameterValue for a session without the jars of S3."""
    if _settings(spark).getClassByNameOrNull("org.apache.hadoop.fs.s3a.S3AFileSystem") is None:
        raise InvalidParameterValue(
            "spark",
            spark.sparkContext.appName,
            "This session was started without what it takes to read and write S3",
            "ledger.runtime.session starts one: spark_session(s3=True). On a cluster: the lines of conf/spark-s3.conf.",
        )


def storage_options_of(spark: SparkSession, bucket: str) -> dict[str, str]:
    """The storage_options of a bucket that follow from the session's settings; none where these say nothing.

    Credentials that are none of its settings, but come from a provider, delta-rs has to find by itself.
    """
    settings = _settings(spark)

    def of_bucket(name: str) -> str | None:
        value: str | None = settings.getTrimmed(f"fs.s3a.bucket.{bucket}.{name}") or settings.getTrimmed(
            f"fs.s3a.{name}"
        )
        return value

    def secret(name: str) -> str:
        found = settings.getPassword(f"fs.s3a.bucket.{bucket}.{name}") or settings.getPassword(f"fs.s3a.{name}")
        return "".join(found) if found is not None else ""

    options = {ours: found for name, ours in SECRETS.items() if (found := secret(name))}
    region, endpoint = of_bucket("endpoint.region"), of_bucket("endpoint")
    amazon = _AMAZON.fullmatch(endpoint or "s3.amazonaws.com")
    region = region or (amazon["region"] if amazon else None)
    if region:
        options["aws_region"] = region
    if endpoint and not amazon:
        encrypted = of_bucket("connection.ssl.enabled") != "false"
        in_path = of_bucket("path.style.access") == "true"
        options.update(_elsewhere(endpoint, bucket, encrypted=encrypted, in_path=in_path))
    return options


def _settings(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


def _elsewhere(endpoint: str, bucket: str, *, encrypted: bool, in_path: bool) -> dict[str, str]:
    """The options of a server that is not Amazon's."""
    scheme, _, host = endpoint.rpartition("://")
    scheme = scheme or ("https" if encrypted else "http")
    # delta-rs takes an address of the bucket as it is.
    options = {"aws_endpoint": f"{scheme}://{host if in_path else f'{bucket}.{host}'}"}
    if not in_path:
        options["aws_virtual_hosted_style_request"] = "true"
    if scheme == "http":
        options["aws_allow_http"] = "true"
    return options
