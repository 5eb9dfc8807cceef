"""Parts: registered, listed, checked against their settings, built, and loaded from a file."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pytest

from plait.errors import RecipeError
from plait.registry import FAMILIES, Registry, load_plugin, load_plugins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal as OnlyForTheTypeChecker
    from pathlib import Path


@pytest.fixture
def knots() -> Iterator[Registry]:
    """A family of its own, with two parts."""
    family: Registry = Registry("knot", "Ways to tie.")

    @family.register("bow")
    @dataclass(kw_only=True)
    class Bow:
        """Tie a bow.

        It has loops.
        """

        loops: int = 2
        tight: float = 0.5
        double: bool = False
        side: Literal["left", "right"] = "left"
        ends: tuple[float, float] = (1.0, 1.0)

        def __post_init__(self) -> None:
            if self.loops < 0:
                raise ValueError(f"loops = {self.loops} is below 0")

    @family.register("noose")
    class Noose:
        """Tie a noose."""

        def __init__(self, rope: OnlyForTheTypeChecker, *, length: int, note: str | None = None):
            self.rope, self.length, self.note = rope, length, note

    yield family
    del FAMILIES["knot"]


def test_list_and_describe(knots):
    assert list(knots) == ["bow", "noose"]
    assert FAMILIES["knot"] is knots
    assert knots.describe("bow") == "Tie a bow."
    assert knots["bow"].__name__ == "Bow"


def test_settings_are_the_keyword_only_parameters(knots):
    assert [s.name for s in knots.settings("bow")] == ["loops", "tight", "double", "side", "ends"]
    length, note = knots.settings("noose")
    assert (length.name, length.annotation, length.default) == (
        "length",
        int,
        inspect.Parameter.empty,
    )
    assert (note.annotation, note.default) == (str | None, None)


def test_build_from_a_name_or_a_table(knots):
    assert knots.build("bow", "train.knot").loops == 2
    bow = knots.build({"name": "bow", "loops": 3, "tight": 1, "ends": [1, 2.5]}, "train.knot")
    assert (bow.loops, bow.tight, bow.ends) == (3, 1.0, (1.0, 2.5))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("bwo", "train.knot: no knot 'bwo'; did you mean 'bow'?"),
        ("reef", "train.knot: no knot 'reef'; known: bow, noose"),
        ({"loops": 3}, "train.knot needs a name; known: bow, noose"),
        ({"name": 3}, "train.knot needs a name; known: bow, noose"),
        (
            {"name": "bow", "lops": 3},
            "train.knot.lops is not a setting of knot 'bow'; did you mean 'loops'?",
        ),
        ({"name": "noose"}, "train.knot.length must be set for knot 'noose'"),
        ({"name": "noose", "rope": 1, "length": 2}, "train.knot.rope is not a setting"),
        ({"name": "bow", "loops": -1}, "train.knot: loops = -1 is below 0"),
    ],
)
def test_what_cannot_be_built(knots, table, message):
    with pytest.raises(RecipeError) as caught:
        knots.build(table, "train.knot")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("loops", "3", "valid integer"),
        ("loops", True, "valid integer"),
        ("loops", 3.0, "valid integer"),
        ("tight", "0.5", "valid number"),
        ("tight", True, "valid number"),
        ("tight", float("nan"), "finite number"),
        ("double", 1, "valid boolean"),
        ("double", "yes", "valid boolean"),
        ("side", "up", "'left' or 'right'"),
        ("ends", [1.0], "Field required"),
        ("ends", [1.0, "a"], "valid number"),
        ("ends", 1.0, "valid array"),
    ],
)
def test_settings_are_not_bent(knots, setting, value, message):
    with pytest.raises(RecipeError, match=message) as caught:
        knots.build({"name": "bow", setting: value}, "train.knot")
    assert str(caught.value).startswith(f"train.knot.{setting} = ")


def test_a_type_that_is_not_there_at_run_time(knots):
    @knots.register("odd")
    class Odd:
        """Odd."""

        def __init__(self, *, size: OnlyForTheTypeChecker):
            self.size = size

    with pytest.raises(RecipeError, match=r"knot 'odd': the type .*OnlyForTheTypeChecker"):
        knots.settings("odd")


# --- a user's own file -------------------------------------------------------------------

MINE = '''
from __future__ import annotations
from dataclasses import dataclass
from plait.registry import FAMILIES

@FAMILIES["knot"].register("mine")
@dataclass(kw_only=True)
class Mine:
    """A knot of mine."""
    loops: int = 7
'''


def test_a_plugin_registers_its_parts(knots, tmp_path: Path):
    (tmp_path / "mine.py").write_text(MINE)
    load_plugin(tmp_path / "mine.py")
    assert knots.build("mine", "train.knot").loops == 7
    load_plugin(tmp_path / "mine.py")  # a second run in one process
    assert list(knots) == ["bow", "mine", "noose"]


def write_versions(folder: Path, *names: str) -> list[str]:
    """Write files of one part each, whose default tells which file it is of."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(MINE.replace("= 7", f"= {number}"))
    return [str(folder / name) for name in names]


@pytest.mark.parametrize("names", [("mine.py", "mine_2.py"), ("a/mine.py", "b/mine.py")])
def test_another_recipes_version_of_a_part_takes_its_place(knots, tmp_path: Path, names):
    """Two runs of two versions of a file can be looked at side by side."""
    for number, path in enumerate(write_versions(tmp_path, *names)):
        load_plugins([path])
        assert knots.build("mine", "train.knot").loops == number
        assert [setting.default for setting in knots.settings("mine")] == [number]


@pytest.mark.parametrize("names", [("mine.py", "mine_2.py"), ("a/mine.py", "b/mine.py")])
def test_two_files_of_one_recipe_with_one_name_are_refused(knots, tmp_path: Path, names):
    one, other = write_versions(tmp_path, *names)
    with pytest.raises(RecipeError) as caught:
        load_plugins([one, other])
    assert str(caught.value) == f"knot 'mine' is registered twice: by {one} and {other}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "mine.py fails: ZeroDivisionError: division by zero"),
        ("def", "mine.py fails: SyntaxError: invalid syntax"),
        ("import not_there", "mine.py fails: ModuleNotFoundError: No module named 'not_there'"),
        (MINE.replace("A knot of mine.", ""), "knot 'mine' has no docstring"),
        (MINE.replace('"mine"', '"bow"'), "knot 'bow' is registered twice"),
    ],
)
def test_a_plugin_that_fails_says_so_in_one_sentence(knots, tmp_path: Path, source, message):
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(RecipeError) as caught:
        load_plugin(tmp_path / "mine.py")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
