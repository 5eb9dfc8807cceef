"""Runs, trials and answers on Ray are those of this machine alone."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from plait.cli import main
from plait.cli.runs import train_runs
from plait.config import read_recipe
from plait.errors import DataError, RunError, UsageError
from plait.inference.answers.folder import answer_folder
from plait.inference.answers.parts import Plan, find_files, make_plan
from plait.inference.predictor import Predictor
from plait.scale import Engine, Jobs
from plait.scale.answering import Source, _explain, _refuse_deadly, answer_on_ray
from plait.scale.cluster import Share
from plait.scale.remote import MOST_LOSSES
from plait.scale.running import Runs
from plait.scale.search import Search, run_search
from plait.scale.together import train_together
from plait.training.run import train

# Ray warns of its own settings when it copies them.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")

RAY = Engine("ray")


def read_figures(run):
    return json.loads((run / "scores.json").read_text())["dev"]["primary"]


def test_runs_are_trained_and_those_that_fail_are_told(cluster, tiny_recipe, tmp_path):
    config = read_recipe(tiny_recipe())
    other = config.model_copy(update={"seed": 8})
    gone = config.model_copy(update={"seed": 9})
    gone = gone.model_copy(
        update={"encoder": gone.encoder.model_copy(update={"source": "/nowhere/at/all"})}
    )
    train(config, tmp_path / "here")
    train(config, tmp_path / "runs" / "done")
    written = (tmp_path / "runs" / "done" / "scores.json").stat().st_mtime_ns
    runs = {
        "done": (config, tmp_path / "runs" / "done"),
        "seven": (config, tmp_path / "runs" / "seven"),
        "eight": (other, tmp_path / "runs" / "eight"),
        "gone": (gone, tmp_path / "runs" / "gone"),
    }
    heard: list[str] = []
    failed = train_runs(Runs(runs, None, "again"), Jobs(RAY, 2), hear=heard.append)
    assert sorted(heard) == ["done", "eight", "seven"]
    assert list(failed) == ["gone"]
    assert "/nowhere/at/all" in failed["gone"]
    assert (tmp_path / "runs" / "done" / "scores.json").stat().st_mtime_ns == written
    assert read_figures(tmp_path / "runs" / "seven") == read_figures(tmp_path / "here")


@pytest.fixture
def type_plait(capsys):
    """Factory: run a command in this process, which has its Ray already."""

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, words)))
        out, err = capsys.readouterr()
        assert ended.value.code == 0, err
        return out, err

    return run


@pytest.fixture
def pair(tiny_recipe):
    """Two members of the tiny recipe, by seed."""
    path = tiny_recipe().with_name("pair.toml")
    path.write_text("name = 'pair'\n[ensemble]\nmembers = ['recipe.toml']\nseeds = [1, 2]\n")
    return path


def test_an_ensemble_is_the_one_that_is_trained_here(cluster, type_plait, pair, tmp_path):
    words = ["train", pair, "-o", "train.epochs=1", "--out"]
    here, _ = type_plait(*words, tmp_path / "here")
    there, said = type_plait(*words, tmp_path / "there", "--jobs", "ray")
    assert there.replace("there", "here") == here  # the table, and what to try next
    assert "tiny-seed-1, tiny-seed-2" in said
    for seed in (1, 2):
        one, other = (
            (tmp_path / out / "members" / f"tiny-seed-{seed}" / "model.safetensors").read_bytes()
            for out in ("here", "there")
        )
        assert one == other
    assert read_figures(tmp_path / "there") == read_figures(tmp_path / "here")
    again, said = type_plait(*words, tmp_path / "there", "--jobs", "ray", "--resume")
    assert again == there
    assert said == ""  # nobody was hired


def test_each_task_alone_is_as_it_is_here(cluster, type_plait, tiny_recipe, tmp_path):
    words = ["train", tiny_recipe(), "--each-alone", "-o", "train.epochs=1", "--out"]
    here, _ = type_plait(*words, tmp_path / "here")
    there, said = type_plait(*words, tmp_path / "there", "--jobs", "ray,runs=3")
    assert there.replace("there", "here") == here
    assert "training 3 runs, 3 at once: mood, same, near" in said


@pytest.mark.slow
def test_workers_train_members_in_turn(cluster, type_plait, pair, tmp_path):
    if cluster.count_places(Share(1, 0)) < 2:
        pytest.skip("there is room for one worker only")
    words = ["train", pair, "--out", tmp_path / "run", "-o", "train.max_steps=4"]
    out, said = type_plait(*words, "--jobs", "ray,workers=2")
    assert "note: 1 of 2: tiny-seed-1" in said
    assert "note: 2 of 2: tiny-seed-2" in said
    assert "ensemble (" in out
    for seed in (1, 2):
        info = tmp_path / "run" / "members" / f"tiny-seed-{seed}" / "run.json"
        assert json.loads(info.read_text())["workers"] == 2


def test_a_finished_run_without_checkpoint_is_not_trained_again(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "checkpoint.safetensors").unlink()
    config = read_recipe(str(run / "recipe.toml"))
    found = train_together(config, run, RAY, 2, resume=True)  # no cluster is asked for
    assert found.result["dev"]["primary"] == read_figures(run)


BROKEN = """
from plait.methods.regularizers import REGULARIZERS, Regularizer

@REGULARIZERS.register("broken-elsewhere")
class Broken(Regularizer):
    'A mistake of whoever wrote it.'

    def __call__(self, model, task, batch, outputs, loss):
        return [][7]
