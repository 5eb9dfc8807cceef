"""Recipes: extended, overridden, checked, saved resolved and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plait import config
from plait.config import RunConfig, differences, read_recipe, to_toml
from plait.errors import RecipeError

if TYPE_CHECKING:
    from pathlib import Path

BASE = """
name = "base"

[tasks.mood]
kind = "classes"
labels = 5
text = "sentence"
label = "sentiment"
train = "mood.csv"

[tasks.alike]
kind = "score"
range = [0, 5]
text = ["one", "two"]
train = [{ path = "a.csv", count = 10 }, "b.csv"]
head = { name = "cosine", scale = 2.0 }

[encoder]
pooling = "cls"

[train]
lr = 1e-5
schedule = "round-robin"
aggregator = { name = "pcgrad", seed = 3 }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with base.toml in it."""
    (tmp_path / "base.toml").write_text(BASE)
    return tmp_path


def extend(folder: Path, text: str, parents: str = '"base.toml"') -> RunConfig:
    """Read a recipe of `text` that extends others."""
    (folder / "mine.toml").write_text(f"extends = {parents}\n{text}")
    return read_recipe(folder / "mine.toml")


def refusal(recipe: Path, *overrides: str) -> str:
    """Return the one sentence a recipe is refused with."""
    with pytest.raises(RecipeError) as caught:
        read_recipe(recipe, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- reading and extending ---------------------------------------------------------------


def test_short_forms_are_filled_in(folder):
    recipe = read_recipe(folder / "base.toml")
    mood, alike = recipe.tasks["mood"], recipe.tasks["alike"]
    assert mood.labels == ("0", "1", "2", "3", "4")
    assert [f.path for f in mood.train] == ["mood.csv"]
    assert mood.head == {"name": "linear"}
    assert [(f.path, f.count) for f in alike.train] == [("a.csv", 10), ("b.csv", None)]
    assert recipe.train.schedule == {"name": "round-robin"}
    assert recipe.train.epochs == 3


def test_a_label_map_may_name_labels_by_their_words(folder):
    text = """
