"""What the pages show is true: links, recipes, commands, names, code."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from doc_blocks import (
    PAGES,
    ROOT,
    Block,
    anchors,
    every_block,
    links,
    name_of,
    plait_commands,
    prose,
    read_blocks,
)

import plait
from plait.analysis.audit import read_probes
from plait.cli import app
from plait.config import list_recipes, read_ensemble, read_recipe
from plait.inference.build import build_tasks
from plait.registry import FAMILIES
from plait.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMANDS = typer.main.get_command(app).commands
USAGE_ERROR = typer.BadParameter.__mro__[2]
SHOWN = [command for block in every_block("console") for command in plait_commands(block)]


# --- links and words ---------------------------------------------------------------------


def find_broken(page: Path, link: str) -> str | None:
    """Return what is wrong with a link, or None."""
    if re.match(r"[a-z]+:", link):
        return None
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return "leads nowhere"
    if not target.is_relative_to(ROOT):
        return "leads out of the repository"
    return "no such heading" if anchor and anchor not in anchors(target) else None


def test_links_resolve():
    found = [(name_of(p), link, find_broken(p, link)) for p in PAGES for link in links(p)]
    assert [entry for entry in found if entry[2]] == []


def test_every_page_can_be_reached():
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        inside = [link.partition("#")[0] for link in links(page) if not link.startswith("http")]
        left += [(page.parent / path).resolve() for path in inside if path]
    unreached = [name_of(p) for p in PAGES if p not in seen and "sample" not in p.parts]
    assert unreached == []


BANNED = re.compile(
    r"/work\b|/tmp/|/root\b|/home/|\bTODO\b|\bFIXME\b|\bXXX\b|pypi\.|pythonhosted|index-url",
    re.IGNORECASE,
)


def test_no_banned_words():
    found = {name_of(p): BANNED.findall(p.read_text(encoding="utf-8")) for p in PAGES}
    assert {name: words for name, words in found.items() if words} == {}


def test_lines_are_not_endless():
    """Tables and blocks may be; prose may not."""
    pages = [page for page in PAGES if "reference" not in page.parts]
    lines = [(name_of(page), line) for page in pages for line in prose(page).splitlines()]
    assert [line for line in lines if len(line[1]) > 110 and line[1][0] != "|"] == []


# --- nothing is left out -----------------------------------------------------------------


def test_the_readme_has_every_command():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, command in COMMANDS.items():
        about = command.help.partition("\n")[0].rstrip(".")
        row = rf"\n\| `plait {name}\b[^`]*` \| {re.escape(about[:1].lower() + about[1:])} \|\n"
        assert re.search(row, text), name


def test_the_changelog_has_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{plait.__version__}]" in text


def test_every_variable_of_the_environment_is_explained():
    sources = [p.read_text(encoding="utf-8") for p in (ROOT / "src").rglob("*.py")]
    used = {name for text in sources for name in re.findall(r"PLAIT_[A-Z]+", text)}
    pages = "".join(prose(page) for page in PAGES if "reference" not in page.parts)
    assert used
    assert {name for name in used if name not in pages} == set()


def test_the_page_on_runs_shows_every_file_of_a_run():
    drawn = (ROOT / "src/plait/inference/folders.py").read_text(encoding="utf-8")
    files = re.findall(r"^([a-z]+(?:\.\w+|/))", drawn.split('"""')[1], flags=re.M)
    text = (ROOT / "docs" / "how-to" / "train.md").read_text(encoding="utf-8")
    assert len(files) > 7
    assert [
        name for name in files if f"\n  {name} " not in text and f"\n  {name}\n" not in text
    ] == []


def test_the_readme_draws_every_room():
    rooms = [
        p.name + ("/" if p.is_dir() else "")
        for p in (ROOT / "src" / "plait").iterdir()
        if not p.name.startswith("__") and p.name != "py.typed"
    ]
    tree = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The tree")[2].split()
    assert len(rooms) > 10
    assert [room for room in rooms if room not in tree] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


# --- commands ----------------------------------------------------------------------------


def parse(words: list[str]) -> None:
    """Parse a command line as plait does, without running it."""
    name, *rest = words
    assert name in COMMANDS, f"there is no command {name!r}"
    COMMANDS[name].make_context(name, rest)


def test_there_are_commands_to_look_at():
    assert len(SHOWN) > 20
    assert {command.words[0] for command in SHOWN} == set(COMMANDS)


