"""The pages that tell a story are lived through, with an encoder small enough for a test."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doc_blocks import ROOT, Command, plait_commands, read_blocks, section_of

import plait
from plait.cli import main
from plait.registry import FAMILIES

TUTORIAL = ROOT / "docs" / "tutorial.md"
ENCODERS = ROOT / "docs" / "how-to" / "encoders.md"
OWN_PART = ROOT / "docs" / "how-to" / "own-part.md"
OWN_DATA = ROOT / "docs" / "how-to" / "own-data.md"
TRAIN = ROOT / "docs" / "how-to" / "train.md"
PYTHON = ROOT / "docs" / "how-to" / "python.md"
DATA = ROOT / "docs" / "how-to" / "data.md"
PREDICT = ROOT / "docs" / "how-to" / "predict.md"


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, and forget what plugins registered."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PLAIT_DATA", raising=False)
    for family in FAMILIES.values():
        monkeypatch.setattr(family, "_parts", dict(family._parts))


class Walk:
    """Goes through a page: writes its files, runs its commands, executes its Python."""

    def __init__(self, capsys: pytest.CaptureFixture[str], encoder: Path | None):
        self.capsys = capsys
        small = [f"encoder.source={str(encoder)!r}", "encoder.max_length=32"]
        self.overrides = [word for key in small for word in ("-o", key)] if encoder else []

    def run(self, page: Path, *titles: str) -> None:
        """Do everything the page, or its sections with these titles, says, in order."""
        for block in read_blocks(page):
            if titles and section_of(block) not in titles:
                continue
            if block.file:
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                with Path(block.file).open("a", encoding="utf-8") as file:
                    file.write(block.text)
            elif block.language == "console":
                for command in plait_commands(block):
                    self.type(command)
            elif block.language == "python":
                exec(compile(block.text, str(block), "exec"), {})

    def type(self, command: Command) -> None:
        """Run one command; one that the page shows failing must fail in the same words."""
        extra = self.overrides if command.words[0] in ("train", "check", "augment") else []
        with pytest.raises(SystemExit) as ended:
            main([*map(os.path.expanduser, command.words), *extra])  # as a shell does
        said = self.capsys.readouterr()
        if command.shown.startswith("plait: "):
            assert ended.value.code == 2, command
            assert said.err == command.shown
        else:
            assert ended.value.code == 0, f"{command}: {said.err}"


@pytest.fixture
def walk(capsys: pytest.CaptureFixture[str], tiny_encoder: Path) -> Walk:
    """A walk with the tiny encoder."""
    return Walk(capsys, tiny_encoder)


@pytest.mark.slow
def test_the_page_on_big_data(walk):
    walk.run(DATA, "Files larger than memory")
    report = json.loads(Path("runs/reviews/run.json").read_text(encoding="utf-8"))
    assert report["data"]["train"]["sentiment"]["rows"] == 5


def test_the_tutorial(walk):
    walk.run(TUTORIAL)
    assert Path("answers.csv").read_text().startswith("id,text,messages,messages_label,")
    assert sorted(p.name for p in Path("runs").iterdir()) == ["shop", "surgery"]
    assert "surgery" in Path("report.html").read_text(encoding="utf-8")
    assert "## Audit" in Path("runs/shop/card.md").read_text(encoding="utf-8")


def test_bringing_your_own_data(walk, capsys):
    """The page's example: its file, its command with what it shows, its Python."""
    begun = False
    for block in read_blocks(OWN_DATA):
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
            begun = True
        elif begun and block.language == "console":
            (command,) = plait_commands(block)
            with pytest.raises(SystemExit) as ended:
                main(list(command.words))
            said = capsys.readouterr()
            assert ended.value.code == 0, said.err
            assert said.out == command.shown
            break
    code = read_blocks(OWN_DATA, "python")[-1]
    exec(compile(code.text, str(code), "exec"), {})
    assert Path("from-python/recipe.toml").exists()