"""


@pytest.mark.slow
def test_a_mistake_in_a_worker_can_be_found(cluster, tiny_recipe, tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    settings = [f"plugins=['{tmp_path / 'broken.py'}']"]
    settings += ["train.regularizers=[{name='broken-elsewhere'}]"]
    config = read_recipe(tiny_recipe(), settings)
    with pytest.raises(RuntimeError, match="a worker raised IndexError") as caught:
        train_together(config, tmp_path / "run", RAY, 1)
    (told,) = caught.value.__notes__
    assert "Traceback (most recent call last)" in told
    assert "return [][7]" in told


def test_a_search_has_the_trials_it_would_have_here(cluster, tiny_recipe, tmp_path):
    pytest.importorskip("optuna")
    recipe, space = tiny_recipe(), tmp_path / "space.toml"
    space.write_text('[search.space]\n"train.lr" = {low = 1e-4, high = 1e-2}\n')

    def search(out, engine):
        quick = ("train.tasks=['mood']",)
        wanted = Search(
            str(recipe),
            tmp_path / out,
            (*quick, str(space)),
            num_trials=2,
            engine=engine,
            num_jobs=1,
        )
        return [(t.number, t.state, t.figure, t.settings) for t in run_search(wanted)]

    assert search("there", RAY) == search("here", Engine())


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "rows").mkdir()
    for name, count in (("a", 37), ("b", 8)):
        lines = [f"{name}{i},the film was {'great' if i % 2 else 'dull'} ." for i in range(count)]
        (tmp_path / "rows" / f"{name}.csv").write_text("\n".join(["key,text", *lines]) + "\n")
    return tmp_path / "rows"


def test_answers_are_those_of_this_machine_to_the_byte(cluster, tiny_run, rows, tmp_path):
    model = Predictor.load(tiny_run)

    def plan(out):
        files = find_files(str(rows / "*.csv"))
        return make_plan(model, files, tmp_path / out, tasks=["mood"], part_rows=10)

    answer_folder(model, plan("here"))
    on_ray = answer_on_ray(Source(tiny_run, "cpu", "run"), RAY)
    done = answer_folder(model, plan("there"), answer=on_ray)
    assert (done.num_rows, done.num_parts) == (45, 5)

    def read(out):
        return {path.name: path.read_bytes() for path in (tmp_path / out).glob("part-*")}

    assert read("there") == read("here")
    lines = (tmp_path / "there" / "_manifest.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "there" / "_manifest.jsonl").write_text("".join(lines[:2]))
    shutil.rmtree(tmp_path / "here")
    kept = json.loads(lines[1])["part"]
    written = (tmp_path / "there" / kept).stat().st_mtime_ns
    again = answer_folder(model, plan("there"), answer=on_ray, resume=True)
    assert again == done
    assert (tmp_path / "there" / kept).stat().st_mtime_ns == written


def test_what_a_worker_finds_wrong_is_told_as_here(cluster, tiny_run, rows, tmp_path):
    model = Predictor.load(tiny_run)
    (rows / "b.csv").write_text("key,text\nb0,fine\nb1,\n")
    plan = make_plan(model, find_files(str(rows / "*.csv")), tmp_path / "out", tasks=["mood"])
    on_ray = answer_on_ray(Source(tiny_run, "cpu", "run"), RAY)
    with pytest.raises(DataError, match=r"b\.csv, line 3: ") as caught:
        answer_folder(model, plan, answer=on_ray)
    assert "\n" not in str(caught.value)
    plan = make_plan(model, [rows / "a.csv"], tmp_path / "second", tasks=["mood"])
    nowhere = answer_on_ray(Source(tmp_path / "no-run", "cpu", "run"), RAY)
    with pytest.raises(UsageError, match="does not see"):
        answer_folder(model, plan, answer=nowhere)


def test_a_part_that_kills_its_workers_is_given_up(tmp_path):
    place = tmp_path / "part-00000-000000000000.csv"
    for i in range(MOST_LOSSES + 1):  # what workers that were lost leave behind
        _refuse_deadly(place)
        (tmp_path / f".{place.name}.{i}.tmp").touch()
    with pytest.raises(RunError, match="was begun 4 times, and every worker was lost"):
        _refuse_deadly(place)


def test_what_nobody_foresaw_keeps_what_is_behind_it():
    said = "ray::_answer()\n  File 'part.py', line 3\nValueError: 7 rows, 6 answers"
    told = _explain(RuntimeError(said))
    assert "(RuntimeError: ValueError: 7 rows, 6 answers); what is answered is kept" in str(told)
    assert told.__notes__ == [said]


def test_a_stream_that_is_left_ends_before_the_cluster(monkeypatch, tmp_path):
    """Ray asks the cluster when it ends one: of a cluster that is gone, it ends in a traceback."""
    told = []

    @contextmanager
    def connected(engine):
        try:
            yield SimpleNamespace(
                choose_share=lambda *_, **__: Share(1, 0), count_places=lambda _: 1
            )
        finally:
            told.append("the cluster ends")

    def stream(*_):
        try:
            yield {"error": b"", "note": '{"part": "part-0"}'}
        finally:
            told.append("the stream ends")

    monkeypatch.setattr("plait.scale.answering.connected", connected)
    monkeypatch.setattr("plait.scale.answering.describe_surroundings", lambda *_: None)
    monkeypatch.setattr("plait.scale.answering._stream", stream)
    answer = answer_on_ray(Source(tmp_path, "cpu", "run"), RAY)
    parts = answer(Plan((), (), (), "csv", tmp_path), {0: frozenset()})
    assert next(parts) == {"part": "part-0"}
    parts.close()
    assert told == ["the stream ends", "the cluster ends"]
