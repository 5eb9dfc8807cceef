"""Few examples of a new task: what is drawn, what is compared, that seeds fix it."""

from __future__ import annotations

import csv
import math
import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from plait.data import Dataset, Tokenizer, cache_root
from plait.errors import Interrupted, RecipeError, UsageError
from plait.fewshot import Figures, draw_rows, measure_few_shot, measuring, read_task
from plait.tasks import TaskSpec

CLASSES = TaskSpec(kind="classes", labels=("a", "b", "c"), text=("text",))
SCORE = TaskSpec(kind="score", text=("text",))

THINGS = ("film", "book", "song", "meal", "walk", "room")


@pytest.fixture
def task_file(tmp_path):
    """A new task beside the tiny ones: does a text speak of a film or a book?"""
    for split, count in (("train", 40), ("dev", 20)):
        with (tmp_path / f"topic-{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for i in range(count):
                thing = THINGS[i % 6]
                writer.writerow([f"the {thing} was {'fine' if i % 4 else 'dull'}", int(i % 6 < 2)])
    path = tmp_path / "topic.toml"
    path.write_text(
        f"""
[data]
root = "{tmp_path}"

[tasks.topic]
kind = "binary"
text = "text"
label = "label"
train = "topic-train.csv"
dev = "topic-dev.csv"

[train]
epochs = 2
"""
    )
    return path


def measure(run, task_file, *args, **options):
    return measure_few_shot(run, task_file, *args, device="cpu", **options)


# --- drawing -----------------------------------------------------------------------------


def test_classes_are_drawn_evenly_while_they_last():
    labels = np.array([0] * 20 + [1] * 20 + [2] * 2)
    for seed in range(5):
        rows = draw_rows(CLASSES, labels, 42, np.random.default_rng(seed))
        assert sorted(rows) == list(range(42))
        for count in range(1, 7):
            of_class = np.bincount(labels[rows[:count]], minlength=3)
            assert of_class.max() - of_class.min() <= 1
        assert np.bincount(labels[rows[:12]]).tolist() == [5, 5, 2]


@pytest.mark.parametrize("spec", [CLASSES, SCORE], ids=lambda s: s.kind)
def test_fewer_are_among_more(spec):
    labels = np.arange(60) % 3
    drawn = [draw_rows(spec, labels, n, np.random.default_rng(3)).tolist() for n in (3, 8, 20)]
    for fewer, more in pairwise(drawn):
        assert more[: len(fewer)] == fewer
    assert drawn[-1] != draw_rows(spec, labels, 20, np.random.default_rng(4)).tolist()


def test_selected_rows_are_the_rows(tiny_encoder):
    tokenizer = Tokenizer.from_file(tiny_encoder / "tokenizer.json")
    texts = [(f"the {thing} was fine", thing) for thing in THINGS]
    whole = Dataset.from_texts(texts, tokenizer, 32)
    some = whole.select([4, 1])
    assert len(some) == 2
    assert list(some.ids) == ["4", "1"]
    assert some.texts() == [texts[4], texts[1]]
    for column, ragged in zip(whole.tokens, some.tokens, strict=True):
        for new, old in enumerate([4, 1]):
            expected = column.ids[column.offsets[old] : column.offsets[old + 1]]
            assert torch.equal(ragged.ids[ragged.offsets[new] : ragged.offsets[new + 1]], expected)
            assert ragged.lengths[new] == column.lengths[old]


def test_figures_by_hand():
    figures = Figures(16, (0.5, 0.7, math.nan))
    assert figures.mean == pytest.approx(0.4)  # a nan counts as 0
    assert figures.spread == pytest.approx(0.13**0.5)
    assert figures.to_json()["draws"] == [0.5, 0.7, None]
    assert Figures(16, (0.5,)).to_json()["spread"] is None


# --- measuring ---------------------------------------------------------------------------


def test_raw_and_run_are_compared_and_seeds_fix_it(tiny_run, task_file):
    told = []
    found = measure(
        tiny_run, task_file, (4, 8), draws=2, progress=lambda what, *_: told.append(what)
    )
    assert list(found.encoders) == ["raw", str(tiny_run)]
    assert [f.shots for f in found.encoders["raw"]] == [4, 8]
    assert all(0 <= x <= 1 for fs in found.encoders.values() for f in fs for x in f.draws)
    assert found.baseline == pytest.approx(0.6)  # 12 of the 20 dev rows, and most of train
    assert (found.num_train, found.num_dev) == (40, 20)
    assert any("(8/8)" in what for what in told)
    again = measure(tiny_run, task_file, (4, 8), draws=2)
    assert again == found
    other = measure(tiny_run, task_file, (4, 8), draws=2, overrides=["seed=5"])
    assert other.encoders != found.encoders


def test_the_raw_encoder_is_the_one_the_run_began_with(tiny_run, task_file, monkeypatch):
    seen = {}
    build_model = measuring.build_model

    def spy(config, encoder, tasks):
        model = build_model(config, encoder, tasks)
        words = encoder.state_dict()["embeddings.word.weight"].clone()
        seen.setdefault(len(seen), (words, model.heads["task-topic"].state_dict()))
        return model

    monkeypatch.setattr(measuring, "build_model", spy)
    measure(tiny_run, task_file, (4,), draws=2)
    trained = load_file(tiny_run / "model.safetensors")["encoder.embeddings.word.weight"]
    raw, run = (seen[0][0], seen[1][0]), (seen[2][0], seen[3][0])
    assert torch.equal(*raw)  # a copy each: no draw trains on from another
    assert torch.equal(run[0], trained)
    assert torch.equal(run[1], trained)
    assert not torch.equal(raw[0], trained)


def test_the_same_run_twice_gives_the_same_figures(tiny_run, task_file, tmp_path):
    other = tmp_path / "other"
    other.symlink_to(tiny_run)
    found = measure(tiny_run, task_file, (4,), draws=2, against=[other])
    assert found.encoders[str(other)] == found.encoders[str(tiny_run)]


@pytest.mark.parametrize("split", ["train", "unlabelled"])
def test_a_run_that_had_the_rows_is_named(tiny_run, task_file, tmp_path, split):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    recipe = run / "recipe.toml"
    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(text.replace(f"{split} = [", f"{split} = ['topic-train.csv',", 1), "utf-8")
    told = []
    measure(run, task_file, (4,), draws=1, note=told.append)
    assert any("names topic-train.csv too" in note for note in told), told


def test_dev_changes_no_training(tiny_run, task_file, monkeypatch):
    """Whatever is trained on came out of train: dev is scored once a trial, at its end."""
    scored = []
    score = measuring.Scorer.score
    monkeypatch.setattr(
        measuring.Scorer, "score", lambda self, data: scored.append(1) or score(self, data)
    )
    trained = []
    build_stage = measuring.build_stage

    def spy(parts, index, train, restore):
        trained.extend(train["topic"].labels.tolist())
        assert len(train["topic"]) == 6
        return build_stage(parts, index, train, restore=restore)

    monkeypatch.setattr(measuring, "build_stage", spy)
    measure(tiny_run, task_file, (6,), draws=3)
    assert len(scored) == 6
    # 3 draws of 3 rows a class, for 2 encoders, in the stages contrast and finetune.
    assert trained.count(1.0) == trained.count(0.0) == 36


# --- going on ----------------------------------------------------------------------------


@pytest.fixture
def trials(monkeypatch):
    """Trials as they are made; `stop` says after how many it ends, as Ctrl-C would."""
    made, stop = [], {"at": None}
    run = measuring._Trial.run

    def spy(trial, draw, train, dev):
        if len(made) == stop["at"]:
            raise KeyboardInterrupt
        made.append((trial.contender.name, len(train), draw))
        return run(trial, draw, train, dev)

    monkeypatch.setattr(measuring._Trial, "run", spy)
    return made, stop


def test_stopped_it_goes_on_with_what_it_has(tiny_run, task_file, trials, monkeypatch, tmp_path):
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "other"))
    whole = measure(tiny_run, task_file, (4, 8), draws=2)
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))
    made, stop = trials
    order = made.copy()
    made.clear()
    notes = []
    for at, kept in ((3, "3 trials of 8"), (1, "4 trials of 8")):
        stop["at"] = at
        with pytest.raises(Interrupted, match=f"stopped with {kept} finished and kept; the"):
            measure(tiny_run, task_file, (4, 8), draws=2, note=notes.append)
        assert made == order[:at]
        order = order[at:]
        made.clear()
    stop["at"] = None
    assert measure(tiny_run, task_file, (4, 8), draws=2, note=notes.append) == whole
    assert made == order
    assert len(order) == 4
    kept = "going on with {} trials of a measurement that was stopped"
    assert notes == [kept.format(number) for number in (3, 4)]
    made.clear()
    assert measure(tiny_run, task_file, (4, 8), draws=2) == whole
    assert len(made) == 8  # what is finished is not gone on with


