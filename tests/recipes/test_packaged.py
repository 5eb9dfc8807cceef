"""The packaged recipes: each loads, builds and trains; those of the reports have their settings."""

from __future__ import annotations

import csv
import json
import random
import shutil
from itertools import chain
from pathlib import Path

import pytest
from safetensors import safe_open

from plait.config import list_recipes, read_ensemble, read_recipe
from plait.inference.build import build_tasks
from plait.training.counting import count_run
from plait.training.plan import Plan
from plait.training.run import train
from plait.training.runs import train_ensemble

# Recipes of the same run as another, which a report prints twice.
ALIASES = {"a/annealed-ce", "a/square-root-ce", "d/concat-smart-pretrain"}

RECIPES = [name for name, table in list_recipes().items() if table.get("about")]
ENSEMBLES = [name for name in RECIPES if "ensemble" in list_recipes()[name]]
RUNS = [name for name in RECIPES if name not in ENSEMBLES]
REPORTED = [name for name in RUNS if name.startswith(("a/", "b/", "c/", "d/", "minbert/"))]
ON_BERT = [name for name in REPORTED if name not in {*ALIASES, "a/meta"}]
ROWS = [name for name in REPORTED if name not in ("a/meta", "d/lambda-sst")]

SIZES = {"sst": 8544, "quora": 63483, "sts": 6040, "cfimdb": 1707}
FIRST_SIZES = {"nli": 120_623, "films": 14_625}
DEMO_SIZES = dict.fromkeys(("sentiment", "paraphrase", "similarity"), 320)


# --- what they are -----------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_it_loads_builds_and_plans(name):
    config = read_recipe(name)
    assert config.name == name
    Plan.build(config)
    build_tasks(config)
    assert count_run(config, SIZES | DEMO_SIZES | FIRST_SIZES).updates > 0


def test_bases_are_extended_by_others():
    tables = list_recipes()
    extended = (_words(table.get("extends", [])) for table in tables.values())
    parents = set(chain.from_iterable(extended))
    assert {name for name in tables if name not in RECIPES} <= parents


