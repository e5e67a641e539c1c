"""The options of `ledger serve` and `jobs/serve.py`, their checks, and the serving."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from ledger.endpoint import keys
from ledger.endpoint.access_log import AccessLog
from ledger.endpoint.application import LOOPBACK_ADDRESSES, Bounds
from ledger.endpoint.connections import MOST_CONNECTIONS, most_connections, raise_limit_of_files
from ledger.endpoint.handling import Endpoint
from ledger.endpoint.keys import KeyRotation
from ledger.endpoint.line_writer import log_in_background
from ledger.endpoint.serving import Server, listen, serve
from ledger.endpoint.signatures import Signatures
from ledger.errors import InvalidParameterValue, LedgerError
from ledger.ledger import Ledger
from ledger.settings import Settings
from ledger.upkeep_daemon import Upkeeper, parse_period

DEFAULT_HOST, DEFAULT_PORT, DEFAULT_THREADS = "127.0.0.1", 9324, Bounds().threads
RECEIPT_RULES = ("fenced", "recorded")
OBJECTS_BEFORE_COLLECTION = 20_000
DEFAULT_UPKEEP, NO_UPKEEP = "5m", "0"
#: How long a stop waits for the running round of upkeep, which ends before its next step.
UPKEEP_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Options:
    """The options of `ledger serve`.

    `keys`, `certificate` and `certificate_key` are paths of files, the last two in PEM. `url` is the beginning of queue
    URLs (None: the address that each client used). `receipts` is the attribute Receipts of new queues. `access_log` is
    a path, or `-` for the standard output. `upkeep_every` is a time (90s, 5m, 1h), or `0` for no upkeep.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    keys: str | None = None
    without_signatures: bool = False
    certificate: str | None = None
    certificate_key: str | None = None
    receipts: str = RECEIPT_RULES[0]
    url: str | None = None
    threads: int = DEFAULT_THREADS
    open_metrics: bool = False
    access_log: str | None = None
    upkeep_every: str = DEFAULT_UPKEEP


def run(
    open_ledger: Callable[[], Ledger],
    options: Options,
    say: Callable[[str], None],
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve the ledger that `open_ledger` returns, until SIGTERM or Ctrl-C. SIGHUP reads the file of keys again.

    Args:
        open_ledger: Is called when the options are checked and the port is bound.
        say: Gets a line when the endpoint serves, and a line for each note or warning.
        announce: If given, gets the URL when the endpoint serves, in place of `say`.

    Raises:
        InvalidParameterValue: An option, an environment variable or a file is wrong, or there is no key.
        LedgerError: The endpoint cannot listen at the address, or `open_ledger` raises the error.
    """
    _require_options(options, os.environ)
    access_log = _open_access_log(options.access_log)
    # A SIGHUP must not end the process before the logs are written.
    with KeyRotation(options.keys) as rotation, log_in_background():
        try:
            announce = announce or (lambda url: say(f"serving at {url}"))
            _serve(open_ledger, options, say, announce, access_log, rotation)
        finally:
            if access_log is not None:
                access_log.close()


def _serve(
    open_ledger: Callable[[], Ledger],
    options: Options,
    say: Callable[[str], None],
    announce: Callable[[str], None],
    access_log: AccessLog | None,
    rotation: KeyRotation,
) -> None:
    try:
        sock = listen(options.host, options.port)
    except OSError as error:
        raise LedgerError(
            f"Cannot listen on {options.host}:{options.port}: {error.strerror}. Give another --host or --port"
        ) from None
    try:
        ledger = open_ledger()
    except BaseException:
        sock.close()
        raise
    new_queues = {"Limits": "SQS", "Lanes": "1", "Receipts": options.receipts}
    signatures = _make_signatures(ledger, options, os.environ)
    endpoint = Endpoint(ledger, signatures, new_queues, options.url)
    port = sock.getsockname()[1]
    scheme = "https" if options.certificate else "http"

    def started(server: Server) -> None:
        _keep_garbage_collection_short()
        host = f"[{options.host}]" if ":" in options.host else options.host
        announce(options.url or f"{scheme}://{host}:{port}")
        if options.keys is not None and signatures is not None:
            rotation.start(lambda: _read_keys(options, os.environ, ledger.settings.account_id), signatures.replace, say)

    connections = most_connections(raise_limit_of_files())
    if connections < MOST_CONNECTIONS:
        say(
            f"this process can open few files, and so takes {connections} connections at once: raise the hard limit "
            "(`ulimit -Hn`, LimitNOFILE= of the service)"
        )
    if not options.certificate and not _is_loopback(options.host):
        say("without TLS others can read requests: give --certificate, or put a proxy with TLS before the endpoint")
    with _upkeep_in_background(ledger, options.upkeep_every):
        serve(
            endpoint,
            sock,
            Bounds(threads=options.threads, connections=connections),
            certificate=options.certificate,
            key=options.certificate_key,
            open_metrics=options.open_metrics,
            access_log=access_log,
            started=started,
        )


@contextlib.contextmanager
def _upkeep_in_background(ledger: Ledger, every: str) -> Iterator[None]:
    """Run rounds of upkeep that are due, in a thread.

    The first look comes at a random time: processes that started together look at different times.
    """
    if every == NO_UPKEEP:
        yield
        return
    period, over = parse_period("upkeep-every", every), threading.Event()
    upkeeper = Upkeeper(ledger, period)
    work = partial(upkeeper.run, over.wait, over.is_set, first=period * random.random())
    thread = threading.Thread(target=work, name="ledger-upkeep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(UPKEEP_GRACE_SECONDS)


def _keep_garbage_collection_short() -> None:
    """Exclude the present objects, which mostly live as long as the process, from the garbage collection.

    Measured by perf with 32 clients, collections took 3 % of the processor time, and found nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION, 20, 20)


