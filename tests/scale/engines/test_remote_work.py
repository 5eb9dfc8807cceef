"""Runs, trials and answers on Ray are those of this machine alone."""

from __future__ import annotations

import json
import shutil

import pytest

from plait.cli import main
from plait.cli.runs import train_runs
from plait.config import read_recipe
from plait.inference.answers.folder import answer_folder
from plait.inference.answers.parts import find_files, make_plan
from plait.inference.predictor import Predictor
from plait.scale import Engine, Jobs
from plait.scale.answering import Source, answer_on_ray
from plait.scale.running import Runs
from plait.scale.search import Search, run_search
from plait.training.run import train

# Ray warns of its own settings when it copies them.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")

RAY = Engine("ray")


def read_figures(run):
    return json.loads((run / "scores.json").read_text())["dev"]["primary"]


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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
