"""What mkdocs does to the pages of docs/: it fills in what is generated, and follows links into the checkout.

A page says `<!-- generated: settings -->` where a table made from the code belongs. The words behind the colon are one
of GENERATORS and its arguments. So a reference is right whatever moves, and a page without its generated part still
says what it is about.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

CHECKOUT = Path(__file__).resolve().parents[1]
if str(CHECKOUT) not in sys.path:
    sys.path.insert(0, str(CHECKOUT))

MARKER = re.compile(r"^<!-- generated: (.+?) -->$", re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
#: Where the site has copies of the files of the checkout that pages link to.
COPIES = "checkout"
WIDTH = 100


def cell(text: str) -> str:
    """Return `text` as a cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def settings() -> str:
    """Return each setting of conf/ledger.toml with its default and what the file says of it."""
    text = (CHECKOUT / "conf" / "ledger.toml").read_text().split("[ledger]\n")[1]
    parts = []
    for block in text.strip().split("\n\n"):
        *comment, last = block.splitlines()
        name, value = re.fullmatch(r"(?:# )?(\w+) = (.+)", last).groups()
        says = "\n".join(line.removeprefix("# ") for line in comment)
        is_set = "" if not last.startswith("#") else ", which the file leaves out"
        parts.append(f"### `{name}`\n\nDefault: `{value}`{is_set}\n\n{says}")
    return "\n\n".join(parts)


def attributes() -> str:
    """Return every attribute of a queue, its kind, its bounds and its default."""
    from ledger.rules import attributes as attribute_rules

    rows = []
    for name, kind in {**attribute_rules.ATTRIBUTES, **attribute_rules.FIFO_ATTRIBUTES}.items():
        whose = "ours" if name in attribute_rules.OURS else "SQS"
        if isinstance(kind, attribute_rules.WholeNumber):
            lifted = f"; {kind.lifted:,} with `Limits=UNBOUNDED`" if kind.lifted else ""
            bounds = f"{kind.least:,} to {kind.most:,}{lifted}"
        elif isinstance(kind, attribute_rules.Choice):
            bounds = ", ".join(f"`{word}`" for word in kind.words)
        elif isinstance(kind, attribute_rules.Text):
            bounds = f"a text of at most {kind.longest} characters"
        else:
            bounds = "a JSON document"
        default = "none" if kind.default is None else f"`{kind.default}`"
        rows.append((f"`{name}`", whose, bounds, default))
    return table(("attribute", "whose", "values", "default"), rows)


def commands() -> str:
    """Return the help of every command of `ledger`, as the command prints it."""
    import click

    from ledger.cli.app import application

    def walk(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
        # The settings have the names of --help. Click keeps the option that it makes first.
        settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
        context = click.Context(command, info_name=name, parent=parent, **settings)
        yield f"{'###' if parent else '##'} `{context.command_path}`\n\n```text\n{command.get_help(context)}\n```"
        if isinstance(command, click.Group):
            for sub in command.list_commands(context):
                yield from walk(command.get_command(context, sub), sub, context)

    return "\n\n".join(walk(application, "ledger", None))


def views() -> str:
    """Return the analysts' views and their columns, as the comments in their SQL have them."""
    from ledger.store.delta.views.statements import VIEWS, comments_of

    parts = []
    for name in VIEWS:
        said = comments_of(name)
        rows = [(f"`{column}`", comment) for column, comment in said.columns.items()]
        parts.append(f"### `{name}`\n\n{said.view}\n\n{table(('column', 'what it is'), rows)}")
    return "\n\n".join(parts)


def errors() -> str:
    """Return every error, its code and what it says of itself."""
    from ledger import errors as module

    rows = []
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, module.LedgerError) and kind.__module__ == module.__name__:
            bases = [base.__name__ for base in kind.__bases__ if base is not module.LedgerError]
            code = kind.code if kind.code != "LedgerError" or kind is module.LedgerError else ""
            says = inspect.getdoc(kind) or ""
            rows.append((f"`{name}`", f"`{code}`" if code else "", ", ".join(f"`{base}`" for base in bases), says))
    return table(("error", "`code`", "is also a", "when it is raised"), rows)


