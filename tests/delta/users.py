"""Real users for tests: processes that root starts, and that become another user."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sources import CHECKOUT

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes two other users")
#: Numbers that no user and no group of a machine has.
ALICE, BOB, READER, GROUP = 64_101, 64_102, 64_103, 64_100

BECOME = """
import importlib, json, os, pkgutil, sys
import ledger
for one in pkgutil.walk_packages(ledger.__path__, "ledger."):
    left_out = ("airflow", "endpoint", "spark", "runtime", "bootstrap", "__main__", "dataframes", "serve")
    if not any(part in one.name for part in left_out):
        importlib.import_module(one.name)
import ledger.cli.diagnosis, ledger.runtime.checks, ledger.runtime.java
import concurrent.futures.thread, deltalake, encodings, importlib.readers, importlib.resources, pyarrow.parquet
for package in (encodings, importlib):
    for one in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if "mbcs" not in one.name and "oem" not in one.name:
            importlib.import_module(one.name)
from ledger import Ledger
user, groups, umask, root, code = int(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
os.setgroups(groups)
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.umask(umask)
said = []
for line in code.split(";"):
    try:
        exec(line.strip())
        said.append("done")
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")
print(json.dumps(said))
"""


def become(user, root, code, umask=0o022, groups=(GROUP,)):
    """What each statement of some code comes to for a user: "done", or its error."""
    command = [sys.executable, "-c", BECOME, str(user), json.dumps(groups), str(umask), str(root), code]
    ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@contextmanager
def folder_of_alice() -> Iterator[Path]:
    """A folder that every user reaches, and in which Alice may make one."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-users-"))
    folder.chmod(0o755)
    os.chown(folder, ALICE, ALICE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


MAKE = 'queue = Ledger.open(root).create_queue("work"); queue.send(["a"] * 20); queue.receive(5, 0)'
USE = (
    'ledger = Ledger.open(root, create=False); queue = ledger.queue("work"); queue.send(["b"] * 5); '
    "claim = queue.receive(8, 600); claim.settle(delete=[m.receipt_handle for m in claim.messages()[:4]]); "
    'ledger.upkeep(); ledger.create_queue("more").send("c"); queue.copy_to(ledger.queue("more")); '
    'assert ledger.sql("SELECT * FROM messages").num_rows'
)
