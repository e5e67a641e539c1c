"""How much memory the driver needs for a claim, by its size: each claim in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from contestant import name_of
from folders import linked_copy, remove
from ours import LEASE, QUEUE, Ours, Templates
from timing import say


def growth(templates: Templates, engine: str, messages: int, sizes: list[int | None]) -> list[dict[str, Any]]:
    """Per size, by how many MiB the peak of resident memory grows over claim, extend and delete, once warm."""
    found = []
    for size in sizes:
        root = linked_copy(templates.of(messages)[0])
        command = [sys.executable, __file__, str(root), engine, str(size or 0)]
        answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        remove(root)
        measured = json.loads(answer.splitlines()[-1])
        found.append({"engine": engine, "backlog": messages, "size": name_of(size), **measured})
        say(f"memory: {found[-1]}")
    return found


def _main(root: str, engine: str, size: int) -> None:
    """In the process that is measured."""
    spark, processes = None, {"Python": "self"}
    if engine == "spark":
        from ledger.runtime.session import spark_session

        spark = spark_session("ledger-memory")
        processes["JVM"] = str(spark._jvm.java.lang.ProcessHandle.current().pid())
    templates = Templates(Path(root).parent, spark)
    queue = Ours(templates, engine).open(Path(root)).queue(QUEUE)
    for _ in range(3):
        claim = queue.receive(10, visibility_timeout=LEASE)
        claim.extend()
        claim.release()
    before = {name: _status(process, "VmRSS") for name, process in processes.items()}
    for process in processes.values():
        Path(f"/proc/{process}/clear_refs").write_text("5")  # forgets the peak so far
    claim = queue.receive(size or None, visibility_timeout=LEASE)
    claim.extend()
    claim.delete()
    grown = {name: round(_status(process, "VmHWM") - before[name], 1) for name, process in processes.items()}
    print(json.dumps({"claimed": claim.count, "before": before, "growth": grown}))


def _status(process: str, key: str) -> float:
    """A line of the process's status, in MiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return round(int(line.split()[1]) / 1024, 1)
    raise KeyError(key)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
