"""A recipe whose data has one of everything that checks look for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from plait.analysis.check import Finding, Report, check_recipe
from plait.config import RunConfig, read_recipe

TRAIN = """\
id,text,label
1,the film was great .,good
2,The film was GREAT!,good
3,the book was awful .,bad
4,"the book
was awful",good
5,a,good
6,the walk was lovely .,good
7,write to jane.doe@example.org about the meal,bad
8,the room was dull .,bad
"""
DEV = """\
id,text,label
d1,The walk was lovely,good
d2,the song was superb .,good
d3,the game was boring .,bad
"""


@pytest.fixture
def write_recipe(tmp_path: Path, tiny_encoder: Path) -> Callable[..., RunConfig]:
    """Factory: a recipe of one task, with files of these contents."""

    def make(rows: str = TRAIN, dev_rows: str | None = DEV, **task: object) -> RunConfig:
        (tmp_path / "train.csv").write_text(rows, encoding="utf-8")
        table = {
            "kind": "classes",
            "labels": ["bad", "good"],
            "text": "text",
            "label": "label",
            "id": "id",
            "train": "train.csv",
        }
        if dev_rows is not None:
            (tmp_path / "dev.csv").write_text(dev_rows, encoding="utf-8")
            table["dev"] = "dev.csv"
        recipe = {
            "name": "checked",
            "device": "cpu",
            "data": {"root": str(tmp_path)},
            "encoder": {"source": str(tiny_encoder), "max_length": 12},
            "tasks": {"mood": table | task},
        }
        path = tmp_path / "recipe.toml"
        path.write_text(tomli_w.dumps(recipe), encoding="utf-8")
        return read_recipe(path)

    return make


@pytest.fixture
def report(write_recipe: Callable[..., RunConfig]) -> Report:
    return check_recipe(write_recipe())


def found(report: Report, check: str, split: str = "train") -> Finding:
    """The one finding of a check."""
    (finding,) = [f for f in report.findings if (f.check, f.split) == (check, split)]
    return finding


@pytest.fixture(name="found")
def _found() -> Callable[..., Finding]:
    return found
