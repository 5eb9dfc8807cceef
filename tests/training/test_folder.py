"""A run's folder: read back, refused, and named in words."""

from __future__ import annotations

import re

import pytest
import torch

import plait
from plait.config import differences, read_recipe, to_toml
from plait.errors import RecipeError, RunError
from plait.inference import folders as folder_module
from plait.inference.folders import RunFolder, check_folder, describe_device, opened


def test_the_docstring_lists_what_is_there(runs):
    listed = re.findall(r"^(\S+?)/?(?:  .*)?$", folder_module.__doc__, flags=re.MULTILINE)
    files = {name for name in listed if "." in name or name == "tensorboard"}
    folder = runs.train("a", 'listeners=["tensorboard"]').folder
    later = {"calibration.json", "audit.json", "report.html"}  # what other commands leave there
    assert later < files
    assert files - later == {p.name for p in folder.iterdir()} - {".lock"}


def test_every_path_is_one_that_a_run_writes(runs):
    teacher = runs.train("teacher").folder
    kind = f"stage.distill.kind={{name='distill', teacher='{teacher}'}}"
    folder = RunFolder(runs.train("a", "stages=['distill']", kind).folder)
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


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(RunError, match=r"is not a run: it has no recipe\.toml"):
        RunFolder(tmp_path).read_config()


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ('{"plait": "9.1.0"}', "; the run was made by plait 9.1.0, and this is "),
        (f'{{"plait": "{plait.__version__}"}}', ""),
        ("{", ""),
        (None, ""),
    ],
)
def test_a_recipe_of_another_version_says_so(tmp_path, tiny_recipe, info, told):
    folder = RunFolder(tmp_path)
    written = to_toml(read_recipe(tiny_recipe()))
    folder.recipe.write_text(f"unheard_of = 1\n{written}", encoding="utf-8")
    if info is not None:
        folder.info.write_text(info, encoding="utf-8")
    with pytest.raises(RecipeError, match="unheard_of is not a setting") as error:
        folder.read_config()
    assert ("was made by" in str(error.value)) == bool(told)
    assert told in str(error.value)


def test_json_that_is_missing_or_damaged(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(RunError, match=r"scores\.json is missing: the run is not finished"):
        folder.read_json(folder.scores)
    folder.scores.write_text('{"dev": ')
    with pytest.raises(RunError, match=r"scores\.json is damaged: "):
        folder.read_json(folder.scores)
    folder.scores.write_text("[1]")
    with pytest.raises(RunError, match=r"scores\.json is damaged: it holds no names with values"):
        folder.read_json(folder.scores)


def test_checking_writes_nothing(tmp_path, tiny_recipe):
    config = read_recipe(tiny_recipe())
    check_folder(tmp_path / "new" / "deep", config, resume=False, command="")
    assert not (tmp_path / "new").exists()


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


def test_devices_in_words():
    assert re.fullmatch(r"cpu \(\S+, \d+ cores\)", describe_device(torch.device("cpu")))
