"""Mutation testing: changes the code that decides in a thousand small ways, and says which changes no test notices.

    python tests/mutation/run.py                      # every module below: minutes for the rules, hours for the store
    python tests/mutation/run.py rules/fifo.py        # one or several of them
    python tests/mutation/run.py store --sample 50    # of a folder's modules, at most 50 mutants each
    python tests/mutation/run.py store/delta/verbs --judges tests/delta    # by these tests alone

The tool is mutmut. It works in .mutation/ and the code stays as it is; it leaves alone constants outside functions and
properties. Which tests judge which module stands in GROUPS. Prints a row a module, and the change of every mutant that
lived and is not explained: by equivalent.toml beside this file, which says why no test could tell it from the code, or
because it only words an error differently. Ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))

from ledger.runtime.bootstrap import ensure_environment  # noqa: E402 - the path comes first

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
#: What mutmut writes down for a mutant is pytest's exit code, or how its process ended. Lived: the tests passed, or
#: there were none (5, 33). Out of time: most of them wait or loop forever, which a test does notice.
LIVED, TIMEOUT = (0, 5, 33), (-24, 24, 36, 152, 255)


class Group(NamedTuple):
    """Modules that the same tests judge, in processes that are forked: of each mutant only the tests that call it run.

    `isolation`: "fork" is from a process that ran all tests before, which is quick; delta-rs has threads that do not
    live through that, so what uses it is forked from a process that ran none ("forkserver").
    `anew`: a mutant that lived is judged once more, in a new process by all of these tests, where there are any. A fork
    knows what the test modules computed when they were imported, before there was a mutant.
    """

    modules: tuple[str, ...]
    judges: tuple[str, ...]
    isolation: str
    anew: tuple[str, ...]


GROUPS = {
    "rules": Group(
        tuple(sorted(f"rules/{file.name}" for file in (CHECKOUT / "ledger/rules").glob("[!_]*.py"))),
        ("tests/rules", "tests/store"),
        "fork",
        ("tests/rules", "tests/store"),
    ),
    "pure": Group(
        (
            "store/protocol.py",
            "store/delta/model/message_runs.py",
            "delta_log/rewrite.py",
            *(f"store/delta/state/{name}.py" for name in ("choosing", "lane_records")),
        ),
        ("tests/store",),
        "fork",
        ("tests/store", "tests/delta", "tests/conformance"),
    ),
    "store": Group(
        tuple(
            f"store/delta/{name}.py"
            for name in (
                *(
                    "state/snapshot",
                    "state/fifo_groups",
                    "state/listing",
                    "state/choosing",
                    "commit/transactions",
                ),
                *("verbs/moving", "verbs/output_writes", "verbs/receiving", "verbs/granting", "verbs/purging"),
                *(
                    "verbs/sending",
                    "verbs/sharing",
                    "verbs/queues",
                    "verbs/upkeep",
                    "verbs/tidying",
                ),
            )
        ),
        ("tests/store", "tests/delta", "tests/conformance", "tests/interleavings", "tests/output"),
        "forkserver",
        (),
    ),
}
PYTEST = ("-p", "tests.mutation.judging", "-p", "no:cacheprovider")


class Survivor(NamedTuple):
    """A mutant that no test noticed: its name and function, the lines it takes away and those it puts there."""

    name: str
    function: str
    before: str
    after: str


def main(asked: list[str], sample: int | None, judges: list[str] | None) -> int:
    """Judge the mutants of the modules that begin with one of `asked` (all, if none), by other tests than the group's
    if given; answer the exit code."""
    unexplained = 0
    for name, group in GROUPS.items():
        modules = [each for each in group.modules if not asked or any(each.startswith(word) for word in asked)]
        if not modules:
            continue
        if judges:
            group = group._replace(judges=tuple(judges), anew=())
        os.chdir(_prepare(name, group))
        mutants = {module: _mutants(module, sample) for module in modules}
        _mutate(modules, [name for names in mutants.values() for name in names] if sample else None)
        print(f"{'module':32} mutants  killed  timeout  lived  equivalent  wording  killed of the rest", flush=True)
        for module, names in mutants.items():
            unexplained += _report(module, names, group)
    return 1 if unexplained else 0


def _prepare(name: str, group: Group) -> Path:
    """A folder for mutmut with the checkout's files as links and its settings, and without an earlier run's tests."""
    work = CHECKOUT / ".mutation" / name
    work.mkdir(parents=True, exist_ok=True)
    for part in ("ledger", "tests", "conf", "jobs", "README.md", "pyproject.toml", "constraints.lock"):
        link = work / part
        link.unlink(missing_ok=True)
        link.symlink_to(CHECKOUT / part)
    shutil.rmtree(work / "mutants/tests", ignore_errors=True)
    (work / "mutants/mutmut-stats.json").unlink(missing_ok=True)
    settings = {
        "source_paths": ["ledger"],
        "only_mutate": [f"ledger/{module}" for module in group.modules],
        "also_copy": ["conf", "jobs", "README.md", "constraints.lock"],
        "pytest_add_cli_args_test_selection": list(group.judges),
        "pytest_add_cli_args": list(PYTEST),
        "process_isolation": [group.isolation],
        "use_git_change_detection": ["false"],
        "on_dependency_change": ["ignore"],
    }
    lines = ["[mutmut]"]
    for key, values in settings.items():
        lines += [f"{key}=", *(f"    {value}" for value in values)] if len(values) > 1 else [f"{key}={values[0]}"]
    (work / "setup.cfg").write_text("\n".join(lines) + "\n")
    return work


def _package(module: str) -> str:
    return f"ledger/{module}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _mutants(module: str, sample: int | None) -> list[str]:
    """The names of a module's mutants, or `sample` of them at equal distances."""
    from mutmut.mutation.file_mutation import mutate_file_contents

    file = f"ledger/{module}"
    names = [f"{_package(module)}.{name}" for name in mutate_file_contents(file, Path(file).read_text()).mutant_names]
    if sample is None or sample >= len(names):
        return names
    return [names[number * len(names) // sample] for number in range(sample)]


def _mutate(modules: list[str], names: list[str] | None) -> None:
    """Let mutmut judge all mutants of these modules, or those of these names. Ends the process if it fails."""
    which = names if names is not None else [f"{_package(module)}.x*" for module in modules]
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", "1", *which]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"mutmut did not come to an end:\n{run.stdout[-2_000:]}{run.stderr[-2_000:]}")


def _report(module: str, names: list[str], group: Group) -> int:
    """Print what came out for a module's mutants; answer how many lived that nobody has explained."""
    file = f"ledger/{module}"
    codes = json.loads(Path(f"mutants/{file}.meta").read_text())["exit_code_by_key"] if names else {}
    explained = _explained()
    lived = [_survivor(file, name) for name in names if codes[name] in LIVED]
    equivalent = [each for each in lived if each[1:] in explained]
    wording = [each for each in lived if each not in equivalent and _only_words(each.before, each.after)]
    lived = [each for each in lived if each in equivalent or each in wording or _lives(each.name, module, group)]
    new = [each for each in lived if each not in equivalent and each not in wording]
    timeouts = sum(codes[name] in TIMEOUT for name in names)
    killed = len(names) - len(lived)
    print(
        f"{module:32} {len(names):7} {killed:7} {timeouts:8} {len(lived):6} {len(equivalent):11} {len(wording):8}"
        f" {killed / max(1, killed + len(new)):8.1%}"
    )
    for each in new:
        print(f"    {each.name}\n      - {each.before}\n      + {each.after}")
    sys.stdout.flush()
    return len(new)


def _lives(name: str, module: str, group: Group) -> bool:
    """Whether a mutant lives in a process of its own, too; its module's own tests come first."""
    if not group.anew:
        return True
    own = f"{group.anew[0]}/test_{Path(module).name}"
    judges = [*([own] if Path("mutants", own).exists() else []), *group.anew]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--rootdir=.", *PYTEST, *judges]
    environment = {**os.environ, "MUTANT_UNDER_TEST": name, "PYTHONPATH": str(Path("mutants").resolve())}
    return subprocess.run(command, cwd="mutants", env=environment, capture_output=True).returncode == 0


def _survivor(file: str, name: str) -> Survivor:
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    lines = get_diff_for_mutant(name, path=file).splitlines()[2:]
    before, after = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return Survivor(name, name.partition("__mutmut_")[0], before, after)


def _only_words(before: str, after: str) -> bool:
    """Whether a mutant differs only in the letters' case of some prose, or by XX around it: in how an error is worded.

    That an error names its field, bound and fix is tested; not each of its words. Prose has a blank in it.
    """
    old, new = (re.findall(r"\"[^\"]*\"|'[^']*'", line) for line in (before, after))
    changed = [(a, b) for a, b in zip(old, new) if a != b]
    alike = re.sub("XX", "", before).lower() == re.sub("XX", "", after).lower()
    return alike and len(old) == len(new) and bool(changed) and all(" " in a for a, _ in changed)


def _explained() -> set[tuple[str, str, str]]:
    """The changes that equivalent.toml lists: function, what the line was, what it became."""
    entries = tomllib.loads(EQUIVALENT.read_text())["equivalent"]
    return {(entry["function"], before, after) for entry in entries for before, after in entry["changes"]}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="below ledger/, or how their names begin (default: all)")
    parser.add_argument("--judges", nargs="+", help="tests to judge by instead of those of GROUPS")
    parser.add_argument("--sample", type=int, help="at most so many mutants of each module, spread over it")
    return parser.parse_args()


if __name__ == "__main__":
    ensure_environment(["mutation"])
    given = _arguments()
    sys.exit(main(given.modules, given.sample, given.judges))
