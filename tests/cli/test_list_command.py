"""`plait list`: nothing registered stays unlisted."""

from __future__ import annotations

import pytest

from plait.cli.list import _plural, load_families
from plait.config import list_recipes
from plait.registry import FAMILIES

PLUGIN = '''
from plait.methods.schedules import SCHEDULES


@SCHEDULES.register("cli-test")
class Mine:
    """Mine alone."""

    def __init__(self, *, depth: int = 7):
        pass
'''

load_families()


def test_everything_is_listed(plait):
    done = plait("list")
    assert (done.code, done.err) == (0, "")
    for name, table in list_recipes().items():
        # Those without `about` are there to be extended.
        assert (f"\n  {name}: " in done.out) == ("about" in table)
    for family, registry in FAMILIES.items():
        assert f"\n{_plural(family)} ({registry.about})\n" in done.out
        for part in registry:
            assert f"\n  {part}: {registry.describe(part)}\n" in done.out
            for setting in registry.settings(part):
                assert f"\n      {setting.show()}\n" in done.out


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_one_family(plait, family):
    done = plait("list", _plural(family))
    assert done.code == 0
    assert done.out.startswith(_plural(family))
    assert all(f"\n  {part}: " in done.out for part in FAMILIES[family])
    assert "recipes (" not in done.out


def test_the_recipes_alone(plait):
    done = plait("list", "recipes")
    assert done.out.startswith("recipes (")
    assert "demo: " in done.out
    assert "schedules" not in done.out


def test_recipes_are_listed_by_folder(plait):
    out = plait("list", "recipes").out
    assert "\n  system A (a published report)\n  a/annealed-ce: " in out
    headings = [line for line in out.splitlines() if line.startswith("  system ")]
    assert len(headings) == 4


def test_a_family_that_is_not_there(plait):
    done = plait("list", "head")
    assert done.code == 2
    assert done.complaint() == "there is no list of 'head'; did you mean 'heads'?"


def test_parts_of_your_own(plait, tmp_path, monkeypatch):
    monkeypatch.setattr(FAMILIES["schedule"], "_parts", dict(FAMILIES["schedule"]._parts))
    (tmp_path / "mine.py").write_text(PLUGIN)
    done = plait("list", "schedules", "--plugin", tmp_path / "mine.py")
    assert "  cli-test: Mine alone.\n      depth: int = 7\n" in done.out
    gone = plait("list", "--plugin", tmp_path / "none.py")
    assert (gone.code, gone.out) == (2, "")
