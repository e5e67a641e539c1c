"""Builds the programs of the clients, from the registries of their languages, in folders of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent
#: A build from an empty cache, on two busy cores.
BUILD_SECONDS, RUN_SECONDS = 1_500, 300


def build_javascript(folder: Path) -> list[str]:
    """Install what package-lock.json names; return the command that runs the program."""
    _require("node", "npm")
    _run(folder, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    return ["node", "program.mjs"]


def build_go(folder: Path) -> list[str]:
    """Compile with the modules of go.sum; return the command that runs the program."""
    _require("go")
    _run(folder, "go", "build", "-mod=readonly", "-o", "program", ".")
    return [str(folder / "program")]


def build_java(folder: Path) -> list[str]:
    """Resolve what pom.xml names; return the command that compiles and runs the program."""
    _require("java", "mvn")
    _run(folder, "mvn", "--quiet", "--batch-mode", "dependency:build-classpath", "-Dmdep.outputFile=classpath.txt")
    return ["java", "-Dfile.encoding=UTF-8", "-cp", (folder / "classpath.txt").read_text().strip(), "Program.java"]


def build_rust(folder: Path) -> list[str]:
    """Compile with what Cargo.toml names; return the command that runs the program."""
    _require("cargo")
    _run(folder, "cargo", "build", "--quiet")
    return [str(folder / "target" / "debug" / "program")]


def build_python(folder: Path) -> list[str]:
    """Make an environment with what requirements.txt names; return the command that runs the program.

    The environment of the tests has another botocore than the client allows.
    """
    _run(folder, sys.executable, "-m", "venv", "environment")
    python = str(folder / "environment" / "bin" / "python")
    _run(folder, python, "-m", "pip", "install", "--quiet", "--requirement", "requirements.txt")
    return [python, "program.py"]


def run_program(
    name: str, build: Callable[[Path], list[str]], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Build a copy of a client's program in an empty folder and run it there.

    Args:
        name: Its folder beside this module.
        build: One of the functions above.
        folder: Where to build it.
        environment: What the program finds in its environment, beside what the tests have.

    Returns:
        The process, which has ended well.
    """
    copy = folder / name
    # What somebody built in the checkout is left where it is.
    unwanted = shutil.ignore_patterns("node_modules", "target", "environment")
    shutil.copytree(PROGRAMS / name, copy, ignore=unwanted)
    return _run(copy, *build(copy), seconds=RUN_SECONDS, environment=environment)


def _require(*commands: str) -> None:
    """Skip the test, with the reason, where a command is missing."""
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        pytest.skip(f"this client needs {' and '.join(missing)} on PATH")


def _run(
    folder: Path, *command: str, seconds: int = BUILD_SECONDS, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, **(environment or {})}
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=seconds)
    printed = f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {printed}"
    return done