def api(*names: str) -> str:
    """Return the references of mkdocstrings to these public names, wherever their modules are."""
    import ledger

    parts = []
    for name in names:
        public = getattr(ledger, name)
        parts.append(f"::: {public.__module__}.{public.__qualname__}")
    return "\n\n".join(parts)


def docstring(module: str) -> str:
    """Return the docstring of a module without its first line, as Markdown: its drawn examples are code."""
    text = inspect.getdoc(importlib.import_module(module)) or ""
    body = text.split("\n", 1)[1].strip()
    # Its titles are underlined; a page has one title of the first rank.
    body = re.sub(r"^(\S.*)\n=+$", r"### \1", body, flags=re.MULTILINE)
    # `::` begins a literal block in a docstring; Markdown needs a fence, for tables of rows are wide.
    return re.sub(
        r"::\n\n((?:    .*\n?|\n(?=    ))+)", lambda found: ":\n\n```text\n" + _dedented(found[1]) + "```\n", body
    )


def _dedented(block: str) -> str:
    return "".join(line.removeprefix("    ") + "\n" for line in block.rstrip("\n").split("\n"))


def module_map() -> str:
    """Return every module of the package by folder, with the first line of its docstring."""
    parts = []
    package = CHECKOUT / "ledger"
    for folder in (package, *sorted(path for path in package.rglob("*") if path.is_dir())):
        files = sorted(folder.glob("*.py"))
        rows, title = [], ""
        for file in files:
            first = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n\n")[0]
            if file.name == "__init__.py":
                title = first
            else:
                rows.append((f"`{file.name}`", first))
        if files:
            name = folder.relative_to(CHECKOUT).as_posix()
            shown = f"\n\n{table(('module', 'what it has'), rows)}" if rows else ""
            parts.append(f"### `{name}/`\n\n{title}{shown}")
    return "\n\n".join(parts)


GENERATORS: dict[str, Callable[..., str]] = {
    "settings": settings,
    "attributes": attributes,
    "commands": commands,
    "views": views,
    "errors": errors,
    "api": api,
    "docstring": docstring,
    "module-map": module_map,
}


def filled_in(markdown: str) -> str:
    """Return a page with its generated parts in place of their markers."""

    def generate(found: re.Match[str]) -> str:
        name, *arguments = found[1].split()
        if name not in GENERATORS:
            raise PluginError(f"No generator is called {name}: there are {', '.join(GENERATORS)}")
        return GENERATORS[name](*arguments)

    return MARKER.sub(generate, markdown)


def outside(link: str, page: str) -> Path | None:
    """Return the file of the checkout that a page's link leads to, if it is none of docs/."""
    target = link.partition("#")[0]
    if "://" in link or link.startswith(("mailto:", "#")) or not target:
        return None
    path = Path(os.path.normpath(CHECKOUT / "docs" / posixpath.dirname(page) / target))
    is_page = path.is_relative_to(CHECKOUT / "docs") and path.is_file()
    return None if is_page or not path.exists() else path


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the checkout that pages link to: readers of the site have no checkout beside it."""
    for file in [file for file in files if file.is_documentation_page()]:
        for _, _, link in LINK.findall(Path(file.abs_src_path).read_text()):
            path = outside(link, file.src_uri)
            if path is not None and path.is_file():
                uri = copied(path)
                if files.get_file_from_path(uri) is None:
                    files.append(File.generated(config, uri, content=path.read_bytes()))
    return files


def copied(path: Path) -> str:
    """Return where the site has a file of the checkout: as text, so that browsers show it."""
    name = path.relative_to(CHECKOUT).as_posix()
    return f"{COPIES}/{name}" if path.suffix in (".png", ".txt") else f"{COPIES}/{name}.txt"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the generated parts, and lead links into the checkout to the site's copies."""
    here = posixpath.dirname(page.file.src_uri) or "."

    def led(found: re.Match[str]) -> str:
        path = outside(found[3], page.file.src_uri)
        if path is None:
            return found[0]
        if path.is_dir():
            return found[2]
        return f"{found[1]}[{found[2]}]({posixpath.relpath(copied(path), here)})"

    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(led, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return filled_in("".join([*parts, LINK.sub(led, markdown[at:])]))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Watch what pages are generated from, for `mkdocs serve`."""
    watched: list[Any] = [str(CHECKOUT / "ledger"), str(CHECKOUT / "conf")]
    config.watch.extend(watched)
    return config
