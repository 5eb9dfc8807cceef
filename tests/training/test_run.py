"""Whole runs: what they leave, which model they keep, and when they end."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from plait.errors import DataError, RunError
from plait.inference.predictor import Predictor
from plait.inference.scoring import Scorer
from plait.tasks import TASK_KINDS
from plait.tasks.metrics import summarise
from plait.training.graphs import Plain
from plait.training.listeners import Listener

STEPS = 24  # of the tiny recipe


# --- end to end --------------------------------------------------------------------------


def test_what_a_run_leaves(runs):
    outcome = runs.train("a", 'listeners=["tensorboard"]')
    assert outcome.folder == runs.folder / "a"
    assert {path.name for path in outcome.folder.iterdir()} == {
        ".lock",
        "card.md",
        "recipe.toml",
        "model.safetensors",
        "checkpoint.safetensors",
        "encoder.json",
        "tokenizer.json",
        "run.json",
        "metrics.jsonl",
        "scores.json",
        "tensorboard",
    }


def test_what_scores_json_holds(runs):
    outcome = runs.train("a")
    assert json.loads((outcome.folder / "scores.json").read_text()) == outcome.result
    keys = ["recipe", "steps", "best_step", "seconds", "dev", "baseline", "baselines"]
    assert list(outcome.result) == keys
    assert outcome.result["recipe"] == "tiny"
    assert outcome.result["steps"] == STEPS
    assert outcome.result["best_step"] in (12, 24)
    assert outcome.result["seconds"] > 0
    for scores in (outcome.result["dev"], outcome.result["baseline"]):
        assert list(scores["tasks"]) == ["mood", "same", "near"]
        assert {n: t["num_examples"] for n, t in scores["tasks"].items()} == {
            "mood": 18,
            "same": 16,
            "near": 12,
        }
        assert scores["primary"]["mood"] == scores["tasks"]["mood"]["metrics"]["accuracy"]
        assert scores["primary"]["near"] == scores["tasks"]["near"]["metrics"]["pearson"]
        total = sum(v or 0.0 for v in scores["primary"].values())
        assert scores["summary"]["sum"] == pytest.approx(total)
    assert outcome.result["baseline"]["primary"]["near"] is None  # constant: no correlation


def test_what_the_log_holds(runs):
    result = runs.train("a").result
    log = runs.log("a")
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
    best = next(
        line for line in log if line["event"] == "scores" and line["step"] == result["best_step"]
    )
    assert best["summary"] == result["dev"]["summary"]
    for task, metrics in best["metrics"].items():
        assert metrics == result["dev"]["tasks"][task]["metrics"]


def test_logged_losses_are_the_means_since_the_line_before(runs):
    class Losses(Listener):
        def __init__(self):
            self.seen = []

        def step(self, record):
            self.seen.append({t: float(loss) for t, loss in record.result.losses.items()})

    spy = Losses()
    runs.train("a", listeners=[spy])
    before = 0
    for line in runs.log("a"):
        if line["event"] == "losses":
            some = spy.seen[before : line["step"]]
            before = line["step"]
            for task, mean in line["losses"].items():
                values = [losses[task] for losses in some if task in losses]
                assert mean == pytest.approx(sum(values) / len(values), rel=1e-5)


def test_what_run_json_tells(runs, tiny_encoder):
    folder = runs.train("a").folder
    info = json.loads((folder / "run.json").read_text())
    assert info["torch"] == torch.__version__
    assert info["precision"] == "fp32"
    assert info["encoder"]["origin"] == str(tiny_encoder)
    assert len(info["encoder"]["sha256"]) == 64
    assert info["data"]["train"]["mood"]["rows"] == 45
    assert info["data"]["dev"]["near"]["rows"] == 12


def test_the_resolved_recipe_makes_the_same_run(runs):
    first = runs.train("a", "train.lr=0.001")
    runs.recipe = first.folder / "recipe.toml"
    runs.train("b")
    runs.check_equal("a", "b")


def test_the_result_is_what_the_saved_model_scores(runs):
    outcome = runs.train("a", "train.eval_every=3")
    assert Predictor.load(outcome.folder).evaluate("dev").to_json() == outcome.result["dev"]


def test_a_run_predicts_without_its_encoder_and_data(runs, tiny_encoder, tmp_path):
    own = tmp_path / "own-encoder"
    own.mkdir()
    for path in tiny_encoder.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    folder = runs.train("a", f"encoder.source={str(own)!r}").folder
    texts = ["the film was great .", "it was dull"]
    before = Predictor.load(folder).predict("mood", texts)
    own.rename(tmp_path / "elsewhere")
    runs.recipe.parent.rename(tmp_path / "gone")
    moved = folder.rename(tmp_path / "moved")
    assert Predictor.load(moved).predict("mood", texts) == before


def test_training_moves_the_weights_and_lowers_the_loss(runs):
    outcome = runs.train("a", "train.epochs=20", "train.lr=0.01")
    log = [line["losses"] for line in runs.log("a") if line["event"] == "losses"]
    first = {task: next(x[task] for x in log if task in x) for task in ("mood", "same", "near")}
    last = {task: next(x[task] for x in log[::-1] if task in x) for task in first}
    assert all(last[task] < 0.8 * first[task] for task in ("mood", "near"))
    assert outcome.result["dev"]["primary"]["mood"] > outcome.result["baseline"]["primary"]["mood"]


def test_the_same_recipe_gives_the_same_run(runs):
    first = runs.train("a")
    torch.manual_seed(12345)  # whatever state the process is in
    torch.rand(100)
    second = runs.train("b")
    runs.check_equal("a", "b")
    assert first.result["dev"] == second.result["dev"]


def test_another_seed_gives_another_run(runs):
    weights = [
        load_file(runs.train(f"r{seed}", f"seed={seed}").folder / "model.safetensors")
        for seed in (1, 2)
    ]
    for name in ("heads.task-mood.out.weight", "encoder.embeddings.word.weight"):
        assert not torch.equal(weights[0][name], weights[1][name])


def test_relative_data_and_the_data_argument(runs, tmp_path, monkeypatch):
    runs.train("a")
    moved = runs.recipe.parent.rename(tmp_path / "moved")
    runs.recipe = moved / "recipe.toml"
    with pytest.raises(DataError, match="no data folder"):
        runs.train("b")
    runs.train("b", data=str(moved))
    runs.check_equal("a", "b")


# --- choosing and ending -----------------------------------------------------------------


@pytest.mark.parametrize("select", ["sum", "overall", "mean"])
def test_the_best_checkpoint_is_the_first_with_the_highest_figure(runs, select):
    for seed in range(1, 9):  # until one tells best from last: CPUs round differently
        spy = runs.Spy()
        settings = [f"select={select!r}", "train.eval_every=2", "train.lr=0.05", f"seed={seed}"]
        outcome = runs.train(str(seed), *settings, listeners=[spy])
        figures = {step: scores.summary[select] for step, _, scores in spy.scored}
        assert outcome.result["best_step"] == max(figures, key=figures.get)
        assert outcome.result["dev"]["summary"][select] == max(figures.values())
        best = Predictor.load(outcome.folder).evaluate("dev")
        assert best.summary[select] == max(figures.values())
        if outcome.result["best_step"] < STEPS:
            return
    pytest.fail("every run was best at its end")


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


@pytest.mark.parametrize(
    ("patience", "figures", "last", "best"),
    [
        (1, [0.5, 0.5], 4, 2),  # as good is not better
        (2, [0.5, 0.4, 0.6, 0.5, 0.6], 10, 6),
        (3, [0.5, 0.4, 0.4, 0.6, 0.1, 0.2, 0.3], 14, 8),
        (9, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.7, 0.6, 0.5, 0.4], 24, 16),
    ],
)
def test_patience(runs, make_dev_scores, patience, figures, last, best):
    flat = dict.fromkeys(("same", "near"), [0.0] * 20)
    make_dev_scores(flat | {"mood": figures + [0.0] * 20})
    spy = runs.Spy()
    settings = [f"train.early_stopping.patience={patience}", "train.eval_every=2"]
    result = runs.train("a", *settings, listeners=[spy]).result
    assert (result["steps"], result["best_step"]) == (last, best)
    stopped = [note for note in spy.notes if "stopped early" in note]
    assert stopped == (
        [f"stopped early after {last} updates: dev got no better"] if last < STEPS else []
    )


def test_patience_by_task_leaves_tasks_out(runs, make_dev_scores):
    rising = [i / 100 for i in range(1, 40)]
    figures = {"mood": [0.5, 0.4, 0.4, *rising], "same": rising, "near": [0.5] * 40}
    make_dev_scores(figures)

    class Tasks(runs.Spy):
        def __init__(self):
            super().__init__()
            self.tasks = []

        def step(self, record):
            self.tasks += record.result.losses

    spy = Tasks()
    settings = ["train.early_stopping={patience=2, per_task=true}", "train.eval_every=3"]
    runs.train("a", *settings, listeners=[spy])
    # 3 evaluations: mood and near stood still for two of them, after update 9.
    assert spy.tasks[:9] == ["mood", "same", "near"] * 3
    assert set(spy.tasks[9:]) == {"same"}
    assert [note.split()[0] for note in spy.notes if "left out" in note] == ["mood", "near"]


def test_a_figure_that_cannot_be_told_is_not_the_best(runs, make_dev_scores):
    rising = [i / 100 for i in range(1, 40)]
    make_dev_scores({"mood": rising, "same": rising, "near": [float("nan"), *rising]})
    spy = runs.Spy()
    settings = ["train.early_stopping={patience=1, per_task=true}", "train.eval_every=3"]
    runs.train("a", *settings, listeners=[spy])
    assert not [note for note in spy.notes if "left out" in note]


def test_the_stage_ends_when_no_task_is_left(runs, make_dev_scores):
    make_dev_scores(dict.fromkeys(("mood", "same", "near"), [0.5] * 40))
    settings = ["train.early_stopping={patience=1, per_task=true}", "train.eval_every=3"]
    assert runs.train("a", *settings).result["steps"] == 6


def test_limits_on_what_is_scored(runs):
    spy = runs.Spy()
    settings = ["train.eval_limit=5", "train.train_limit=7", "train.eval_every=8"]
    outcome = runs.train("a", *settings, listeners=[spy])
    assert [(step, split) for step, split, _ in spy.scored] == [
        (step, split) for step in (8, 16, 24) for split in ("dev", "train")
    ]
    for _, split, scores in spy.scored:
        counts = {task.num_examples for task in scores.tasks.values()}
        assert counts == {5 if split == "dev" else 7}
    lines = [line for line in runs.log("a") if line["event"] == "scores"]
    assert [line["split"] for line in lines] == ["dev", "train"] * 3
    # At the end all of dev is scored, whatever the limit was.
    assert outcome.result["dev"]["tasks"]["mood"]["num_examples"] == 18
    assert outcome.result["dev"] == Predictor.load(outcome.folder).evaluate("dev").to_json()


def test_limits_beyond_what_there_is(runs):
    spy = runs.Spy()
    runs.train("a", "train.eval_limit=999", "train.train_limit=999", listeners=[spy])
    assert spy.scored[0][2].tasks["mood"].num_examples == 18
    assert spy.scored[1][2].tasks["mood"].num_examples == 45


def test_scoring_on_the_way_does_not_change_training(runs):
    runs.train("few", "train.eval_every=24")
    runs.train("many", "train.eval_every=1", "train.train_limit=5", "score_first=true")
    last = [[x for x in runs.log(out) if x.get("split") == "dev"][-1] for out in ("few", "many")]
    assert last[0] == last[1]


def test_score_first(runs):
    runs.train("a", "score_first=true")
    first = runs.log("a")[0]
    assert (first["event"], first["step"], first["split"]) == ("scores", 0, "dev")
    runs.train("b")
    one, other = (runs.folder / out / "model.safetensors" for out in "ab")
    assert one.read_bytes() == other.read_bytes()


def test_the_first_score_is_never_the_best(runs, make_dev_scores):
    falling = [0.9, 0.3, 0.2]
    make_dev_scores({"mood": falling, "same": falling, "near": falling})
    assert runs.train("a", "score_first=true").result["best_step"] == 12


NO_DEV = [f"tasks.{task}.dev=[]" for task in ("mood", "same", "near")]


def test_without_dev_the_last_model_is_kept(runs):
    settings = [*NO_DEV, "save_every=7", "score_first=true"]
    outcome = runs.train("a", *settings)
    assert set(outcome.result) == {"recipe", "steps", "best_step", "seconds"}
    assert outcome.result["best_step"] == STEPS
    assert {line["event"] for line in runs.log("a")} == {"losses"}
    model = load_file(outcome.folder / "model.safetensors")
    last = load_file(outcome.folder / "checkpoint.safetensors")
    assert all(torch.equal(model[name], last[f"model.{name}"]) for name in model)
    assert Predictor.load(outcome.folder).predict("mood", ["a fine film"])
    runs.train_broken("b", *settings, crashes=(3, 9, 23, 24))
    runs.check_equal("a", "b")


def test_max_steps(runs):
    outcome = runs.train("a", "train.max_steps=5", "train.epochs=100")
    assert outcome.result["steps"] == 5
    assert runs.log("a")[-1]["step"] == 5  # scored, though no epoch ended
    assert outcome.result["best_step"] == 5


def test_stages_follow_one_another(runs):
    settings = [
        "stages=['first', 'second']",
        "stage.first={epochs=1, lr=0.001, tasks=['mood']}",
        "stage.second={epochs=1, lr=0.002}",
    ]
    runs.train("a", *settings)
    losses = [line for line in runs.log("a") if line["event"] == "losses"]
    assert [x["stage"] for x in losses] == ["first", *["second"] * (len(losses) - 1)]
    assert losses[0]["step"] == 4
    assert losses[0]["rate"] == 0.001
    assert losses[-1]["step"] == 16
    assert losses[-1]["rate"] == 0.002


def test_the_best_model_is_one_of_the_last_stage(runs, make_dev_scores):
    """Even where an earlier stage, which trains one task, comes to higher figures."""
    settings = [
        "stages=['first', 'second']",
        "stage.first={epochs=2, tasks=['mood']}",
        "stage.second={epochs=3}",
    ]
    low = dict.fromkeys(("same", "near"), [0.0] * 6)
    figures = low | {"mood": [0.9, 0.8, 0.2, 0.4, 0.3]}
    make_dev_scores(figures)
    outcome = runs.train("a", *settings)
    steps = [line["step"] for line in runs.log("a") if line["event"] == "scores"]
    assert outcome.result["best_step"] == steps[3]
    assert outcome.result["dev"]["primary"]["mood"] == 0.4
    make_dev_scores(figures | {"mood": [*figures["mood"], 0.4]})  # the best is scored again
    runs.train_broken("b", *settings, crashes=tuple(step + 1 for step in steps[:4]))
    runs.check_equal("a", "b")


def test_a_frozen_encoder_stays_as_it_was(runs, tiny_encoder):
    settings = ["train.mode='last-layer'", "train.tasks=['mood', 'same']"]
    folder = runs.train("a", *settings).folder
    trained = load_file(folder / "model.safetensors")
    word = load_file(tiny_encoder / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert torch.equal(trained["encoder.embeddings.word.weight"], word)


def test_shared_examples_and_skipped_rows_are_noted(runs):
    data = runs.recipe.parent
    train_rows = (data / "mood-train.csv").read_text().splitlines()
    with (data / "mood-dev.csv").open("a") as file:
        file.write(train_rows[1] + "\n")
        file.write("x,, good\n")
    spy = runs.Spy()
    runs.train("a", "data.bad_rows='skip'", listeners=[spy])
    assert any("train and dev share" in note for note in spy.notes)
    assert any("mood-dev.csv" in note for note in spy.notes)


def test_a_run_that_diverges_says_so_and_is_not_kept(runs):
    with pytest.raises(RunError, match=r"is not a number any more .* lower rate than 1e\+30"):
        runs.train("a", "train.lr=1e30", "train.clip=0.0", "log_every=1")
    assert not (runs.folder / "a" / "model.safetensors").exists()
    runs.log("a")  # refuses what is no JSON


def test_labels_that_no_row_has_are_noted(runs):
    """The figures are there all the same."""
    spy = runs.Spy()
    outcome = runs.train(
        "run",
        "tasks.mood.labels=['bad', 'so-so', 'good', 'divine']",
        "tasks.mood.metric='macro_f1'",
        listeners=[spy],
    )
    told = [note for note in spy.notes if "divine" in note]
    assert told == [
        "mood: no training row has the label divine, which is never learnt",
        "mood: no dev row has the label divine, which counts as 0 in macro averages",
    ]
    assert outcome.result["dev"]["primary"]["mood"] > 0
    assert outcome.result["dev"]["tasks"]["mood"]["per_class"][3]["support"] == 0
    labels = "tasks.mood.labels=['bad', 'so-so', 'good', 'divine', 'dire']"
    runs.train("two", labels, "train.max_steps=1", listeners=[several := runs.Spy()])
    assert [note for note in several.notes if "divine" in note] == [
        "mood: no training row has the labels divine, dire, which are never learnt",
        "mood: no dev row has the labels divine, dire, which count as 0 in macro averages",
    ]


SURGERY = ["train.aggregator='pcgrad'", "train.schedule={name='round-robin', together=true}"]
PAIR = "train.tasks=['mood', 'same']"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ([], []),
        (["train.mode='last-layer'", PAIR], ["no task trains the encoder"]),
        (["tasks.same.touch_encoder=false"], []),
        (["tasks.same.touch_encoder=false", PAIR], ["mood alone trains the encoder"]),
        (["train.tasks=['mood']"], []),
        (["train.mode='last-layer'", "train.aggregator='sum'", PAIR], []),
    ],
    ids=str,
)
def test_surgery_with_nothing_to_do_is_noted(runs, settings, told):
    spy = runs.Spy()
    runs.train("run", *SURGERY, "train.max_steps=1", *settings, listeners=[spy])
    notes = [note for note in spy.notes if "nothing to weigh" in note]
    begins = "aggregator 'pcgrad' has nothing to weigh in stage finetune: "
    assert notes == [begins + why for why in told]


def test_texts_in_another_script_are_noted(runs):
    spy = runs.Spy()
    path = runs.recipe.parent / "mood-train.csv"
    foreign = "".join(f"x{i},\u0444\u0438\u043b\u044c\u043c film,good\n" for i in range(40))
    path.write_text(path.read_text(encoding="utf-8") + foreign, encoding="utf-8")
    runs.train("run", "train.max_steps=1", listeners=[spy])
    told = [note for note in spy.notes if "unknown to the encoder" in note]
    assert [note.split(":")[0] for note in told] == ["mood"]
    assert "multilingual" in told[0]


def test_many_tasks_in_another_script_are_one_note(runs):
    spy = runs.Spy()
    for name in ("mood", "same"):
        path = runs.recipe.parent / f"{name}-train.csv"
        rows = path.read_text(encoding="utf-8").replace("the ", "\u0444\u0438\u043b\u044c\u043c ")
        path.write_text(rows, encoding="utf-8")
    runs.train("run", "train.max_steps=1", listeners=[spy])
    told = [note for note in spy.notes if "unknown to the encoder" in note]
    assert len(told) == 1
    assert re.match(r"mood: \d+%, same: \d+% of their tokens are unknown", told[0])


def test_long_texts_are_noted(runs):
    spy = runs.Spy()
    runs.train("run", "train.max_steps=1", "encoder.max_length=8", listeners=[spy])
    told = [note for note in spy.notes if "lose their end" in note]
    assert {note.split(":")[0] for note in told} >= {"same"}
    spy = runs.Spy()
    settings = ["train.max_steps=1", "encoder.max_length=8", "encoder.truncate='head-tail'"]
    folder = runs.train("both", *settings, listeners=[spy]).folder
    assert any("lose their middle" in note for note in spy.notes)
    texts = [("the film was very very very very dull", "a book"), ("the film", "a song")]
    assert len(Predictor.load(folder).predict("same", texts)) == 2


def test_every_stage_lets_go_of_what_it_captured(runs, monkeypatch):
    closed = []
    monkeypatch.setattr(Plain, "close", lambda runner: closed.append(runner))
    runs.train("a", "stages=['one', 'two']", "train.max_steps=1")
    assert len(closed) == len(set(map(id, closed))) == 2
