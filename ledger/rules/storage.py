"""The kinds of storage (by the scheme of a URI), the engines that commit there, and the engines' names for places."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.errors import InvalidParameterValue
from ledger.rules.location import FILE

#: The schemes of S3. delta-rs commits by a put that fails if the file exists (If-None-Match). Spark puts without a
#: condition, and so could overwrite commits of delta-rs.
S3 = ("s3", "s3a")
AZURE = ("abfs", "abfss", "az", "adl")
GCS = ("gs",)
OBJECT_STORES = (*S3, *AZURE, *GCS)
#: Schemes on which commits are atomic between machines, for Spark and for delta-rs.
SAFE_FOR_BOTH = (*AZURE, *GCS)
#: delta-rs does not know these schemes.
SAFE_FOR_SPARK = ("hdfs", "viewfs", "wasb", "wasbs", "dbfs")
#: The caller may ask for another engine.
DELTA_RS_COMMITS = (FILE, *OBJECT_STORES)

PREFIXES = ("aws_", "azure_storage_", "azure_", "google_")
#: The default storage_options. delta-rs's own timeout is 180 seconds, and nobody can interrupt that wait.
DEFAULT_OPTIONS = {"retry_timeout": "30s"}
#: For the very first request, whose error mostly means a wrong name or key.
FIRST_REQUEST = {"max_retries": "2", "retry_timeout": "5s"}
#: Options of Hadoop's S3A, and delta-rs's options for the same.
OF_HADOOP = {
    "fs.s3a.access.key": "aws_access_key_id",
    "fs.s3a.secret.key": "aws_secret_access_key",
    "fs.s3a.session.token": "aws_session_token",
    "fs.s3a.endpoint": "aws_endpoint, with https:// or http:// before it",
    "fs.s3a.endpoint.region": "aws_region",
    "fs.s3a.path.style.access": "aws_virtual_hosted_style_request, its opposite, false if it is not given",
    "fs.s3a.connection.ssl.enabled": "aws_allow_http, its opposite",
    "fs.s3a.assumed.role.arn": "aws_iam_role_arn",
}


def unknown(scheme: str) -> tuple[str, str]:
    if scheme == "s3n":
        return (
            "s3n: has gone from Hadoop, and no other engine ever knew it",
            "Write s3a://..., which is the same place.",
        )
    schemes = ", ".join((*SAFE_FOR_BOTH, *SAFE_FOR_SPARK, *S3))
    fix = f"Known are paths and {schemes}; another one needs Spark, with a Hadoop file system for it."
    return f"{scheme}: is no storage that is known here", fix


def advice_on_reaching(scheme: str) -> str:
    options = "the bucket, and google_service_account or the environment"
    if scheme in S3:
        options = (
            "the bucket and its region; the keys aws_access_key_id and aws_secret_access_key, or those of the "
            "environment or a role; for a store that is not AWS's aws_endpoint, and aws_allow_http for http:"
        )
    if scheme in AZURE:
        options = "the container; azure_storage_account_name and _key, or those of the environment or an identity"
    return f"Look at the storage_options and what belongs to them: {options}"


def for_delta_rs(place: str) -> str:
    """Return delta-rs's name of a place: s3a: is Hadoop's name for S3."""
    return "s3" + place[3:] if place.startswith("s3a:") else place


def for_spark(place: str) -> str:
    """Return Spark's name of a place: s3: has no file system in Hadoop."""
    return "s3a" + place[2:] if place.startswith("s3:") else place


def as_text(options: Mapping[str, object]) -> dict[str, str]:
    if not isinstance(options, Mapping):
        kind = type(options).__name__
        raise InvalidParameterValue("storage_options", kind, "Must be values by names", "Give a dictionary.")
    texts = {}
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, (str, bool, int, float)):
            # Do not show the value: it may be a secret.
            raise InvalidParameterValue(
                "storage_options",
                f"{name}: {type(value).__name__}",
                "Names and values must be text",
                "Write the option as text, or leave it out.",
            )
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def bare(option: str) -> str:
    """Return the name of an option in lower case, without a prefix that delta-rs accepts."""
    name = option.lower()
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)


def with_defaults(given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    given_names = set(map(bare, given))
    return {**{name: value for name, value in defaults.items() if name not in given_names}, **given}


def of_hadoop(options: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first option of Hadoop or Spark, which delta-rs ignores, and the fix."""
    for name in options:
        if name.lower().startswith(("fs.", "spark.")):
            delta_rs_option = OF_HADOOP.get(name.lower().removeprefix("spark.hadoop."))
            return name, f"delta-rs's is {delta_rs_option}." if delta_rs_option else "Give it to Spark's session."
    return None