def _words(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@pytest.mark.parametrize("name", ON_BERT)
def test_what_all_reports_share(name):
    config = read_recipe(name)
    assert config.encoder.source == "google-bert/bert-base-uncased"
    assert config.encoder.pooling == "cls-pooler"
    for stage in map(config.stage_config, config.stages):
        assert stage.lr == (1e-3 if stage.mode == "last-layer" else 1e-5)
        assert (stage.weight_decay, stage.clip, stage.betas) == (0, 0, (0.9, 0.999))
        assert (stage.eps, stage.warmup, stage.decay) == (1e-6, 0, "constant")


def test_system_a():
    for name in (n for n in ROWS if n.startswith("a/")):
        config = read_recipe(name)
        new = "new-heads" in name or "smart" in name
        assert ("simcse" in config.stages) == ("simcse" in name)
        assert {config.tasks[t].inputs for t in ("quora", "sts")} == {"joined" if new else "apart"}
        wanted = "mse" if "mse" in name else "score-cross-entropy"
        assert config.tasks["sts"].loss["name"] == wanted
        assert config.train.batch_size == 8
        assert config.train.schedule.get("steps", 2400) == 2400
    weights = read_recipe("a/annealed-smart-5-3-3").train.regularizers[0]["weight"]
    assert weights == {"sst": 5, "quora": 3, "sts": 3}


def test_system_b():
    for name in (n for n in ROWS if n.startswith("b/")):
        config = read_recipe(name)
        assert config.train.epochs == 9
        assert config.train.schedule.get("cap") == (200 if "200" in name else None)
        assert ("pcgrad" in name) == (config.train.aggregator["name"] == "pcgrad")
        is_cosine = "cosine-sts" in name or "cosine-both" in name
        assert config.tasks["sts"].head["name"] == ("cosine" if is_cosine else "linear")
        is_cosine = "cosine-para" in name or "cosine-both" in name
        assert ("cos" in config.tasks["quora"].head["features"]) == is_cosine
    order = read_recipe("b/sum-12-cosine-sts-200").train.schedule["order"]
    for task in ("sst", "quora", "sts"):
        assert sum(epoch for epoch, other in enumerate(order) if other == task) == 12


def test_system_c():
    for name in (n for n in ROWS if n.startswith("c/")):
        config = read_recipe(name)
        assert config.tasks["quora"].count == (None if name == "c/baseline" else 14150)
        surgery = "pcgrad" in name
        assert config.train.schedule["name"] == ("round-robin" if surgery else "sequential")
        assert config.train.batch_size == (3 if "extra" in name else 5 if surgery else 8)
        assert config.train.epochs == (5 if "5-epochs" in name else 10)
        parts = [part["name"] for part in config.train.regularizers]
        assert parts == (["smart-unit", "bregman"] if "smart" in name else [])
        if name.endswith(("-0", "-1", "-2")):
            assert {part["variant"] for part in config.train.regularizers} == {int(name[-1])}


def test_the_ensemble_has_five_members_of_the_grid():
    config = read_ensemble("d/ensemble")
    assert (config.name, config.how, len(config.members)) == ("d/ensemble", "mode", 5)
    for name, member in config.members.items():
        assert member == read_recipe(member.name)
        assert name == member.name.replace("/", "-")


def test_system_d():
    for name in (n for n in ROWS if n.startswith("d/") and n not in ENSEMBLES):
        config = read_recipe(name)
        dropout = float(name[-3:]) if "dropout" in name else 0.3
        heads = {task.head["dropout"] for task in config.tasks.values()}
        assert heads | {config.encoder.dropout} == {dropout}
        assert config.encoder.attention_dropout == 0.1
        if name.endswith("sequential"):
            stages = [config.stage_config(stage) for stage in config.stages]
            assert [stage.tasks for stage in stages] == [("quora",), ("sts",), ("sst",)]
            assert [stage.epochs for stage in stages] == [2, 10, 10]
        else:
            assert config.stage_config("finetune").schedule["name"] == "simultaneous"
            assert ("pretrain" in config.stages) == ("simultaneous" not in name)
        if "lambda" in name:
            assert config.train.regularizers[0]["weight"] == float(name.split("-")[1])


def test_the_sweep_drops_out_as_the_rest_of_system_d_does():
    sweep, other = read_recipe("d/lambda-sst"), read_recipe("d/concat-smart-sequential")
    assert sweep.encoder == other.encoder
    assert sweep.tasks["sst"] == other.tasks["sst"]


# --- training ----------------------------------------------------------------------------

THINGS = ("film", "book", "song", "meal", "walk")
WORDS = ("awful", "plain", "fine", "great", "dull")


def _write(path: Path, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Write a file as the course has them: tabs, and a first column without a name."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([("", *columns), *((i, f"id{i}", *row) for i, row in enumerate(rows))])


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files in the course's format, the two that system C adds, and those of the best."""
    folder = tmp_path_factory.mktemp("course")
    draw = random.Random(1)

    def say() -> str:
        # Numbered, since what dev has is left out of pre-training.
        return f" the {draw.choice(THINGS)} {draw.randrange(9999)} was {draw.choice(WORDS)} ."

    def some(count: int, texts: int, labels: tuple[object, ...]) -> list[tuple[object, ...]]:
        return [(*(say() for _ in range(texts)), labels[i % len(labels)]) for i in range(count)]

    one, two = ("id", "sentence"), ("id", "sentence1", "sentence2")
    for split, count in (("train", 40), ("dev", 10)):
        for name, labels in (("sst", (0, 1, 2, 3, 4)), ("cfimdb", (0, 1))):
            path = folder / f"ids-{name}-{split}.csv"
            _write(path, (*one, "sentiment"), some(count, 1, labels))
        path = folder / f"quora-{split}.csv"
        _write(path, (*two, "is_duplicate"), some(count, 2, ("0.0", "1.0")))
        path = folder / f"sts-{split}.csv"
        _write(path, (*two, "similarity"), some(count, 2, (0.0, 1.2, 3.8, 5.0)))
    sources = ("shop", "rotten_tomatoes_reviews")
    reviews = [f"{say()}\t{i % 5}\t{sources[i % 2]}" for i in range(10)]
    (folder / "reviews-5class.tsv").write_text("\n".join(["text\tlabel\tsource", *reviews, ""]))
    words = ("entailment", "neutral", "contradiction")
    pairs = [f"{say()}\t{say()}\t{words[i % 3]}" for i in range(9)]
    (folder / "nli-pairs.tsv").write_text("\n".join(["premise\thypothesis\tlabel", *pairs, ""]))
    phrases = [f"{say()}\t{i % 5}" for i in range(10)]
    (folder / "sst-phrases.tsv").write_text("\n".join(["phrase\tlabel", *phrases, ""]))
    for name, columns in (
        ("quora-duplicates.tsv", "sentence1\tsentence2\tany"),
        ("quora-pairs.csv", "sentence1\tsentence2\tsimilarity"),
        ("sts12-16.tsv", "sentence1\tsentence2\tsimilarity"),
        ("sick.tsv", "sentence_A\tsentence_B\trelatedness"),
    ):
        scored = [f"{say()}\t{say()}\t{1 + i / 2}" for i in range(9)]
        (folder / name).write_text("\n".join([columns, *scored, ""]))
    return folder


# One of each idea; the others are variations on these.
FIRST = {
    "course",
    "minbert/cfimdb-last-layer",
    "best/data",
    "a/baseline",
    "a/round-robin-full",
    "a/simcse-new-heads",
    "a/annealed-smart-5-3-3",
    "b/baseline",
    "b/sum-12-cosine-sts-200",
    "b/pcgrad-cosine-both-200-batch-16",
    "c/pcgrad-smart-extra-data",
    "c/cross-encoding-pcgrad-smart-2",
    "d/cos-sim-sequential",
    "d/concat-smart-surgery-pretrain",
}
TRAINED = [
    pytest.param(name, marks=() if name in FIRST else pytest.mark.slow)
    for name in RUNS
    if name not in ("demo", "best/distilled", *ALIASES)
]
TRIED = ["train.max_steps=2", "device=cpu", "listeners=[]", "encoder.max_length=32"]


@pytest.mark.parametrize("name", TRAINED)
def test_it_trains(name, course, tiny_encoder, tmp_path):
    overrides = [*TRIED, f"encoder.source={tiny_encoder.as_posix()}"]
    if read_recipe(name).tasks.get("quora") and read_recipe(name).tasks["quora"].count:
        overrides.append("tasks.quora.count=20")
    if "meta" in read_recipe(name).stages:
        # A turn takes several batches, and one of them says how many updates it makes.
        overrides += ["stage.meta.batch_size=2", "stage.meta.max_steps=2"]
    if "first" in read_recipe(name).stages:
        overrides.append("stage.first.max_steps=2")
    config = read_recipe(name, overrides)
    for task, settings in config.tasks.items():
        files = [f.model_copy(update={"count": f.count and 9}) for f in settings.train]
        config.tasks[task] = settings.model_copy(update={"train": tuple(files)})
    outcome = train(config, tmp_path / "run", data=str(course))
    assert outcome.result["steps"] == 2 * len(config.stages)
    scored = {name for name, task in config.tasks.items() if task.dev}
    assert outcome.result["dev"]["primary"].keys() == scored


@pytest.mark.slow
def test_the_best_are_distilled(course, tiny_encoder, tmp_path):
    course = Path(shutil.copytree(course, tmp_path / "course"))
    with (course / "reviews-5class.tsv").open("a") as file:  # enough to calibrate each half on
        file.writelines(f"critic {i}\t{i % 5}\trotten_tomatoes_reviews\n" for i in range(30))
    phrases = (course / "sst-phrases.tsv").read_text().splitlines()
    grouped = [f"{phrases[0]}\tsentence", *(f"{line}\t" for line in phrases[1:]), ""]
    (course / "sst-phrases-grouped.tsv").write_text("\n".join(grouped))
    texts = [f"something new {i}" for i in range(7)]
    (course / "sst-varied.csv").write_text("\n".join(["sentence", *texts, ""]))
    overrides = [*TRIED, f"encoder.source={tiny_encoder.as_posix()}", "stage.first.max_steps=2"]
    folds = read_ensemble("best/ten", [*overrides, "ensemble.folds=2"])
    teacher = train_ensemble(folds, tmp_path / "teacher", data=str(course))
    assert all(teacher.result["calibrated"].values())
    overrides += [f"stage.distill.kind.teacher={teacher.folder.as_posix()}"]
    config = read_ensemble("best/students", [*overrides, "ensemble.seeds=[11, 12]"])
    students = train_ensemble(config, tmp_path / "students", data=str(course))
    assert students.result["dev"]["primary"].keys() == {"sst", "quora", "sts"}
    first = students.folder / "members" / "best-distilled-seed-11"
    told = json.loads((first / "run.json").read_text(encoding="utf-8"))["data"]
    rows = {task: facts["rows"] for task, facts in told["unlabelled"].items()}
    assert rows == {"sst": 5 + 30 + 7, "quora": 9}
    with safe_open(first / "teacher" / "distill.safetensors", "pt") as answers:
        assert sorted(answers.keys()) == ["quora", "sst"]  # similarity learns from its labels


def test_the_ensemble_trains(course, tiny_encoder, tmp_path):
    overrides = [*TRIED, f"encoder.source={tiny_encoder.as_posix()}"]
    config = read_ensemble("d/ensemble", overrides)
    outcome = train_ensemble(config, tmp_path / "five", data=str(course))
    assert len(list((tmp_path / "five" / "members").iterdir())) == 5
    assert outcome.result["dev"]["primary"].keys() == {"sst", "quora", "sts"}
