"""Commands about recipes and installations: new, check, list, doctor, search, augment, ensemble."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import sys

import pytest

from csv_rows import read_rows
from plait.cli.list import _plural, load_families
from plait.config import list_recipes, read_recipe
from plait.inference.ensemble import Ensemble
from plait.inference.predictor import Predictor
from plait.registry import FAMILIES

load_families()

# --- new ---------------------------------------------------------------------------------


@pytest.fixture
def files(tiny_recipe):
    """The data files of the tiny recipe, which has three tasks in six files."""
    folder = tiny_recipe("given").parent
    (folder / "recipe.toml").unlink()
    return sorted(folder.glob("*.csv"))


def test_files_become_a_recipe_that_trains(plait, files, tiny_encoder, tmp_path):
    out = tmp_path / "mine"
    done = plait("new", out, *files)
    assert done.code == 0, done.err
    assert "Next:" in done.out
    config = read_recipe(out / "recipe.toml")
    assert {name: task.kind.name for name, task in config.tasks.items()} == {
        "mood": "classes",
        "near": "score",
        "same": "binary",
    }
    again = plait("new", out, *files)
    assert "recipe.toml exists already and is not overwritten" in again.complaint()
    assert plait("new", out, *files, "--overwrite").code == 0
    small = [f"encoder.source={tiny_encoder}", "encoder.max_length=32", "train.max_steps=2"]
    words = [word for key in small for word in ("-o", key)]
    done = plait("train", out / "recipe.toml", "--out", tmp_path / "run", *words)
    assert done.code == 0, done.err


def test_every_guess_is_shown_with_its_reason(plait, files, tmp_path):
    done = plait("new", tmp_path / "mine", files[1], "--dry-run")
    assert done.code == 0, done.err
    lines = [line.split()[:3] for line in done.out.splitlines()[:4]]
    assert lines[0] == ["task", "what", "guess"]
    assert lines[1:3] == [["mood", "text", "text"], ["mood", "label", "label"]]
    assert not (tmp_path / "mine").exists()
    for i in range(9):
        (tmp_path / f"t{i}.csv").write_bytes(files[1].read_bytes())
    done = plait("new", tmp_path / "mine", *sorted(tmp_path.glob("t*.csv")), "--dry-run")
    assert [line.split()[0] for line in done.out.splitlines()[1:10]] == [f"t{i}" for i in range(9)]


def test_files_that_are_left_out_come_first(plait, files, tmp_path):
    other = tmp_path / "sizes.csv"
    other.write_text("name,size\na,1\nb,2\n", encoding="utf-8")
    lines = plait("new", tmp_path / "mine", *files, other).out.splitlines()
    assert lines[0].startswith(f"note: left out: {other}: no column looks like a text")
    assert lines[-1].startswith("  plait train ")


def test_the_data_folder_is_named_if_plait_data_is_set(plait, files, tmp_path, monkeypatch):
    assert "--data" not in plait("new", tmp_path / "mine", *files[:2]).out
    monkeypatch.setenv("PLAIT_DATA", str(tmp_path))
    assert f"--data {files[0].parent}" in plait("new", tmp_path / "other", *files[:2]).out


# --- check -------------------------------------------------------------------------------


@pytest.fixture
def recipe(tiny_recipe):
    """The tiny recipe, with a mail address in line 2 of mood's training file and a duplicate."""
    path = tiny_recipe()
    file = path.parent / "mood-train.csv"
    header, *rows = file.read_text().splitlines()
    more = [
        "x1,ask jane@example.org,good",
        "x2,the sea was calm .,good",
        "x3,The sea was calm!,bad",
    ]
    file.write_text("\n".join([header, *more, *rows]))
    return path


def test_a_summary_and_findings(plait, recipe, tmp_path):
    done = plait("check", recipe)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split()[:4] == ["task", "split", "labels", "rows"]
    assert "mood-train.csv, line 3: label good" in done.out
    assert "mood-train.csv, line 2: mail address" in done.out
    assert "jane" not in done.out
    assert done.out.splitlines()[-1].startswith("no errors; ")
    assert "jane@example.org" in plait("check", recipe, "--show").out
    out = tmp_path / "rows.csv"
    told = json.loads(plait("check", recipe, "--json", "--csv", out).out)
    assert [s["rows"] for s in told["splits"]] == [48, 18, 32, 16, 24, 12]
    assert sum(len(f["places"]) or 1 for f in told["findings"]) == len(read_rows(out))


