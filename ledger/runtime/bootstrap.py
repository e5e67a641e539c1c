"""The project's own environment: `.venv` in the checkout, with the package versions of constraints.lock.

The module uses only the standard library, because it runs before any package is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
OLDEST_PYTHON = (3, 10)

_OFF_VARIABLE = "LEDGER_BOOTSTRAP"
_RESTARTED_VARIABLE = "LEDGER_BOOTSTRAP_RESTARTED"
_STAMP = "ledger-stamp.json"
_UV = "uv==0.13.9"


class BootstrapError(RuntimeError):
    """The environment could not be made."""


def ensure_environment(extras: Iterable[str] = (), folder: str = ".venv") -> None:
    """Continue in the environment in `folder` of the checkout, with the project and `extras`.

    If another Python runs, the call starts the same command with the environment's Python, and does not return. If the
    environment cannot be made, the process ends with a message on stderr.

    With `LEDGER_BOOTSTRAP=off` do nothing: the running Python must have all packages.
    """
    if os.environ.get(_OFF_VARIABLE, "").lower() in ("off", "0", "no"):
        return
    environment = Environment(CHECKOUT, folder)
    try:
        if sys.version_info < OLDEST_PYTHON:
            raise BootstrapError(
                f"Python is {sys.version.split()[0]} and must be at least {'.'.join(map(str, OLDEST_PYTHON))}: "
                "start this script with a newer one"
            )
        environment.bring_up_to_date(extras)
        if environment.is_running():
            os.environ.pop(_RESTARTED_VARIABLE, None)
            return
        if os.environ.get(_RESTARTED_VARIABLE) == str(environment.folder):
            raise BootstrapError(
                f"{environment.python} does not use the environment {environment.folder}: delete that folder and start "
                "again"
            )
    except BootstrapError as error:
        sys.exit(f"ledger: {error}")
    os.environ[_RESTARTED_VARIABLE] = str(environment.folder)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(environment.python, [str(environment.python), *sys.orig_argv[1:]])


class Environment:
    def __init__(self, checkout: Path, folder: str = ".venv") -> None:
        self.checkout = checkout
        self.folder = checkout / folder
        self.python = self.folder / "bin" / "python"

    def is_running(self) -> bool:
        return Path(sys.prefix).resolve() == self.folder.resolve()

    def lacks(self, extras: Iterable[str]) -> bool:
        """Return whether, by the stamp, something is missing or out of date."""
        stamp = self._read_stamp()
        return (
            stamp.get("contents") != self.contents()
            or not set(extras) <= set(stamp.get("extras", ()))
            or not self.python.exists()
        )

    def contents(self) -> str:
        digest = hashlib.sha256(str(self.checkout).encode())
        for name in ("pyproject.toml", "constraints.lock"):
            digest.update((self.checkout / name).read_bytes())
        return digest.hexdigest()

    def record(self, extras: Iterable[str]) -> None:
        written = self.folder / f"{_STAMP}.{os.getpid()}"
        written.write_text(json.dumps({"contents": self.contents(), "extras": sorted(extras)}))
        written.replace(self.folder / _STAMP)

    def bring_up_to_date(self, extras: Iterable[str]) -> None:
        """Create the environment if it does not work, and install what it lacks.

        If several processes call this at once, one works and the others wait. Raises BootstrapError.
        """
        if not self.lacks(extras):
            return
        with _only_one_process(self.checkout / ".venv.lock"):
            if not self.lacks(extras):
                return
            wanted = sorted({*extras, *self._read_stamp().get("extras", ())})
            _say(f"preparing {self.folder} with {', '.join(wanted) or 'no extras'} (once; about a minute)")
            if not self._is_working():
                self._create()
            self._install(wanted)
            self.record(wanted)
            _say("the environment is ready")

    def _read_stamp(self) -> dict[str, Any]:
        try:
            stamp: dict[str, Any] = json.loads((self.folder / _STAMP).read_text())
            return stamp
        except (OSError, ValueError):
            return {}

    def _is_working(self) -> bool:
        probe = f"import sys; sys.exit(sys.version_info < {OLDEST_PYTHON} or sys.prefix == sys.base_prefix)"
        try:
            return subprocess.run([self.python, "-c", probe], capture_output=True).returncode == 0
        except OSError:
            return False

    def _create(self) -> None:
        if shutil.which("uv"):
            # uv does not replace an existing folder without --clear.
            clear = ["--clear"] if self.folder.exists() else []
            command = ["uv", "venv", "--quiet", *clear, "--python", sys.executable, str(self.folder)]
            if _run(command):
                return
        if importlib.util.find_spec("venv") is None:
            raise BootstrapError(_describe_missing_venv("the module venv"))
        # Without ensurepip the environment gets no pip of its own. The running Python's pip can fill it.
        can_seed = importlib.util.find_spec("ensurepip") is not None
        if not can_seed and importlib.util.find_spec("pip") is None:
            raise BootstrapError(_describe_missing_venv("the modules ensurepip and pip"))
        if not _run([sys.executable, "-m", "venv", "--clear", *([] if can_seed else ["--without-pip"]), self.folder]):
            raise BootstrapError(
                f"`python -m venv {self.folder}` failed (see above); {_describe_missing_venv('a working venv')}"
            )

    def _install(self, extras: Sequence[str]) -> None:
        project = f"{self.checkout}[{','.join(extras)}]" if extras else str(self.checkout)
        what = ["--editable", project, "--constraint", str(self.checkout / "constraints.lock")]
        quiet = [] if sys.stderr.isatty() else ["--quiet"]
        configuration = _read_pip_configuration()
        # uv does not read pip's configuration, so pip installs if the configuration names or forbids an index.
        if not configuration.keys() & {"index-url", "no-index"}:
            certificates = configuration.get("cert")
            trust = {"SSL_CERT_FILE": certificates} if certificates and "SSL_CERT_FILE" not in os.environ else {}
            uv = self._find_uv()
            if uv and _run([uv, "pip", "install", *quiet, "--python", self.python, *what], trust):
                return
            _say("installing with uv did not work; installing with pip, which takes longer")
        if not _run([*self._find_pip(), "install", *quiet, *what]):
            raise BootstrapError(
                f"installing into {self.folder} failed (see above). It needs the network, or a package index that "
                "pip is configured for (`pip config list`); when that is given, start again"
            )

    def _find_uv(self) -> str | Path | None:
        """Return the machine's uv, else the environment's, which is installed if missing."""
        on_path = shutil.which("uv")
        if on_path:
            return on_path
        own = self.folder / "bin" / "uv"
        return own if own.exists() or _run([*self._find_pip(), "install", "--quiet", _UV]) else None

    def _find_pip(self) -> list[str | Path]:
        own: list[str | Path] = [self.python, "-m", "pip"]
        if subprocess.run([*own, "--version"], capture_output=True).returncode == 0:
            return own
        if subprocess.run([self.python, "-m", "ensurepip"], capture_output=True).returncode == 0:
            return own
        if importlib.util.find_spec("pip") is not None:
            return [sys.executable, "-m", "pip", "--python", self.python]
        raise BootstrapError(_describe_missing_venv("pip"))


@contextmanager
def _only_one_process(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is preparing the environment; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _read_pip_configuration() -> dict[str, str]:
    output = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    lines = (line.partition("=") for line in output.splitlines())
    return {name.rpartition(".")[2].replace("_", "-"): value.strip("'\"") for name, _, value in lines}


def _describe_missing_venv(missing: str) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"{missing} is missing from {sys.executable}: install it (on Debian and Ubuntu: "
        f"`apt-get install python{version}-venv`), or put `uv` on PATH"
    )


def _run(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> bool:
    """Run a command with its output on stderr; return whether it succeeded."""
    return subprocess.run(command, stdout=2, env={**os.environ, **(environment or {})}).returncode == 0


def _say(message: str) -> None:
    print(f"ledger: {message}", file=sys.stderr, flush=True)
