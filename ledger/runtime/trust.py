"""The certificates that this machine trusts, for a Java that has only its own certificates."""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from contextlib import suppress
from pathlib import Path

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
# Where common tools look for certificates, and where distributions keep them.
_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_USUAL_PLACES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def trusted_certificates() -> list[bytes]:
    """Return the machine's trusted certificates (DER), each once."""
    named = [os.environ.get(variable) for variable in _VARIABLES]
    bundles = [*named, ssl.get_default_verify_paths().cafile, *_USUAL_PLACES]
    certificates: dict[bytes, None] = {}
    for bundle in bundles:
        if bundle and Path(bundle).is_file():
            certificates.update(dict.fromkeys(_certificates_in(Path(bundle).read_text(errors="replace"))))
    return list(certificates)


def java_trust_store(certificates: list[bytes]) -> bytes:
    """Return a Java key store (JKS) that trusts exactly `certificates`; its password is `changeit`."""
    store = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        store += struct.pack(">I", 2) + _text(f"certificate-{number}") + struct.pack(">q", 0)
        store += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    signature = hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + store).digest()
    return store + signature


def _certificates_in(bundle: str) -> list[bytes]:
    blocks = [block.partition(_END)[0] for block in bundle.split(_BEGIN)[1:]]
    certificates = []
    for block in blocks:
        with suppress(ValueError):  # a broken certificate is left out
            certificates.append(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{block}{_END}"))
    return certificates


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode("ascii")
