"""The pages of docs/ and README.md, and their code blocks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.sources import CHECKOUT

DOCS = CHECKOUT / "docs"
#: A comment before a block says why the suite does not run it, or which test runs it. Before the first title it is
#: about all blocks of the page.
MARKER = re.compile(r"<!-- (not run|run by): (.+?) -->")
_BLOCK = re.compile(r"(?:^(?P<marker><!-- .+? -->)\n+)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S)
_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
#: What is shown and is no program: output, and answers.
OUTPUT = ("text",)
RUN = ("python", "sh")


class Block(NamedTuple):
    """A fenced block: its language and code; the name of the file that it is, if its first line says one."""

    language: str
    code: str
    file: str | None
    #: Why it is not run here: ("not run", reason) or ("run by", test); None: the runner runs it.
    elsewhere: tuple[str, str] | None


class Page(NamedTuple):
    """A page of Markdown."""

    name: str
    text: str

    @property
    def path(self) -> Path:
        return CHECKOUT / self.name

    @property
    def blocks(self) -> list[Block]:
        """Every block of the page, in order."""
        of_page = MARKER.search(self.text.partition("\n# ")[0]) if not self.text.startswith("# ") else None
        found = []
        for block in _BLOCK.finditer(self.text):
            marker = MARKER.fullmatch(block["marker"] or "") or of_page
            name = _FILE.match(block["code"])
            elsewhere = (marker[1], marker[2]) if marker else None
            found.append(Block(block["language"], block["code"], name[1] if name else None, elsewhere))
        return found

    @property
    def to_run(self) -> list[Block]:
        """The blocks that the runner runs, or writes as files."""
        return [block for block in self.blocks if block.elsewhere is None and (block.language in RUN or block.file)]

    @property
    def titles(self) -> list[str]:
        """The anchors of the page's titles, as GitHub and mkdocs make them."""
        plain = re.sub(r"^```.*?^```$", "", self.text, flags=re.M | re.S)
        plain_titles = [re.sub(r"[^a-z0-9 _-]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", plain, re.M)]
        return [title.strip().replace(" ", "-") for title in plain_titles]


def page(name: str) -> Page:
    """Return a page by its name in the checkout."""
    return Page(name, (CHECKOUT / name).read_text())


def all_pages() -> list[Page]:
    """Return every page: README.md, and those of docs/."""
    names = ["README.md", *(file.relative_to(CHECKOUT).as_posix() for file in sorted(DOCS.rglob("*.md")))]
    return [page(name) for name in names]


def blocks_of(name: str, language: str) -> list[str]:
    """Return the code of every block of a page in a language."""
    return [block.code for block in page(name).blocks if block.language == language]
