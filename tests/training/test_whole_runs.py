"""Whole runs: what they leave, which model they keep, and when they end."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from plait.config import read_recipe
from plait.data.loading import load_data
from plait.errors import DataError, RunError
from plait.inference.predictor import Predictor
from plait.inference.scoring import Scorer
from plait.tasks import TASK_KINDS
from plait.tasks.metrics import summarise
from plait.training.build import build, build_stage
from plait.training.graphs import Plain
from plait.training.listeners import Listener
from plait.training.notes import note_stage

STEPS = 24  # of the tiny recipe
TASKS = ("mood", "same", "near")


# --- what a run leaves -------------------------------------------------------------------


def test_the_files(tiny_run, tiny_encoder):
    names = {"recipe.toml", "model.safetensors", "checkpoint.safetensors", "encoder.json"}
    names |= {"tokenizer.json", "run.json", "metrics.jsonl", "scores.json", "card.md", ".lock"}
    assert {path.name for path in tiny_run.iterdir()} == names
    info = json.loads((tiny_run / "run.json").read_text())
    assert info["torch"] == torch.__version__
    assert info["precision"] == "fp32"
    assert info["encoder"]["origin"] == str(tiny_encoder)
    assert len(info["encoder"]["sha256"]) == 64
    assert info["data"]["train"]["mood"]["rows"] == 45
    assert info["data"]["dev"]["near"]["rows"] == 12


def test_the_scores(tiny_run):
    result = json.loads((tiny_run / "scores.json").read_text())
    keys = ["recipe", "steps", "best_step", "seconds", "dev", "baseline", "baselines"]
    assert list(result) == keys
    assert (result["recipe"], result["steps"]) == ("tiny", STEPS)
    assert result["best_step"] in (12, 24)
    assert result["seconds"] > 0
    for scores in (result["dev"], result["baseline"]):
        counts = {name: task["num_examples"] for name, task in scores["tasks"].items()}
        assert counts == {"mood": 18, "same": 16, "near": 12}
        assert scores["primary"]["mood"] == scores["tasks"]["mood"]["metrics"]["accuracy"]
        assert scores["primary"]["near"] == scores["tasks"]["near"]["metrics"]["pearson"]
        total = sum(v or 0.0 for v in scores["primary"].values())
        assert scores["summary"]["sum"] == pytest.approx(total)
    assert result["baseline"]["primary"]["near"] is None  # constant: no correlation
    assert Predictor.load(tiny_run).evaluate("dev").to_json() == result["dev"]


def test_the_log(runs, tiny_run):
    result = json.loads((tiny_run / "scores.json").read_text())
    log = runs.log(str(tiny_run))
    # Every 5 updates, and before every evaluation.
    events = [(line["event"], line["step"]) for line in log]
    assert [step for event, step in events if event == "losses"] == [5, 10, 12, 15, 20, 24]
    assert [step for event, step in events if event == "scores"] == [12, 24]
    for line in log:
        if line["event"] == "losses":
            assert set(line) == {"event", "step", "stage", "epoch", "rate", "losses"}
            assert (line["stage"], line["rate"]) == ("finetune", 0.003)
            assert line["epoch"] == (1 if line["step"] <= 12 else 2)
        else:
            assert set(line) == {"event", "step", "split", "metrics", "summary"}
            assert line["split"] == "dev"
            if line["step"] == result["best_step"]:
                assert line["summary"] == result["dev"]["summary"]
                for task, metrics in line["metrics"].items():
                    assert metrics == result["dev"]["tasks"][task]["metrics"]


class Losses(Listener):
    """Remembers the losses of every update."""

    def __init__(self):
        self.seen = []

    def step(self, record):
        self.seen.append({t: float(loss) for t, loss in record.result.losses.items()})


def test_the_resolved_recipe_makes_the_same_run_elsewhere(runs, tiny_run, tmp_path):
    """Whatever the state of the process; logged losses are means since the line before."""
    text = (tiny_run / "recipe.toml").read_text()
    root = tmp_path / "moved"
    shutil.copytree(tiny_run.parent / "tiny", root)
    runs.recipe.write_text(text.replace(str(tiny_run.parent / "tiny"), "nowhere"))
    with pytest.raises(DataError, match="no data folder"):
        runs.train("a")
    torch.manual_seed(12345)
    spy = Losses()
    runs.train("a", data=str(root), listeners=[spy])
    runs.check_whole("a")
    before = 0
    for line in runs.log("a"):
        if line["event"] == "losses":
            some = spy.seen[before : line["step"]]
            before = line["step"]
            for task, mean in line["losses"].items():
                values = [losses[task] for losses in some if task in losses]
                assert mean == pytest.approx(sum(values) / len(values), rel=1e-5)


def test_a_run_predicts_without_its_encoder_and_data(runs, tiny_encoder, tmp_path):
    """Another seed gives other weights."""
    own = shutil.copytree(tiny_encoder, tmp_path / "own-encoder")
    settings = ["seed=1", "train.max_steps=2", f"encoder.source={str(own)!r}"]
    folder = runs.train("a", *settings).folder
    texts = ["the film was great .", "it was dull"]
    before = Predictor.load(folder).predict("mood", texts)
    shutil.rmtree(own)
    shutil.rmtree(runs.recipe.parent)
    moved = folder.rename(tmp_path / "moved")
    assert Predictor.load(moved).predict("mood", texts) == before
    weights = [load_file(run / "model.safetensors") for run in (moved, runs.whole())]
    for name in ("heads.task-mood.out.weight", "encoder.embeddings.word.weight"):
        assert not torch.equal(weights[0][name], weights[1][name])


def test_training_lowers_the_loss(runs):
    outcome = runs.train("a", "train.epochs=20", "train.lr=0.01", "train.eval_every=80")
    log = [line["losses"] for line in runs.log("a") if line["event"] == "losses"]
    first = {task: next(x[task] for x in log if task in x) for task in TASKS}
    last = {task: next(x[task] for x in log[::-1] if task in x) for task in first}
    assert all(last[task] < 0.8 * first[task] for task in ("mood", "near"))
    assert outcome.result["dev"]["primary"]["mood"] > outcome.result["baseline"]["primary"]["mood"]


# --- choosing and ending -----------------------------------------------------------------


@pytest.fixture
def make_dev_scores(monkeypatch):
    """Give tasks the figures of a list, evaluation by evaluation."""
    real = Scorer.score

    def make(figures: dict[str, list[float]]) -> None:
        coming = {task: iter(values) for task, values in figures.items()}

        def score(scorer, datasets, rows=None):
            scores = real(scorer, datasets, rows)
            primary = scores.primary | {task: next(values) for task, values in coming.items()}
            kinds = {name: TASK_KINDS[task.kind] for name, task in scores.tasks.items()}
            return replace(scores, primary=primary, summary=summarise(primary, kinds))

        monkeypatch.setattr(Scorer, "score", score)

    return make


@pytest.mark.parametrize("select", ["sum", "overall"])
def test_the_best_checkpoint_is_the_first_with_the_highest_figure(runs, make_dev_scores, select):
    """The overall score counts a correlation of -0.5 as 0.25."""
    figures = {"mood": [0.1, 0.5, 0.8], "same": [0.1, 0.5, 0.2], "near": [0.0, 0.6, -0.9]}
    make_dev_scores({task: [*values, 0.5] for task, values in figures.items()})
    settings = [f"select={select!r}", "train.eval_every=2", "train.max_steps=6"]
    spy = runs.Spy()
    outcome = runs.train("a", *settings, listeners=[spy])
    told = {step: scores.summary[select] for step, _, scores in spy.scored}
    assert outcome.result["best_step"] == max(told, key=told.get) == 4


@pytest.mark.parametrize(
    ("patience", "figures", "last", "best"),
    [
        (1, [0.5, 0.5], 4, 2),  # as good is not better
        (3, [0.5, 0.4, 0.4, 0.6, 0.1, 0.2, 0.3], 14, 8),
    ],
)
def test_patience(runs, make_dev_scores, patience, figures, last, best):
    flat = dict.fromkeys(("same", "near"), [0.0] * 20)
    make_dev_scores(flat | {"mood": figures + [0.0] * 20})
    spy = runs.Spy()
    settings = [f"train.early_stopping.patience={patience}", "train.eval_every=2"]
    result = runs.train("a", *settings, listeners=[spy]).result
    assert (result["steps"], result["best_step"]) == (last, best)
    assert any("stopped early" in note for note in spy.notes)


RISING = [i / 100 for i in range(1, 40)]


def test_patience_by_task_leaves_tasks_out(runs, make_dev_scores):
    make_dev_scores({"mood": [0.5, 0.4, 0.4, *RISING], "same": RISING, "near": [0.5] * 40})
    spy, losses = runs.Spy(), Losses()
    settings = ["train.early_stopping={patience=2, per_task=true}", "train.eval_every=3"]
    runs.train("a", *settings, listeners=[spy, losses])
    # 3 evaluations: mood and near stood still for two of them, after update 9.
    tasks = [task for update in losses.seen for task in update]
    assert tasks[:9] == ["mood", "same", "near"] * 3
    assert set(tasks[9:]) == {"same"}
    assert [note.split()[0] for note in spy.notes if "stopped early" in note] == ["mood:", "near:"]


def test_limits_on_what_is_scored(runs):
    spy = runs.Spy()
    settings = ["train.eval_limit=5", "train.train_limit=20", "train.eval_every=8"]
    outcome = runs.train("a", *settings, listeners=[spy])
    assert [(step, split) for step, split, _ in spy.scored] == [
        (step, split) for step in (8, 16, 24) for split in ("dev", "train")
    ]
    for _, split, scores in spy.scored:
        counts = [scores.tasks[task].num_examples for task in TASKS]
        assert counts == [5] * 3 if split == "dev" else [20] * 3
    # At the end all of dev is scored, whatever the limit was.
    assert outcome.result["dev"]["tasks"]["mood"]["num_examples"] == 18


def test_scoring_on_the_way_does_not_change_training(runs, tiny_run):
    runs.train("many", "train.eval_every=4", "train.train_limit=5", "score_first=true")
    log = runs.log("many")
    assert (log[0]["event"], log[0]["step"], log[0]["split"]) == ("scores", 0, "dev")
    last = [[x for x in lines if x.get("split") == "dev"][-1] for lines in
            (log, runs.log(str(tiny_run)))]  # fmt: skip
    assert last[0] == last[1]


def test_the_first_score_is_never_the_best(runs, make_dev_scores):
    falling = [0.9, 0.3, 0.2]
    make_dev_scores(dict.fromkeys(TASKS, falling))
    assert runs.train("a", "score_first=true").result["best_step"] == 12


def test_without_dev_the_last_model_is_kept(runs):
    no_dev = [f"tasks.{task}.dev=[]" for task in TASKS]
    settings = [*no_dev, "save_every=7", "score_first=true", "train.epochs=100"]
    outcome = runs.train("a", *settings, "train.max_steps=10")
    assert set(outcome.result) == {"recipe", "steps", "best_step", "seconds"}
    assert outcome.result["best_step"] == outcome.result["steps"] == 10
    assert {line["event"] for line in runs.log("a")} == {"losses"}
    model = load_file(outcome.folder / "model.safetensors")
    last = load_file(outcome.folder / "checkpoint.safetensors")
    assert all(torch.equal(model[name], last[f"model.{name}"]) for name in model)
    assert Predictor.load(outcome.folder).predict("mood", ["a fine film"])


def test_stages_follow_one_another(runs, make_dev_scores, monkeypatch):
    """The best model is one of the last stage, even where an earlier stage had higher figures."""
    closed = []
    monkeypatch.setattr(Plain, "close", lambda runner: closed.append(runner))
    low = dict.fromkeys(("same", "near"), [0.0] * 6)
    make_dev_scores(low | {"mood": [0.9, 0.2, 0.4, 0.3]})
    settings = [
        "stages=['first', 'second']",
        "stage.first={epochs=1, lr=0.001, tasks=['mood']}",
        "stage.second={epochs=3, lr=0.002}",
    ]
    outcome = runs.train("a", *settings)
    log = runs.log("a")
    losses = [line for line in log if line["event"] == "losses"]
    assert [x["stage"] for x in losses] == ["first", *["second"] * (len(losses) - 1)]
    assert [(x["step"], x["rate"]) for x in (losses[0], losses[-1])] == [(4, 0.001), (40, 0.002)]
    steps = [line["step"] for line in log if line["event"] == "scores"]
    assert outcome.result["best_step"] == steps[2]
    assert outcome.result["dev"]["primary"]["mood"] == 0.4
    # Each stage frees what it captured.
    assert len(closed) == len(set(map(id, closed))) == 2


def test_a_run_that_diverges_says_so_and_is_not_kept(runs):
    with pytest.raises(RunError, match=r"training diverged: .* lower lr \(now 1e\+30"):
        runs.train("a", "train.lr=1e30", "train.clip=0.0", "log_every=1")
    assert not (runs.folder / "a" / "model.safetensors").exists()
    runs.log("a")  # refuses what is no JSON


def test_tasks_that_only_dev_has_are_scored_without_a_baseline(runs):
    result = runs.train(
        "a", "tasks.mood.train=[]", "train.tasks=['same', 'near']", "train.max_steps=1"
    ).result
    assert list(result["dev"]["primary"]) == list(TASKS)
    assert list(result["baseline"]["primary"]) == ["same", "near"]


# --- notes -------------------------------------------------------------------------------


def test_what_the_data_has_is_noted(runs):
    """Shared examples, skipped rows, labels without rows, unknown scripts, cut texts."""
    data = runs.recipe.parent
    train_rows = (data / "mood-train.csv").read_text().splitlines()
    with (data / "mood-dev.csv").open("a") as file:
        file.write(train_rows[1] + "\nx,, good\n")
    foreign = "".join(f"x{i},фильм film,good\n" for i in range(40))
    with (data / "mood-train.csv").open("a", encoding="utf-8") as file:
        file.write(foreign)
    spy = runs.Spy()
    outcome = runs.train(
        "a",
        "data.bad_rows='skip'",
        "tasks.mood.labels=['bad', 'so-so', 'good', 'divine', 'dire']",
        "tasks.mood.metric='macro_f1'",
        "encoder.max_length=8",
        "encoder.truncate='head-tail'",
        "train.max_steps=1",
        listeners=[spy],
    )
    notes = "\n".join(spy.notes)
    assert "train and dev share" in notes
    assert "mood-dev.csv" in notes
    assert (
        "mood: no training row has the labels divine, dire, so the model cannot learn them" in notes
    )
    assert "mood: no dev row has the labels divine, dire" in notes
    assert "unknown to the encoder" in notes
    assert "multilingual" in notes
    assert "are truncated in the middle" in notes
    assert outcome.result["dev"]["tasks"]["mood"]["per_class"][3]["support"] == 0
    texts = [("the film was very very very very dull", "a book"), ("the film", "a song")]
    assert len(Predictor.load(outcome.folder).predict("same", texts)) == 2


PAIR = "train.tasks=['mood', 'same']"


@pytest.mark.parametrize(
    ("settings", "who"),
    [
        ([], None),
        (["train.mode='last-layer'", PAIR], "no task trains the encoder"),
        (["tasks.same.touch_encoder=false"], None),
        (["tasks.same.touch_encoder=false", PAIR], "only task mood trains the encoder"),
        (["train.tasks=['mood']"], None),
        (["train.mode='last-layer'", "train.aggregator='sum'", PAIR], None),
    ],
    ids=str,
)
def test_surgery_with_nothing_to_do_is_noted(runs, settings, who):
    together = "train.schedule={name='round-robin', together=true}"
    config = read_recipe(runs.recipe, ["train.aggregator='pcgrad'", together, *settings])
    parts = build(config)
    stage = build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))
    notes = list(note_stage(stage))
    begins = "aggregator 'pcgrad' has no effect in stage finetune: "
    assert notes == ([] if who is None else [begins + who])
