"""Runs, trials and answers on Ray are those of this machine alone."""

from __future__ import annotations

import json
import shutil

import pytest

from plait.answers.folder import answer_folder
from plait.answers.parts import find_files, make_plan
from plait.cli.jobs import train_at_once
from plait.config import read_recipe
from plait.engines import Engine
from plait.engines.answering import Source, _refuse_deadly, answer_on_ray
from plait.engines.remote import MOST_LOSSES
from plait.engines.running import Runs
from plait.errors import DataError, RunError, UsageError
from plait.predict import Predictor
from plait.search import Search, run_search
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
    failed: dict[str, str] = {}
    train_at_once(Runs(runs, None, "again"), 2, RAY, hear=heard.append, failed=failed)
    assert sorted(heard) == ["done", "eight", "seven"]
    assert list(failed) == ["gone"]
    assert "/nowhere/at/all" in failed["gone"]
    assert (tmp_path / "runs" / "done" / "scores.json").stat().st_mtime_ns == written
    assert read_figures(tmp_path / "runs" / "seven") == read_figures(tmp_path / "here")


def test_a_search_has_the_trials_it_would_have_here(cluster, tiny_recipe, tmp_path):
    pytest.importorskip("optuna")
    recipe, space = tiny_recipe(), tmp_path / "space.toml"
    space.write_text('[search.space]\n"train.lr" = {low = 1e-4, high = 1e-2}\n')

    def search(out, engine):
        quick = ("train.tasks=['mood']",)
        wanted = Search(
            str(recipe), tmp_path / out, quick, space=space, num_trials=2, engine=engine, num_jobs=1
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