@pytest.mark.slow
def test_parts_of_your_own(walk):
    walk.run(OWN_PART)
    lines = Path("runs/mine/overall.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines] == [["0", "dev"], ["20", "dev"], ["40", "dev"]]


@pytest.mark.slow
def test_an_encoder_of_your_own(walk):
    walk.run(ENCODERS, "Write your own architecture")
    model = plait.load("runs/mine").model
    assert type(model.encoder).__name__ == "Convolutions"
    assert model.encoder.words.weight.shape[1] == model.encoder.width


@pytest.mark.slow
def test_several_labels_for_one_text(walk):
    walk.run(ROOT / "docs" / "how-to" / "tasks.md", "Several labels")
    labels = {"anger", "joy", "fear"}
    assert set(plait.load("runs/moods").tasks["moods"].spec.labels) == labels


@pytest.mark.slow
def test_a_task_is_added(walk):
    """The run it is added to need not be well trained here."""
    walk.overrides += ["-o", "train.max_steps=4"]
    walk.run(ENCODERS, "Add a task to a trained run")
    old, new = (plait.load(f"runs/{name}") for name in ("demo", "more"))
    texts = ["What a fine day."]
    assert old.predict("sentiment", texts) == new.predict("sentiment", texts)
    assert set(new.tasks) - set(old.tasks) == {"urgent"}


@pytest.mark.slow
def test_distilling(walk, monkeypatch):
    """Of the page's runs, each takes a few updates here."""
    monkeypatch.setenv("HOME", str(Path.cwd()))
    walk.overrides += ["-o", "train.max_steps=4"]
    walk.run(ROOT / "docs" / "how-to" / "distill.md")
    facts = json.loads(Path("runs/more/run.json").read_text(encoding="utf-8"))["data"]
    assert facts["unlabelled"]["paraphrase"]["rows"] > 100
    told = json.loads(Path("runs/calm/run.json").read_text(encoding="utf-8"))["teachers"]
    assert all(member["calibration"] for member in told["distill"])


@pytest.mark.slow
def test_the_recipe_of_the_readme(walk):
    """It names the tutorial's files."""
    Path("my-folder").mkdir()
    for block in read_blocks(TUTORIAL, "csv"):
        if block.file:
            Path("my-folder", block.file).write_text(block.text, encoding="utf-8")
    begun = False
    for block in read_blocks(ROOT / "README.md"):
        if block.file == "mine.toml":
            Path(block.file).write_text(block.text, encoding="utf-8")
            begun = True
        elif begun and block.language == "console":
            for command in plait_commands(block):
                walk.type(command)
    assert begun
    assert plait.load("runs/mine").predict("topic", ["The box never came."])[0].label


# --- listeners for other services --------------------------------------------------------


def record(calls: list[tuple[str, Any]], name: str) -> Any:
    """Make a function that only remembers what it was called with."""

    def call(*args: Any, **options: Any) -> SimpleNamespace:
        calls.append((name, args or options))
        return SimpleNamespace(log=record(calls, "log"), finish=record(calls, "finish"))

    return call


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "functions", "ends"),
    [
        (
            "mlflow",
            ["set_experiment", "start_run", "log_params", "log_metric", "log_artifact", "end_run"],
            ["log_artifact", "end_run"],
        ),
        ("wandb", ["init"], ["log", "finish"]),
    ],
)
def test_listeners_for_other_services(name, functions, ends, tiny_recipe, monkeypatch):
    calls: list[tuple[str, Any]] = []
    stand_in = SimpleNamespace(**{f: record(calls, f) for f in functions})
    monkeypatch.setitem(sys.modules, name, stand_in)
    recipe = tiny_recipe()
    for block in read_blocks(TRAIN, "python"):
        if block.file:
            (recipe.parent / block.file).write_text(block.text, encoding="utf-8")
    text = recipe.read_text(encoding="utf-8").replace("listeners = []", "")
    chosen = f'plugins = ["{name}_listener.py"]\nlisteners = ["{name}"]\n'
    recipe.write_text(chosen + text, encoding="utf-8")
    plait.train(plait.read_recipe(recipe), "run")
    assert {called for called, _ in calls} >= set(functions)
    assert [called for called, _ in calls][-2:] == ends
    told = " ".join(str(given) for _, given in calls)
    assert "loss/mood" in told
    assert "dev/overall" in told


# --- from Python -------------------------------------------------------------------------


def test_estimators(tiny_encoder, capsys, monkeypatch):
    """With the tiny encoder for the packaged one, and fewer parts to cross-validate on."""
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    small = f"TextClassifier({str(tiny_encoder)!r}, max_length=32, "
    first, second = (
        block.text.replace("TextClassifier(", small).replace("cv=5", "cv=2").replace("cv=3", "cv=2")
        for block in read_blocks(PYTHON, "python")
        if "TextClassifier(" in block.text
    )
    Path("classify.py").write_text(first, encoding="utf-8")
    exec(compile(second, str(PYTHON), "exec"), {})
    printed = capsys.readouterr().out
    assert "['bad' 'good']" in printed
    assert "{'lr': " in printed


@pytest.mark.slow
def test_holding_back(tiny_recipe, capsys):
    """The page's program, on the tiny recipe's own words and a wish that it can meet."""
    plait.train(tiny_recipe(), "runs/demo")
    Path("reviews.csv").write_text("body\nthe film was great .\n", encoding="utf-8")
    (code,) = (b.text for b in read_blocks(PREDICT, "python") if "choose_threshold" in b.text)
    code = code.replace("sentiment", "mood").replace("accuracy=0.8", "accuracy=0.1")
    exec(compile(code, str(PREDICT), "exec"), {})
    assert "of dev\n{'mood': " in capsys.readouterr().out
    header = Path("answers.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header == "id,body,mood,mood_label,mood_confidence,mood_review"
    assert Path("review.csv").exists()


# --- in other programs -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the other libraries' own
def test_exporting(walk):
    """Everything on the page, with runs that need not be well trained."""
    for library in ("onnxruntime", "onnxscript", "sentence_transformers"):
        pytest.importorskip(library)
    walk.overrides += ["-o", "train.max_steps=2"]
    walk.run(ROOT / "docs" / "how-to" / "export.md")
    assert {p.name for p in Path("runs").iterdir()} == {
        *("demo", "cls", "demo-onnx", "demo-small"),
        *("demo-sentence-transformers", "paraphrase", "sentiment"),
    }