[tasks.mood]
labels = ["bad", "so-so", "Good"]
label_map = { awful = "bad", "2" = 1, fine = " good" }
train = ["mood.csv", { path = "more.csv", label_map = { nice = "GOOD" } }]
"""
    mood = extend(folder, text).tasks["mood"]
    assert mood.label_map == {"awful": 0, "2": 1, "fine": 2}
    assert mood.train[1].label_map == {"nice": 2}
    told = refusal(folder / "mine.toml", "tasks.mood.label_map.nice=goood")
    assert "tasks.mood: label_map.nice names no label: 'goood'; did you mean 'good'?" in told


def test_a_file_extends_a_file_beside_it(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.toml").write_text('extends = "../base.toml"\nseed = 1\n[train]\nlr = 1')
    (folder / "top.toml").write_text('extends = "sub/deep.toml"\n[train]\nepochs = 9')
    recipe = read_recipe(folder / "top.toml")
    assert (recipe.name, recipe.seed) == ("base", 1)
    assert (recipe.train.lr, recipe.train.epochs, recipe.encoder.pooling) == (1.0, 9, "cls")


def test_every_packaged_recipe_is_valid():
    for name, table in config.list_recipes().items():
        if table.get("about"):  # the others are there to be extended
            if "ensemble" in table:
                assert config.read_ensemble(name).members
            else:
                assert read_recipe(name).tasks


@pytest.mark.parametrize("spelling", ["a.toml", "sub/../a.toml", "./a.toml"])
def test_a_circle_is_found_however_it_is_spelled(tmp_path, spelling):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.toml").write_text('extends = "b.toml"')
    (tmp_path / "b.toml").write_text(f'extends = "{spelling}"')
    assert "in a cycle" in refusal(tmp_path / "a.toml")


def test_files_that_cannot_be_read(tmp_path):
    assert refusal(tmp_path / "gone.toml") == f"there is no recipe file {tmp_path / 'gone.toml'}"
    (tmp_path / "recipe.toml").write_text('name = "drafted"')
    assert refusal(tmp_path).endswith(f"is a folder; use its recipe: {tmp_path / 'recipe.toml'}")
    (tmp_path / "folder.toml").mkdir()
    assert "cannot read" in refusal(tmp_path / "folder.toml")
    (tmp_path / "latin.toml").write_bytes(b'seed = 1\nname = "caf\xe9"')
    told = f"cannot read {tmp_path / 'latin.toml'}: line 2 is not UTF-8; save the file as UTF-8"
    assert refusal(tmp_path / "latin.toml") == told
    (tmp_path / "bad.toml").write_text('name = "x"\nseed = = 1')
    assert "bad.toml is not valid TOML" in refusal(tmp_path / "bad.toml")
    assert "line 2" in refusal(tmp_path / "bad.toml")


# --- merging -----------------------------------------------------------------------------


def test_tables_merge_and_lists_are_replaced(folder):
    recipe = extend(folder, '[tasks.alike]\nweight = 2.0\ntrain = ["c.csv"]')
    alike = recipe.tasks["alike"]
    assert (alike.weight, alike.range) == (2.0, (0.0, 5.0))
    assert [f.path for f in alike.train] == ["c.csv"]


@pytest.mark.parametrize(
    ("text", "aggregator"),
    [
        ("seed = 4", {"name": "pcgrad", "seed": 4}),
        ('name = "pcgrad"\norder = "random"', {"name": "pcgrad", "seed": 3, "order": "random"}),
        ('name = "cagrad"\nc = 0.5', {"name": "cagrad", "c": 0.5}),
    ],
)
def test_a_renamed_part_starts_anew(folder, text, aggregator):
    assert extend(folder, f"[train.aggregator]\n{text}").train.aggregator == aggregator


def test_settings_join_a_part_or_file_given_by_one_word(folder):
    recipe = extend(folder, "[train.schedule]\ncycles = 2\n[tasks.mood.train]\ncount = 5")
    assert recipe.train.schedule == {"name": "round-robin", "cycles": 2}
    (file,) = recipe.tasks["mood"].train
    assert (file.path, file.count) == ("mood.csv", 5)


def test_stages_lie_over_train(folder):
    recipe = extend(
        folder,
        """
        stages = ["warm", "full"]
        [stage.warm]
        mode = "last-layer"
        tasks = ["mood"]
        aggregator = { seed = 9 }
        regularizers = ["smart"]
        """,
    )
    warm, full = recipe.stage_config("warm"), recipe.stage_config("full")
    assert (warm.mode, warm.tasks, warm.lr) == ("last-layer", ("mood",), 1e-5)
    assert warm.aggregator == {"name": "pcgrad", "seed": 9}
    assert warm.regularizers == ({"name": "smart"},)
    assert full == recipe.train


# --- overriding --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("seed=3", "seed", 3),
        (" seed = 3 ", "seed", 3),
        ("train.lr=2e-5", "train.lr", 2e-5),
        ("encoder.segments=false", "encoder.segments", False),
        ("encoder.pooling=mean", "encoder.pooling", "mean"),
        ('encoder.pooling="mean"', "encoder.pooling", "mean"),
        ("encoder.source=a/b=c", "encoder.source", "a/b=c"),
        ("about=", "about", ""),
        ("about=two words", "about", "two words"),
        ("train.betas=[0.8, 0.9]", "train.betas", (0.8, 0.9)),
        ("train.schedule.cycles=2", "train.schedule", {"name": "round-robin", "cycles": 2}),
        ("train.aggregator.seed=8", "train.aggregator", {"name": "pcgrad", "seed": 8}),
        ("train.aggregator=sum", "train.aggregator", {"name": "sum"}),
        ("train.early_stopping.patience=2", "train.early_stopping.patience", 2),
    ],
)
def test_overrides(folder, override, path, value):
    found = read_recipe(folder / "base.toml", [override])
    for step in path.split("."):
        found = getattr(found, step)
    assert found == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "override 'seed' is not key=value, nor a .toml file"),
        ("=3", "override '=3' is not key=value, nor a .toml file"),
        ("tasks.alike.train.count=3", "train is not a table"),
        ("seed.x=3", "seed is not a table"),
        ("trian.lr=3", "trian is not a setting; did you mean 'train'?"),
        ("train.lrr=3", "train.lrr is not a setting; did you mean 'lr'?"),
        ("lr=3", "lr is not a setting; did you mean train.lr?"),
        ("train.select='sum'", "train.select is not a setting; did you mean select?"),
        ("kind='mlm'", "kind is not a setting; did you mean tasks.NAME.kind or train.kind?"),
    ],
)
def test_overrides_that_cannot_be(folder, override, message):
    (folder / "mine.toml").write_text('extends = "base.toml"\nseed = 1')
    assert message in refusal(folder / "mine.toml", override)


# --- checking ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sed = 1", "sed is not a setting; did you mean 'seed'?"),
        ("[tasks.mood]\nwieght = 1", "tasks.mood.wieght is not a setting; did you mean 'weight'?"),
        (
            "[tasks.mood.train]\ncuont = 1",
            "tasks.mood.train.0.cuont is not a setting; did you mean 'count'?",
        ),
        ("[encoder]\npoling = 1", "encoder.poling is not a setting; did you mean 'pooling'?"),
        ("[data]\nrot = 1", "data.rot is not a setting; did you mean 'root'?"),
        ("[train]\nepoch = 1", "train.epoch is not a setting; did you mean 'epochs'?"),
        (
            "[train.early_stopping]\npatiense = 1",
            "train.early_stopping.patiense is not a setting; did you mean 'patience'?",
        ),
        ("[stage.finetune]\nepoch = 1", "epoch is not a setting; did you mean 'epochs'?"),
        # A task called like a table of its own must not lead the suggestion astray.
        (
            '[tasks.train]\nkind = "binary"\ntext = "t"\nwieght = 1',
            "tasks.train.wieght is not a setting; did you mean 'weight'?",
        ),
        ("[stage.warm]\nlr = 1", "[stage.warm] is not among stages = ['finetune']"),
        ('[train]\ntasks = ["mod"]', "stage 'finetune' names task 'mod'; did you mean 'mood'?"),
        ('[tasks.new]\nkind = "binary"', "tasks.new.text must be set"),
        (
            '[tasks.moods]\nlabel = "x"',
            "tasks.moods.kind must be set; or did you mean tasks.mood?",
        ),
        ("[tasks.mood]\nlabels = 1", "tasks.mood: labels must give the number of classes"),
        ("[tasks.mood]\nkind = 'multi'", "tasks.mood: there is no task-kind 'multi'"),
        ("[train]\nlr = -1.0", "train.lr = -1.0: should be greater than 0"),
        ("[tasks.'my mood']\nkind = 'binary'", "tasks has 'my mood', and a name here has letters"),
        ("[train]\nlr = inf", "train.lr = inf: should be a finite number"),
        ("[train]\nepochs = '3'", "train.epochs = '3': should be a valid integer"),
        ("[train]\nepochs = true", "train.epochs = True: should be a valid integer"),
        ("[train]\nbetas = [0.9, 1.0]", "train.betas.1 = 1.0: should be less than 1"),
        ("[train]\neval_every = 0", "train.eval_every = 0: should be greater than or equal"),
        ("[train]\neval_every = 'day'", "train.eval_every = 'day': should be"),
        ("[train]\nearly_stopping = 3", "train.early_stopping = 3: should be a table"),
        ("[train]\nregularizers = 'smart'", "train.regularizers = 'smart': should be a list"),
        ("name = 'two words'", "name = 'two words': should have letters from A to Z"),
    ],
)
def test_what_is_wrong_is_said(folder, text, message):
    (folder / "mine.toml").write_text(f'extends = "base.toml"\n{text}')
    assert message in refusal(folder / "mine.toml")


def test_a_run_has_a_name_and_a_task(tmp_path):
    (tmp_path / "a.toml").write_text("seed = 1")
    assert refusal(tmp_path / "a.toml") == f"{tmp_path / 'a.toml'}: name must be set"
    (tmp_path / "a.toml").write_text('name = "a"\n[tasks]')
    assert "a.toml: tasks: " in refusal(tmp_path / "a.toml")


# --- saving and comparing ----------------------------------------------------------------

RICH = """
stages = ["warm", "full"]
plugins = ["my.py"]
[tasks.mood]
label_map = { good = 4, "very bad" = 0.5 }
loss = { name = "focal", gamma = 2 }
[tasks.alike]
bad_rows = "skip"
test = { path = "t.csv", text = ["x", "y"], separator = "|", quoting = false }
[train]
regularizers = ["smart", { name = "l2", weights = [1, 2.5] }]
early_stopping = { patience = 2 }
[stage.warm]
eval_every = 10
tasks = ["mood"]
"""


def test_the_resolved_recipe_reads_back_the_same(folder):
    recipe = extend(folder, RICH)
    (folder / "elsewhere").mkdir()
    resolved = folder / "elsewhere" / "resolved.toml"
    resolved.write_text(to_toml(recipe))
    again = read_recipe(resolved)
    assert differences(recipe, again) == []
    assert again == recipe
    assert to_toml(again) == to_toml(recipe)
    assert again.stage_config("warm") == recipe.stage_config("warm")


def test_differences_name_the_key_and_both_values(folder):
    old = read_recipe(folder / "base.toml")
    new = read_recipe(
        folder / "base.toml", ["train.lr=2e-5", "tasks.mood.count=7", "train.aggregator=sum"]
    )
    assert differences(old, new) == [
        "tasks.mood.count: unset -> 7",
        "train.aggregator.name: 'pcgrad' -> 'sum'",
        "train.aggregator.seed: 3 -> unset",
        "train.lr: 1e-05 -> 2e-05",
    ]
    assert differences(old, old) == []
