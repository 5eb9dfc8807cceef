"""Rows without labels, which a teacher answers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import plait
from csv_rows import read_rows, write_rows
from plait.analysis.check import check_recipe
from plait.config import read_recipe
from plait.data import Dataset
from plait.data.loading import load_data
from plait.errors import DataError, RecipeError
from plait.tasks import TaskSpec
from plait.training.amounts import Amounts
from plait.training.counting import count_run
from plait.training.listeners import Listener
from plait.training.stages.distill import _add_answers
from plait.training.starting import find_tokenizer

TEXTS = {
    "mood": ("text",),
    "same": ("a", "b"),
    "near": ("a", "b"),
}
ANSWERS = {"mood": "label", "same": "label", "near": "score"}


@pytest.fixture
def recipe(tiny_recipe):
    """The tiny recipe, and rows of another seed's without their labels."""
    path, other = tiny_recipe(), tiny_recipe("other", seed="more")
    for task, columns in TEXTS.items():
        rows = read_rows(other.parent / f"{task}-train.csv")
        write_rows(path.parent / f"{task}-more.csv", [{c: row[c] for c in columns} for row in rows])
    return path


class Notes(Listener):
    """Remembers what it was told."""

    def __init__(self):
        self.told = []

    def note(self, text):
        self.told.append(text)


@pytest.fixture
def run(recipe, tmp_path):
    def start(out, *overrides, **options):
        return plait.train(read_recipe(recipe, overrides), tmp_path / out, **options).folder

    return start


@pytest.fixture
def teacher(tiny_run):
    return tiny_run


MORE = [f"tasks.{task}.unlabelled='{task}-more.csv'" for task in TEXTS]


def distill(teacher, weight=0.5):
    kind = f"{{name='distill', teacher='{teacher}', weight={weight}}}"
    return ["stages=['distill']", f"stage.distill.kind={kind}"]


def test_the_teacher_answers_them_behind_the_others(run, teacher):
    student = run("student", "train.max_steps=1", *MORE, *distill(teacher))
    kept = load_file(student / "teacher" / "distill.safetensors")
    model = plait.load(student)
    config = model.config
    asked = plait.load(teacher, precision="auto")
    own, more = (asked.read(config, split) for split in ("train", "unlabelled"))
    for task in TEXTS:
        expected = [asked.answer(task, rows[task]) for rows in (own, more)]
        np.testing.assert_array_equal(kept[task].numpy(), np.concatenate(expected))
    facts = json.loads((student / "run.json").read_text())["data"]
    assert facts["unlabelled"]["mood"]["rows"] == len(more["mood"])
    assert "`mood-more.csv`" in (student / "card.md").read_text("utf-8")


def test_its_answer_is_their_label(run, recipe, teacher):
    """With weight 0, it is fine-tuning on a file that holds its answers for labels."""
    model = plait.load(teacher, precision="auto")
    for task, columns in TEXTS.items():
        rows = read_rows(recipe.parent / f"{task}-more.csv")
        texts = [tuple(row[c] for c in columns) for row in rows]
        answers = model.predict(task, texts)
        found = [answer.label if task == "mood" else answer.value for answer in answers]
        told = [{**row, ANSWERS[task]: value} for row, value in zip(rows, found, strict=True)]
        write_rows(recipe.parent / f"{task}-told.csv", told)
    added = [
        f"tasks.{t}.train=['{t}-train.csv', {{path='{t}-told.csv', id='', drop_overlap=true}}]"
        for t in TEXTS
    ]
    two = "train.max_steps=2"
    plain = run("plain", two, "stages=['distill']", *added)
    student = run("student", two, *MORE, *distill(teacher, weight=0.0))
    expected, found = (load_file(folder / "model.safetensors") for folder in (plain, student))
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name].numpy(), tensor.numpy(), atol=2e-4, err_msg=name)


def test_a_label_holds_from_the_threshold_on(recipe):
    """As everywhere; a vote of members may come to the threshold itself."""
    tokenizer = find_tokenizer(read_recipe(recipe))
    known, more = (
        replace(Dataset.from_texts([(text,)], tokenizer, 16), key=text) for text in ("one", "two")
    )
    spec = TaskSpec(kind="labels", labels=("x", "y", "z"), text=("text",), threshold=0.25)
    answers = torch.tensor([[0.5, 0.5, 0.5], [0.125, 0.25, 0.375]])
    found = _add_answers(replace(known, labels=torch.zeros(1, 3)), more, answers, spec)
    assert found.labels[1].tolist() == [0, 1, 1, 0.125, 0.25, 0.375]