def _open_access_log(path: str | None) -> AccessLog | None:
    if path is None:
        return None
    try:
        return AccessLog(path)
    except OSError as error:
        bound = f"It cannot be written ({error.strerror})"
        raise InvalidParameterValue("access-log", path, bound, "Name a file, or - for the standard output.") from None


def _make_signatures(ledger: Ledger, options: Options, environment: Mapping[str, str]) -> Signatures | None:
    if options.without_signatures:
        return None
    return Signatures(
        _read_keys(options, environment, ledger.settings.account_id), ledger.settings.region, ledger.clock
    )


def _read_keys(options: Options, environment: Mapping[str, str], owner: str) -> keys.Keys:
    found_keys = keys.read(options.keys, owner) if options.keys else keys.read_environment(environment, owner)
    if found_keys is None:
        bound = "Requests are signed, and there is no key to verify them with"
        fix = (
            f"Give --keys FILE, or set {keys.ACCESS_KEY} and {keys.SECRET_KEY}; on this machine alone "
            "--without-signatures takes every request."
        )
        raise InvalidParameterValue("keys", None, bound, fix)
    return found_keys


def _require_options(options: Options, environment: Mapping[str, str]) -> None:
    if options.without_signatures and not _is_loopback(options.host):
        bound = "Without signatures the endpoint serves this machine alone"
        raise InvalidParameterValue("without-signatures", options.host, bound, "Leave --host out, or give --keys.")
    if not options.without_signatures:
        # Check before the ledger is opened. `_make_signatures` reads the keys again, with the ledger's owner.
        _read_keys(options, environment, Settings().account_id)
    if not 0 <= options.port <= 65_535:
        raise InvalidParameterValue("port", options.port, "Must be 0 to 65535", "0 takes a free port and prints it.")
    if not 1 <= options.threads <= 256:
        raise InvalidParameterValue("threads", options.threads, "Must be 1 to 256")
    if options.upkeep_every != NO_UPKEEP:
        parse_period("upkeep-every", options.upkeep_every)
    if options.receipts not in RECEIPT_RULES:
        raise InvalidParameterValue("receipts", options.receipts, f"Must be one of {', '.join(RECEIPT_RULES)}")
    if bool(options.certificate) != bool(options.certificate_key):
        raise InvalidParameterValue("certificate", options.certificate, "It goes with --certificate-key", "Give both.")
    for name, place in (("certificate", options.certificate), ("certificate-key", options.certificate_key)):
        if place is not None and not Path(place).is_file():
            raise InvalidParameterValue(name, place, "There is no such file", "Name a file in PEM.")
    if options.certificate and options.certificate_key:
        _require_pair(options.certificate, options.certificate_key)
    if options.url is not None and not _is_base(options.url):
        bound = "Must be an http or https URL with a host, without ? and #"
        raise InvalidParameterValue("url", options.url, bound, "Such as https://sqs.example.")
    if not options.host:
        raise InvalidParameterValue("host", options.host, "Must be an address or a name", "0.0.0.0 is all addresses.")
    if options.without_signatures and options.keys is not None:
        bound = "Is given together with --without-signatures, and would verify nothing"
        raise InvalidParameterValue("keys", options.keys, bound, "Give one of them.")


def _require_pair(certificate: str, key: str) -> None:
    try:
        # Without a password, OpenSSL would ask on the terminal for a key's pass phrase, and a service would hang.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=b"")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        bound = f"It and --certificate-key cannot be read as a certificate and its key ({reason})"
        raise InvalidParameterValue(
            "certificate", certificate, bound, "Both are PEM, the key without a pass phrase."
        ) from None


def _is_base(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not set("?#").intersection(url)
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    return host in (*LOOPBACK_ADDRESSES, "localhost")