def test_errors_exit_with_2(plait, recipe):
    file = recipe.parent / "mood-train.csv"
    file.write_text(file.read_text() + "\nx9,the end .,fnie\n")
    done = plait("check", recipe)
    assert done.code == 2
    assert "stop: mood train: 1 row cannot be used" in done.out
    assert done.out.splitlines()[-1].startswith("1 error would stop training; ")
    assert plait("check", recipe, "-o", "data.bad_rows=skip").code == 0


# --- list --------------------------------------------------------------------------------


def test_everything_is_listed(plait):
    done = plait("list")
    assert (done.code, done.err) == (0, "")
    for name, table in list_recipes().items():
        assert (f"\n  {name}: " in done.out) == ("about" in table)
    for family, registry in FAMILIES.items():
        assert f"\n{_plural(family)} ({registry.about})\n" in done.out
        for part in registry:
            assert f"\n  {part}: {registry.describe(part)}\n" in done.out


def test_the_parts_are_imported_by_the_command(plait):
    """In a process of its own, where nothing else has imported them."""
    import subprocess

    words = [sys.executable, "-m", "plait", "list", "aggregators"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "\n  pcgrad: " in done.stdout


def test_one_family_and_a_plugin(plait, tmp_path, monkeypatch):
    assert "schedules" not in plait("list", "recipes").out
    monkeypatch.setattr(FAMILIES["schedule"], "_parts", dict(FAMILIES["schedule"]._parts))
    (tmp_path / "mine.py").write_text(
        "from plait.methods.schedules import SCHEDULES\n\n\n"
        '@SCHEDULES.register("cli-test")\nclass Mine:\n    """Mine alone."""\n\n'
        "    def __init__(self, *, depth: int = 7):\n        pass\n"
    )
    done = plait("list", "schedules", "--plugin", tmp_path / "mine.py")
    assert done.out.startswith("schedules (")
    assert "  cli-test: Mine alone.\n      depth: int = 7\n" in done.out
    gone = plait("list", "--plugin", tmp_path / "none.py")
    assert (gone.code, gone.out) == (2, "")


# --- doctor ------------------------------------------------------------------------------


def test_a_sound_installation(plait):
    done = plait("doctor")
    assert (done.code, done.err) == (0, "")
    for name in ("plait ", "Python ", "torch ", "numpy ", "pyarrow ", "cpu: ", "cache in "):
        assert name in done.out
    assert done.out.endswith("No problems found.\n")


def test_a_missing_package(plait, monkeypatch):
    real = importlib.metadata.version

    def version(name):
        if name in ("pyarrow", "tensorboard"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    done = plait("doctor")
    assert done.code == 1
    assert " broken  pyarrow is not installed: run `pip install pyarrow`\n" in done.out
    assert "   note  tensorboard is not installed" in done.out
    assert done.err == "plait: 1 problem; see above\n"


def test_a_package_that_cannot_be_imported(plait, monkeypatch):
    def fail():
        raise ImportError("libtorch.so: no such file\nmore")

    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_devices", fail)
    done = plait("doctor")
    assert done.code == 1
    assert " broken  ImportError: libtorch.so: no such file\n" in done.out
    assert "cache in" in done.out  # the other checks run


def test_folders_and_an_encoder_that_is_not_installed(plait, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    plait("--version")  # removes PLAIT_DATA before it is set here
    monkeypatch.setenv("PLAIT_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("plait.model.sources.PACKAGE", "no_such_encoder")
    done = plait("doctor")
    assert done.code == 1
    assert f" broken  PLAIT_DATA is {tmp_path / 'nowhere'}, which is not a folder" in done.out
    assert " broken  the cache folder " in done.out
    assert "   note  the packaged encoder is not installed: run `pip install" in done.out
    assert done.err == "plait: 2 problems; see above\n"


# --- search ------------------------------------------------------------------------------


@pytest.fixture
def search(tiny_recipe, tmp_path):
    """The words of a small search."""
    pytest.importorskip("optuna")
    space = '[search.space]\n"train.lr" = {values = [1e-9, 3e-3]}\n'
    (tmp_path / "space.toml").write_text(space, encoding="utf-8")
    more = ["-o", tmp_path / "space.toml", "--out", tmp_path / "the out"]
    return ["search", tiny_recipe(), *more, "-o", "train.tasks=['mood']"]


def test_a_search(plait, search, tmp_path):
    done = plait(*search, "--trials", 3, "--holdout", "0.5")
    assert done.code == 0, done.err
    table, _, after = done.out.partition("\n\n")
    assert table.splitlines()[0].split() == ["trial", "state", "sum", "train.lr"]
    assert len(table.splitlines()) == 4
    best = tmp_path / "the out" / "best.toml"
    assert shlex.join(["plait", "train", str(best)]) in after
    assert re.search(r"^trial 1: train\.lr = ", done.err, re.M)
    again = plait(*search, "--holdout", "0.5", "--trials", 4)
    (command,) = re.findall(r"`(plait search .*--resume)`", again.complaint())
    resumed = plait(*shlex.split(command)[1:])
    assert resumed.code == 0, resumed.err
    assert len(resumed.out.partition("\n\n")[0].splitlines()) == 5


def test_a_search_without_a_score(plait, search, tmp_path, monkeypatch):
    space = '[search.space]\n"encoder.max_length" = {values = [4096, 2048]}\n'
    (tmp_path / "space.toml").write_text(space, encoding="utf-8")
    done = plait(*search, "--trials", 1)
    assert done.code == 2
    assert "All trials failed. First error: " in done.err
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'plait[search]'" in plait(*search).complaint()


# --- augment -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "task", "columns"),
    [("pairs", "same", ["a", "b", "similarity"]), ("words", "mood", ["text"])],
)
def test_unlabelled_rows_for_a_student(
    plait, tiny_recipe, trained, tmp_path, method, task, columns
):
    recipe, out = tiny_recipe(), tmp_path / "new.csv"
    words = ["--method", method, "--task", task, "--count", 20, "--out", out]
    gone = ["-o", "tasks.near.test='gone.csv'"]
    done = plait("augment", recipe, *words, *gone)
    assert done.code == 0, done.err
    assert "gone.csv does not exist, so its texts cannot be left out" in done.err
    rows = read_rows(out)
    assert list(rows[0]) == columns
    assert done.out.startswith(f"{len(rows)} ")
    told = done.out.splitlines()[1].removeprefix("To train on them: ").partition(" in [tasks.")[0]
    key, _, value = told.partition(" = ")
    kind = f"stage.distill.kind={{name='distill', teacher='{trained}'}}"
    overrides = ["-o", "stages=['distill']", "-o", kind, "-o", f"tasks.{task}.{key}={value}"]
    student = tmp_path / "student"
    done = plait("train", recipe, "--out", student, *overrides, "-o", "train.max_steps=2")
    assert done.code == 0, done.err
    facts = json.loads((student / "run.json").read_text())["data"]
    assert facts["unlabelled"][task]["rows"] == len(rows)


# --- ensemble ----------------------------------------------------------------------------


@pytest.fixture
def second(session_folder, trained, plait):
    """Another run of the recipe of `trained`."""
    run = session_folder / "second"
    if not run.exists():
        done = plait("train", trained / "recipe.toml", "--out", run, "-o", "seed=3")
        assert done.code == 0, done.err
    return run


def test_an_ensemble_works_like_a_run(plait, trained, second, tmp_path):
    both = tmp_path / "both"
    done = plait("ensemble", trained, second, "--out", both)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"The ensemble of 2 runs is in {both}. Next:\n  plait evaluate {both}\n"
    ensemble = Ensemble.load(both)
    assert ensemble.how == "mode"
    values = json.loads(plait("evaluate", both, "--json").out)
    assert values["primary"] == ensemble.evaluate("dev").to_json()["primary"]
    (answer,) = ensemble.predict("mood", ["the film was great ."])
    done = plait("predict", both, "--task", "mood", "the film was great .")
    assert done.out.splitlines()[1] == f"  mood: {answer.label} ({answer.confidence:.0%})"
    done = plait("predict", both, "--split", "test", "--out", tmp_path / "answers")
    assert (done.code, done.err) == (0, "")
    mean = plait("ensemble", trained, "--out", tmp_path / "mean", "--method", "mean")
    assert mean.err == "note: one run is combined with nothing; name several runs\n"
    assert Ensemble.load(tmp_path / "mean").how == "mean"


def test_averaged_weights_are_a_run(plait, trained, second, session_folder, tmp_path):
    soup = tmp_path / "soup"
    words = ["ensemble", trained, second, "--method", "weights", "--out", soup]
    done = plait(*words, "--data", session_folder / "data")
    assert (done.code, done.err) == (0, "")
    assert "mood, 18 dev rows" in done.out
    scores = json.loads((soup / "scores.json").read_text())
    assert scores["dev"] == json.loads(json.dumps(Predictor.load(soup).evaluate().to_json()))
    assert scores["averaged"] == [str(trained), str(second)]
    told = plait("train", soup / "recipe.toml", "--out", soup, "--resume").complaint()
    assert "is an average of runs" in told