def test_a_row_that_dev_has_is_left_out(run, recipe, teacher):
    path, dev = recipe.parent / "same-more.csv", read_rows(recipe.parent / "same-dev.csv")
    turned = {"a": dev[0]["b"].upper(), "b": dev[0]["a"]}
    write_rows(path, [turned, {"a": "a new one", "b": "and another"}])
    notes = Notes()
    student = run("student", "train.max_steps=1", MORE[1], *distill(teacher), listeners=[notes])
    assert "same-more.csv: 2 rows, 1 left out, which dev or test has" in notes.told
    facts = json.loads((student / "run.json").read_text())["data"]["unlabelled"]["same"]
    assert (facts["rows"], facts["held_out_rows"]) == (1, 1)
    assert (
        "1 training row left out, as dev or test has the same." in (student / "card.md").read_text()
    )


def turn_two(recipe):
    """Write rows without labels: two of the training files, one of them twice, and a new one."""
    first, second, *_ = read_rows(recipe.parent / "same-train.csv")
    known = [{"a": first["b"].upper(), "b": first["a"]}, {c: second[c] for c in ("a", "b")}]
    write_rows(
        recipe.parent / "same-more.csv", [*known, known[1], {"a": "a new one", "b": "another"}]
    )


def test_rows_that_the_training_files_have_are_told(run, recipe, teacher):
    """And stay: who names them may mean it."""
    turn_two(recipe)
    notes = Notes()
    student = run("student", "train.max_steps=1", MORE[1], *distill(teacher), listeners=[notes])
    told = "2 examples occur both with and without a label, and training uses both"
    assert [note for note in notes.told if note.startswith(f"same: {told}")]
    facts = json.loads((student / "run.json").read_text())["data"]["unlabelled"]["same"]
    assert facts["rows"] == 4


def test_check_finds_those_that_the_training_files_have(recipe, teacher):
    turn_two(recipe)
    report = check_recipe(read_recipe(recipe, [MORE[1], *distill(teacher)]))
    (found,) = [f for f in report.findings if f.split == "unlabelled" and f.check == "overlap"]
    assert (found.level, found.count) == ("note", 3)
    assert found.sentence.startswith("3 rows (75.0%) are also in train, and would be learnt")
    assert [place.line for place in found.places] == [2, 3, 4]
    assert found.places[0].detail == f"as line 2 of {recipe.parent / 'same-train.csv'}"


def test_they_are_counted_beforehand(recipe, teacher, run):
    config = read_recipe(recipe, [*MORE, *distill(teacher)])
    tokenizer = find_tokenizer(config)
    amounts = Amounts(
        train=load_data(config, tokenizer, "train"),
        unlabelled=load_data(config, tokenizer, "unlabelled"),
    )
    planned = count_run(config, amounts)
    assert planned.stages[0].tasks["mood"].examples == 45 + len(amounts.unlabelled["mood"])
    student = run("student", *MORE, *distill(teacher))
    assert json.loads((student / "scores.json").read_text())["steps"] == planned.updates


def test_without_a_teacher_they_are_refused(run, tmp_path):
    with pytest.raises(RecipeError, match=r"tasks\.mood\.unlabelled names files, but no stage has"):
        run("plain", *MORE)
    assert not (tmp_path / "plain").exists()


def test_an_empty_row_is_bad(run, recipe, teacher):
    path = recipe.parent / "mood-more.csv"
    path.write_text(path.read_text("utf-8") + '""\n', "utf-8")
    with pytest.raises(DataError, match=r"mood-more\.csv.*column 'text' is empty"):
        run("student", *MORE, *distill(teacher))
    notes = Notes()
    skip = "data.bad_rows='skip'"
    run("student", "train.max_steps=1", skip, *MORE, *distill(teacher), listeners=[notes])
    assert any("mood-more.csv" in note and "empty" in note for note in notes.told), notes.told
