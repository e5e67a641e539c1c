"""Credentials of AWS that delta-rs finds by the SDK's rules and obstore does not: through boto3, where it is installed.

obstore finds for itself, as delta-rs does: keys in the options or in the environment, a web identity's token, the role
of a container, and that of a machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.errors import InvalidParameterValue

#: The options of a role to assume: delta-rs's, and the name that it had before.
ROLES = ("iam_role_arn", "s3_assume_role_arn")
#: With one of these obstore needs nobody's help.
SUFFICIENT = ("access_key_id", "skip_signature", "web_identity_token_file", "container_credentials_relative_uri")
BOTO3 = (
    "Install boto3, or give keys: storage_options={'aws_access_key_id': …, 'aws_secret_access_key': …, 'aws_region': …}"
)


def credential_provider(config: Mapping[str, str]) -> Any:
    """What obstore is to ask for credentials, or None: it finds them by itself. `config`: the options of the storage,
    without aws_ before their names, over what the environment says.

    Raises InvalidParameterValue where a role or a profile is configured, and boto3 is not there to follow it.
    """

    def known(name: str) -> str | None:
        return config.get(name) or os.environ.get(f"AWS_{name.upper()}")

    role = next((found for found in map(known, ROLES) if found), None)
    # At another endpoint than AWS's delta-rs does not ask the SDK either.
    elsewhere = known("endpoint") or known("endpoint_url")
    if role is None and (elsewhere or any(map(known, SUFFICIENT)) or known("container_credentials_full_uri")):
        return None
    if role is None and not _has_profile():
        return None
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider
    except ImportError:
        bound = (
            "Credentials by " + ("a role to assume" if role else "a profile of AWS") + " are looked up through boto3"
        )
        raise InvalidParameterValue("storage_options", role or known("profile") or "", bound, BOTO3) from None
    session = boto3.Session(
        aws_access_key_id=known("access_key_id"),
        aws_secret_access_key=known("secret_access_key"),
        aws_session_token=known("session_token"),
        region_name=known("region") or known("default_region"),
    )
    if role is not None:
        name = known("iam_role_session_name") or known("s3_role_session_name") or "ledger"
        return StsCredentialProvider(session, RoleArn=role, RoleSessionName=name)
    # A file that has no credentials in it: those of the machine, perhaps.
    return None if session.get_credentials() is None else Boto3CredentialProvider(session)


def _has_profile() -> bool:
    given = os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    return "AWS_PROFILE" in os.environ or Path(given or "~/.aws/credentials").expanduser().exists()
