"""What `plait reproduce` keeps of a run, and that `plait results` can read it."""

from __future__ import annotations

import json

import pytest

from plait.config import read_recipe
from plait.errors import RunError
from plait.inference.folders import RunFolder
from plait.reproduce import Order, find_rows, plan_work
from plait.reproduce.records import check_record, make_record, write_record
from plait.results import read_records


@pytest.mark.parametrize("profile", ["small", "published"])
def test_a_record_is_read_by_the_page_of_results(tiny_run, tmp_path, profile):
    record = make_record(tiny_run, recipe="a/baseline", profile=profile)
    write_record(tmp_path / profile / "a" / "baseline" / "seed-7.json", record)
    (read,) = read_records(tmp_path, profile)
    scores = json.loads((tiny_run / "scores.json").read_text(encoding="utf-8"))
    assert (read.recipe, read.seed, read.steps) == ("a/baseline", 7, scores["steps"])
    assert read.dev.summary == scores["dev"]["summary"]
    assert record["curves"][-1]["dev"].keys() == {"mood", "same", "near"}


def test_a_record_of_other_settings_is_refused(tiny_run, tmp_path):
    path = tmp_path / "seed-7.json"
    write_record(path, make_record(tiny_run, recipe="a/baseline", profile="small"))
    config = RunFolder(tiny_run).read_config()
    check_record(path, config)
    train = config.train.model_copy(update={"lr": 1e-6})
    with pytest.raises(RunError, match=r"made under other settings .*train\.lr"):
        check_record(path, config.model_copy(update={"train": train}))
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(RunError, match="is no record of this row"):
        check_record(path, config)


def test_seeds_count_up_from_the_recipes_own(tmp_path):
    order = Order(out=tmp_path / "records", runs=tmp_path / "runs", num_seeds=3)
    rows = find_rows(["a/annealed"])
    work = plan_work(rows, order, lambda _: pytest.fail("nothing trains alone"))
    first = read_recipe("a/annealed").seed
    assert [run.config.seed for run in work.runs.values()] == [first, first + 1, first + 2]
    (run, *_) = work.runs.values()
    assert run.record == tmp_path / "records" / "small" / "a" / "annealed" / f"seed-{first}.json"
