"""The pages of the documentation become blocks, commands and links for the tests."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "src" / "plait" / "data" / "sample"

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "reproduction").rglob("*.md")),
    SAMPLE / "README.md",
]

_FENCE = re.compile(r"^```(\w*)$")
_FILE = re.compile(r"^<!-- file: (\S+) -->$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    file: str | None
    """Name of the file it is a piece of, where the line before the fence says so."""

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def read_blocks(page: Path, *languages: str) -> list[Block]:
    """Return the fenced blocks of a page, in order; of some languages alone, if named."""
    found, inside, marked = [], None, None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if inside is not None:
            if line == "```":
                language, start, lines = inside
                found.append(Block(page, start, language, "\n".join(lines) + "\n", marked))
                inside = marked = None
            else:
                inside[2].append(line)
        elif fence := _FENCE.match(line):
            inside = (fence[1], number, [])
        elif line.strip():
            named = _FILE.match(line)
            marked = named[1] if named else None
    assert inside is None, f"{page}: the block that begins in line {inside[1]} never ends"
    return [block for block in found if not languages or block.language in languages]


def section_of(block: Block) -> str:
    """Return the title of the second-level section that a block is in."""
    lines = block.page.read_text(encoding="utf-8").splitlines()[: block.line]
    return next((line[3:] for line in reversed(lines) if line.startswith("## ")), "")


def every_block(*languages: str) -> list[Block]:
    """Return the blocks of all pages."""
    return [block for page in PAGES for block in read_blocks(page, *languages)]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


# --- commands ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A `plait` command of a console block, and what the page shows below it."""

    block: Block
    words: tuple[str, ...]
    """Without `plait` itself."""
    shown: str

    def __str__(self) -> str:
        return f"{self.block}: plait {shlex.join(self.words)}"


def plait_commands(block: Block) -> list[Command]:
    """Return the plait commands of a console block, also from inside pipes."""
    found = []
    for entry in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        line, _, shown = entry.partition("\n")
        part: list[str] = []
        for word in [*shlex.split(line, comments=True), ";"]:
            if word in ("|", ">", "<", "&&", ";"):
                if part[:1] == ["torchrun"]:
                    part = part[part.index("-m") + 1 :]
                if part[:1] == ["plait"]:
                    found.append(Command(block, tuple(part[1:]), shown))
                part = []
            else:
                part.append(word)
    return found


# --- links -------------------------------------------------------------------------------


def links(page: Path) -> list[str]:
    """Return where a page's links go."""
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), flags=re.M)
    bare = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in bare}