@pytest.mark.parametrize("change", ["seed", "rows", "weights"])
def test_what_was_measured_otherwise_is_not_taken(tiny_run, task_file, trials, tmp_path, change):
    made, stop = trials
    run = shutil.copytree(tiny_run, tmp_path / "run")
    stop["at"] = 3
    with pytest.raises(Interrupted):
        measure(run, task_file, (4,), draws=2)
    stop["at"] = None
    made.clear()
    overrides = ["seed=5"] if change == "seed" else []
    if change == "rows":
        with (tmp_path / "topic-train.csv").open("a", encoding="utf-8") as file:
            file.write("the room was fine,0\n")
    if change == "weights":
        weights = load_file(run / "model.safetensors")
        weights["encoder.embeddings.word.weight"] += 0.5
        save_file(weights, run / "model.safetensors")
    measure(run, task_file, (4,), draws=2, overrides=overrides)
    # The raw encoder is the same one whatever the run's weights are.
    assert len(made) == (2 if change == "weights" else 4)


def test_another_run_on_the_same_task_leaves_what_is_kept(tiny_run, task_file, trials, tmp_path):
    made, stop = trials
    other = shutil.copytree(tiny_run, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    weights["encoder.embeddings.word.weight"] += 0.5
    save_file(weights, other / "model.safetensors")
    stop["at"] = 3
    with pytest.raises(Interrupted):
        measure(tiny_run, task_file, (4,), draws=2)
    stop["at"] = None
    made.clear()
    notes = []
    measure(other, task_file, (4,), draws=2, note=notes.append)
    assert notes == ["going on with 2 trials of a measurement that was stopped"]
    assert made == [(str(other), 4, 0), (str(other), 4, 1)]  # both began with one encoder
    made.clear()
    measure(tiny_run, task_file, (4,), draws=2)
    assert made == [(str(tiny_run), 4, 1)]
    assert not list((cache_root() / "fewshot").iterdir())


@pytest.mark.parametrize("smaller", [{"shots": (4,), "draws": 2}, {"shots": (4, 8), "draws": 1}])
def test_a_smaller_measurement_leaves_what_a_larger_one_kept(
    tiny_run, task_file, trials, tmp_path, smaller
):
    made, stop = trials
    stop["at"] = 6  # the raw encoder's four, and two of the run's
    with pytest.raises(Interrupted, match="stopped with 6 trials of 8"):
        measure(tiny_run, task_file, (4, 8), draws=2)
    stop["at"] = None
    before, notes = made.copy(), []
    made.clear()
    measure(tiny_run, task_file, **smaller)
    again = made.copy()
    made.clear()
    measure(tiny_run, task_file, (4, 8), draws=2, note=notes.append)
    run = str(tiny_run)
    assert {*before, *again, *made} == {
        (n, k, d) for n in ("raw", run) for k in (4, 8) for d in (0, 1)
    }
    assert len([*before, *again, *made]) == 8  # each was made once
    assert notes == [f"going on with {6 + len(again)} trials of a measurement that was stopped"]
    assert not list((cache_root() / "fewshot").iterdir())


@pytest.mark.parametrize("at", [1, 2])
def test_a_smaller_measurement_that_wants_all_leaves_them_as_well(tiny_run, task_file, trials, at):
    """All that the larger one has done so far are among the smaller one's own."""
    made, stop = trials
    stop["at"] = at
    with pytest.raises(Interrupted, match=f"stopped with {at} trial"):
        measure(tiny_run, task_file, (4,), draws=3)
    stop["at"] = None
    measure(tiny_run, task_file, (4,), draws=at)
    measure(tiny_run, task_file, (4,), draws=3)
    assert sorted(made) == sorted((n, 4, d) for n in ("raw", str(tiny_run)) for d in range(3))
    assert not list((cache_root() / "fewshot").iterdir())


def test_two_that_were_stopped_both_go_on(tiny_run, task_file, trials):
    made, stop = trials
    for shots, at in (((4,), 1), ((4, 8), 2)):  # the second takes the first one's, and adds one
        stop["at"] = at
        with pytest.raises(Interrupted):
            measure(tiny_run, task_file, shots, draws=2)
    stop["at"] = None
    for shots in ((4, 8), (4,)):
        measure(tiny_run, task_file, shots, draws=2)
    assert len(made) == 8  # each once, whoever ended first
    assert not list((cache_root() / "fewshot").iterdir())


def test_only_trials_that_are_asked_for_are_counted(tiny_run, task_file, trials):
    made, stop = trials
    stop["at"] = 3
    with pytest.raises(Interrupted, match="stopped with 3 trials of 4 finished"):
        measure(tiny_run, task_file, (4,), draws=2)
    made.clear()
    stop["at"] = 1
    with pytest.raises(Interrupted, match="stopped with 3 trials of 4 finished"):
        measure(tiny_run, task_file, (4, 8), draws=1)


def test_a_damaged_journal_is_measured_again(tiny_run, task_file, trials):
    made, stop = trials
    stop["at"] = 2
    with pytest.raises(Interrupted):
        measure(tiny_run, task_file, (4,), draws=2)
    (path,) = (p for p in (cache_root() / "fewshot").iterdir() if "[4, 1, " in p.read_text())
    path.write_text(path.read_text()[:-9])  # as a kill would leave it
    made.clear()
    with pytest.raises(Interrupted, match="stopped with 3 trials of 4"):
        measure(tiny_run, task_file, (4,), draws=2)
    made.clear()
    measure(tiny_run, task_file, (4,), draws=2)
    assert len(made) == 1
    assert not path.exists()


def test_stopped_before_anything_is_finished(tiny_run, task_file, trials):
    trials[1]["at"] = 0
    with pytest.raises(Interrupted, match="nothing is kept"):
        measure(tiny_run, task_file, (4,), draws=2)


# --- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["tasks.topic.dev=[]"], "tasks.topic names no dev files"),
        (["tasks.topic.train=[]"], "tasks.topic names no train files"),
        (["encoder.pooling='cls'"], "encoder has no meaning for a few-shot task"),
        (["stages=['a', 'b']"], "stages has no meaning"),
        (["train.kind='mlm'"], "fine-tuned for a fixed time"),
        (["train.early_stopping.patience=2"], "fine-tuned for a fixed time"),
        (["train.lrr=1"], "train.lrr is not a setting"),
        (["train.schedule='nonsense'"], "no schedule 'nonsense'"),
    ],
)
def test_files_that_are_refused(task_file, overrides, message):
    with pytest.raises((UsageError, RecipeError)) as caught:
        read_task(task_file, overrides)
    assert message in str(caught.value)


def test_one_task_and_a_file(task_file, tmp_path):
    with pytest.raises(RecipeError, match=r"there is no recipe file .*nothing\.toml"):
        read_task(tmp_path / "nothing.toml")
    with pytest.raises(UsageError, match=r"is no \.toml file"):
        read_task("course")
    more = task_file.read_text() + '\n[tasks.two]\nkind = "binary"\ntext = "text"\n'
    task_file.write_text(more)
    with pytest.raises(UsageError, match="has 2 tasks; a few-shot task is one"):
        read_task(task_file)


@pytest.mark.parametrize(
    ("shots", "draws", "message"),
    [
        ((64,), 2, "64 shots are more than the 40 training rows of topic"),
        ((1, 8), 2, "1 shots are fewer than the 2 classes of topic"),
        ((8, 8), 2, "different whole numbers"),
        ((8,), 0, "0 draws give no figure"),
    ],
)
def test_shots_that_are_refused(tiny_run, task_file, shots, draws, message):
    with pytest.raises(UsageError) as caught:
        measure(tiny_run, task_file, shots, draws=draws)
    assert message in str(caught.value)
