"""A run's folder: read back, refused, and named in words."""

from __future__ import annotations

import re

import pytest

from plait.config import differences, read_recipe, to_toml
from plait.errors import RunError
from plait.inference import folders as folder_module
from plait.inference.folders import RunFolder, opened


def test_the_docstring_lists_what_is_there(tiny_run):
    listed = re.findall(r"^(\S+?)/?(?:  .*)?$", folder_module.__doc__, flags=re.MULTILINE)
    files = {name for name in listed if "." in name}
    later = {"calibration.json", "audit.json", "report.html"}  # what other commands leave there
    assert later < files
    assert files - later == {p.name for p in tiny_run.iterdir()} - {".lock"}


def test_every_path_is_one_that_a_run_writes(tiny_run, train_once):
    kind = f"stage.distill.kind={{name='distill', teacher='{tiny_run}'}}"
    folder = RunFolder(train_once("stages=['distill']", "train.max_steps=1", kind))
    properties = [name for name, p in vars(RunFolder).items() if isinstance(p, property)]
    properties.remove("calibration")  # which `plait calibrate` leaves there
    assert len(properties) == 11
    for name in properties:
        assert getattr(folder, name).exists(), name


def test_the_recipe_comes_back_as_it_was(tmp_path, tiny_recipe):
    settings = [
        "stages=['one', 'two']",
        "stage.two={lr=1e-9, schedule={name='sequential', order=['same', 'mood', 'near']}}",
        "train.regularizers=[]",
        "train.early_stopping={patience=3}",
        "tasks.mood.label_map={'so-so'=1, 'bad'=0}",
        'about="quotes \\" and \\\\n ünïcode"',
    ]
    config = read_recipe(tiny_recipe(), settings)
    folder = RunFolder(tmp_path)
    folder.recipe.write_text(to_toml(config), encoding="utf-8")
    assert folder.read_config() == config
    assert not differences(folder.read_config(), config)


def test_opening_makes_the_folder_and_writes_the_recipe_once(tmp_path, tiny_recipe):
    config = read_recipe(tiny_recipe())
    folder = RunFolder(tmp_path / "new" / "deep")
    with opened(folder, config, resume=False, command=""):
        assert folder.read_config() == config
    written = folder.recipe.stat().st_mtime_ns
    with opened(folder, config, resume=True, command=""):
        assert folder.recipe.stat().st_mtime_ns == written


def test_the_lock_ends_with_the_block(tmp_path, tiny_recipe):
    config = read_recipe(tiny_recipe())
    folder = RunFolder(tmp_path / "run")

    def open_it() -> None:
        with opened(folder, config, resume=True, command=""):
            raise ValueError("inside")

    for _ in range(2):
        with pytest.raises(ValueError, match="inside"):
            open_it()
    with (
        opened(folder, config, resume=True, command=""),
        pytest.raises(RunError, match="another process"),
    ):
        open_it()