def find_wrong(commands: Iterable[tuple[str, list[str]]]) -> list[tuple[str, str]]:
    """Return where a command does not parse, and why."""
    found = []
    for where, words in commands:
        try:
            parse(words)
        except (AssertionError, USAGE_ERROR) as error:
            found.append((where, str(error)))
    return found


def test_commands_in_blocks_parse():
    assert find_wrong((str(command), list(command.words)) for command in SHOWN) == []


def test_examples_in_help_parse():
    examples = [
        (name, line.removeprefix("  plait "))
        for name, command in COMMANDS.items()
        for line in command.epilog.splitlines()
        if line.startswith("  plait ")
    ]
    assert {name for name, _ in examples} == set(COMMANDS)
    assert [name for name, example in examples if not example.startswith(name)] == []
    assert find_wrong((name, shlex.split(example)) for name, example in examples) == []


def test_commands_in_sentences_exist():
    wrong = []
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # names removed commands
            continue
        for name, rest in re.findall(r"`plait\s+([a-z]+(?:-[a-z]+)*)([^`]*)`", prose(page)):
            parameters = COMMANDS[name].params if name in COMMANDS else []
            known = {option for p in parameters for option in (*p.opts, *p.secondary_opts)}
            used = set(re.findall(r"(?<=\s)--?[a-z]+(?:-[a-z]+)*", rest))
            if name not in COMMANDS or used - known - {"--help"}:
                wrong.append((name_of(page), f"plait {name}{rest}"))
    assert wrong == []


def test_make_targets_exist():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    wrong = []
    for page in PAGES:
        text = prose(page) + "".join(block.text for block in read_blocks(page, "console", ""))
        named = re.findall(r"(?:`|^\$ |^)make ([a-z-]+)", text, flags=re.M)
        wrong += [(name_of(page), name) for name in set(named) - set(targets)]
    assert wrong == []


def test_a_wrong_command_is_seen():
    for words in (
        ["trian"],
        ["train"],
        ["train", "demo", "--nope"],
        ["evaluate", "r", "--split=x"],
    ):
        assert find_wrong([("here", words)])


# --- code --------------------------------------------------------------------------------


def change_of_demo(text: str) -> str:
    """Make a whole recipe of a fragment: what it changes in the demo."""
    own = tomllib.loads(text)
    lines = [f"{key} = {json.dumps(value)}" for key, value in (("extends", "demo"), ("name", "x"))]
    return "\n".join([line for line in lines if line.split()[0] not in own] + [text])


@pytest.fixture
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what plugins registered."""
    for family in FAMILIES.values():
        monkeypatch.setattr(family, "_parts", dict(family._parts))


@pytest.mark.usefixtures("_own_registry")
@pytest.mark.parametrize("block", every_block("toml"), ids=str)
def test_recipes_are_valid(block: Block, tmp_path: Path):
    """A block with tasks of its own is a recipe; any other must be a change of the demo.

    Or words for an audit.
    """
    own = tomllib.loads(block.text)
    if "probes" in own:
        (tmp_path / "words.toml").write_text(block.text, encoding="utf-8")
        read_probes(tmp_path / "words.toml")
        return
    tasks = own.get("tasks", {})
    whole = (bool(tasks) and all("kind" in task for task in tasks.values())) or "ensemble" in own
    for piece in read_blocks(block.page, "python"):  # plugins that the block may name
        if piece.file:
            with (tmp_path / piece.file).open("a", encoding="utf-8") as file:
                file.write(piece.text)
    for piece in read_blocks(block.page, "toml"):  # recipes that the block may extend
        if piece.file:
            (tmp_path / piece.file).write_text(piece.text, encoding="utf-8")
    path = tmp_path / "recipe.toml"
    path.write_text(block.text if whole else change_of_demo(block.text), encoding="utf-8")
    members = read_ensemble(path).members.values() if "ensemble" in own else [read_recipe(path)]
    for config in members:
        Plan.build(config)
        build_tasks(config)


def test_packaged_recipes_say_what_they_are():
    """Those that are there to be extended are called base."""
    recipes = list_recipes()
    assert [n for n, facts in recipes.items() if not facts.get("about") and "base" not in n] == []


def test_python_and_json_are_valid():
    for block in every_block("python"):
        compile(block.text, str(block), "exec")
    for block in every_block("json"):
        for line in block.text.splitlines():
            json.loads(line)
