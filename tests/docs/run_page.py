"""Run the blocks of pages in order, each page in a folder of its own: `python -m tests.docs.run_page PAGE ...`.

Pages that use Spark share a JVM. They share nothing else. A name that ends in .py is a program, run as it stands.
Python blocks share one namespace. Blocks for a shell share the environment that they export. A block whose first line
names a file is written to that file. tests/docs/scenes.py says what is there before, and what must be so after.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.running import shell
from tests.docs.pages import Block, page
from tests.docs.scenes import SCENES, Scene


def run_shell(code: str) -> str:
    """Run a block in bash, keep what it exports, and return its output. Raises where a line fails."""
    script = f"set -euo pipefail\n{code}\nenv -0 > .exported"
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    if run.returncode:
        raise AssertionError(f"{code}\nexit code {run.returncode}\n{run.stdout}{run.stderr}")
    exported = Path(".exported").read_text().split("\0")
    os.environ.update(line.split("=", 1) for line in exported if "=" in line)
    Path(".exported").unlink()
    return run.stdout


def run_lines(code: str) -> str:
    """Run a block of `ledger` commands in this process, which takes a tenth of the time of processes."""
    said = []
    for line in code.splitlines():
        if line.startswith("export "):
            os.environ.update([line.split("#")[0].strip().removeprefix("export ").split("=", 1)])
        elif line.strip():
            said.append(shell(line).out)
    return "".join(said)


def run_block(block: Block, scene: Scene, names: dict, said: list[str]) -> None:
    """Run one block, or write the file that it is."""
    code = block.code
    for before, after in scene.replaced.items():
        code = code.replace(before, after)
    if block.file is not None:
        Path(block.file).parent.mkdir(parents=True, exist_ok=True)
        Path(block.file).write_text(code)
    elif block.language == "python":
        exec(compile(code, "a block", "exec"), names)
    else:
        said.append((run_lines if scene.in_process else run_shell)(code))


def enter(folder: Path) -> None:
    """Make a folder this process's own, and the JVM's, if there is one."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    context = active_context()
    if context is not None:
        hadoop = context._jvm.org.apache.hadoop.fs
        files = hadoop.FileSystem.get(context._jsc.hadoopConfiguration())
        files.setWorkingDirectory(hadoop.Path(f"file://{folder}"))


def active_context():
    """Return the Spark context of this process; None where there is none."""
    pyspark = sys.modules.get("pyspark")
    return None if pyspark is None else pyspark.SparkContext._active_spark_context


def has_jvm() -> bool:
    """Tell whether this process has started a JVM."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._gateway is not None


def run_page(name: str) -> None:
    """Run a page, or a program, in this folder. Raises where a block fails, or its scene is not so after."""
    scene, names, said = SCENES.get(name, Scene()), {"__name__": "__main__"}, []
    blocks = page(name).to_run if name.endswith(".md") else [Block("python", page(name).text, None, None)]
    scene.before()
    for number, block in enumerate(blocks):
        try:
            run_block(block, scene, names, said)
        except BaseException:
            print(f"{name}, block {number + 1}:\n{block.code}", file=sys.stderr)
            raise
    scene.after(names, said)
    assert scene.spark or not has_jvm(), f"{name} started a JVM, and its scene does not say so"


def main(names: list[str]) -> None:
    environment, here = dict(os.environ), Path.cwd()
    for number, name in enumerate(names):
        os.environ.clear()
        os.environ.update(environment)
        enter(here / f"{number}-{Path(name).stem}")
        run_page(name)
    context = active_context()
    if context is not None:
        context.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
