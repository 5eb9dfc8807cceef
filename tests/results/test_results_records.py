"""Files become records; what is wrong with one is said in a sentence that names it."""

from __future__ import annotations

import json

import pytest
from fake_records import dev_figures, make_record, write_record

from plait.errors import DataError, UsageError
from plait.results.records import read_best, read_records

FIGURES = {"sst": 0.5, "quora": 0.8, "sts": 0.6}


def test_records_are_found_by_row_and_seed(tmp_path):
    for seed in (3, 1, 2):
        write_record(tmp_path, make_record("d/lambda-1-dropout-0.3", FIGURES, seed))
    write_record(tmp_path, make_record("d/lambda-1-dropout-0.3", {"sst": 0.49}, alone="sst"))
    write_record(tmp_path, make_record("a/baseline", FIGURES))
    records = read_records(tmp_path, "small")
    assert len(records) == 5
    assert records.recipes == ["a/baseline", "d/lambda-1-dropout-0.3"]
    assert records.alone == {"d/lambda-1-dropout-0.3": ["sst"]}
    assert [r.seed for r in records.row("d/lambda-1-dropout-0.3")] == [1, 2, 3]
    assert records.figures("d/lambda-1-dropout-0.3", "sst", "sst") == {1: 0.49}
    assert records.figures("a/baseline", "overall") == {1: pytest.approx(0.7)}
    assert records.row("b/baseline") == []


def test_only_the_recipe_the_seed_and_the_figures_are_needed(tmp_path):
    whole = make_record("a/baseline", FIGURES)
    needed = {key: whole[key] for key in ("recipe", "profile", "seed", "dev")}
    write_record(tmp_path, needed)
    (record,) = read_records(tmp_path, "small")
    assert (record.seconds, record.alone, record.members) == (None, None, {})


def test_a_figure_that_does_not_exist_is_left_out(tmp_path):
    write_record(tmp_path, make_record("a/baseline", FIGURES | {"sts": None}))
    write_record(tmp_path, make_record("a/baseline", FIGURES, seed=2))
    records = read_records(tmp_path, "small")
    assert records.figures("a/baseline", "sts") == {2: 0.6}
    assert list(records.figures("a/baseline", "overall")) == [2]


def test_a_run_that_trains_none_of_the_tasks_told_did_not_fall_apart(tmp_path):
    base = dev_figures(FIGURES)
    for seed, trained in ((1, ["sst"]), (2, ["other"])):
        settings = {"stages": ["one"], "train": {"tasks": trained}}
        record = make_record("a/baseline", FIGURES, seed, baseline=base, settings=settings)
        write_record(tmp_path, record)
    assert [record.guesses for record in read_records(tmp_path, "small")] == [True, False]


def test_overrides_that_tell_rows_apart(tmp_path):
    same = ["train.eval_limit=100", "encoder.source=here"]
    write_record(tmp_path, make_record("a/baseline", FIGURES, overrides=same))
    other = ["train.eval_limit=100", "encoder.source=there", "train.epochs=2"]
    write_record(tmp_path, make_record("a/pcgrad", FIGURES, overrides=other))
    records = read_records(tmp_path, "small")
    places = {"encoder.source=here", "encoder.source=there"}
    assert records.places == places
    assert records.common_overrides == places | {"train.eval_limit=100"}


def test_rows_are_counted_where_no_file_is_added(tmp_path):
    for recipe, quora in (("c/baseline", 63483), ("c/sampled", 14150)):
        rows = {"train": {"sst": 8544, "quora": quora}, "dev": {"sst": 1101, "quora": 20212}}
        settings = {"tasks": {"sst": {"train": [{"path": "ids-sst-train.csv"}]}}}
        write_record(tmp_path, make_record(recipe, FIGURES, data=rows, settings=settings))
    files = [{"path": "ids-sst-train.csv"}, {"path": "reviews-5class.tsv"}]
    rows = {"train": {"sst": 22694, "quora": 14150}, "dev": {"sst": 1101, "quora": 20212}}
    more = {"data": rows, "settings": {"tasks": {"sst": {"train": files}}}}
    write_record(tmp_path, make_record("c/pcgrad-smart-extra-data", FIGURES, **more))
    records = read_records(tmp_path, "small")
    assert records.most_rows("train") == {"sst": 8544, "quora": 63483}
    assert records.most_rows("dev") == {"sst": 1101, "quora": 20212}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: is not JSON"),
        ('{"recipe":\n', "line 2: is not JSON"),
        ("[]", "is no record"),
        ("{}", "recipe: field required"),
        (json.dumps(make_record("a/baseline", FIGURES) | {"seed": "one"}), "seed: "),
        (json.dumps(make_record("a/baseline", FIGURES) | {"dev": {}}), "dev.tasks: "),
        (json.dumps(make_record("a/baseline", FIGURES, seed=2)), "says it is seed 2"),
        (json.dumps(make_record("a/pcgrad", FIGURES)), "small a/pcgrad"),
        (json.dumps(make_record("a/baseline", FIGURES) | {"profile": "x"}), "x a/baseline"),
        (json.dumps(make_record("a/baseline", {"sst": 0.5}, alone="sst")), "sst alone"),
        (
            json.dumps(
                make_record("a/baseline", FIGURES) | {"dev": dev_figures({}) | {"summary": {}}}
            ),
            "no dev figure sum",
        ),
        (
            json.dumps(
                make_record("a/baseline", FIGURES) | {"dev": dev_figures(FIGURES) | {"primary": {}}}
            ),
            "no dev figure primary.sst",
        ),
    ],
)
def test_a_broken_record_is_named(tmp_path, text, said):
    path = write_record(tmp_path, make_record("a/baseline", FIGURES))
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_records(tmp_path, "small")
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(tmp_path):
    path = write_record(tmp_path, make_record("a/baseline", FIGURES))
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(DataError, match="is not UTF-8"):
        read_records(tmp_path, "small")


def test_a_missing_folder_or_profile_is_named(tmp_path):
    with pytest.raises(UsageError, match="there is no folder"):
        read_records(tmp_path / "none", "small")
    assert len(read_records(tmp_path, "small")) == 0  # nothing was run yet
    write_record(tmp_path, make_record("a/baseline", FIGURES))
    with pytest.raises(UsageError, match="no records of profile 'smal'; did you mean 'small'"):
        read_records(tmp_path, "smal")


def test_the_best_models_and_the_log(tmp_path):
    assert read_best(tmp_path / "none") == ([], [])
    model = {"name": "soup", "about": "An average.", "dev": dev_figures(FIGURES)}
    (tmp_path / "soup.json").write_text(json.dumps(model), encoding="utf-8")
    (tmp_path / "log.json").write_text(json.dumps([{"what": "larger rate"}]), encoding="utf-8")
    models, log = read_best(tmp_path)
    assert [m.name for m in models] == ["soup"]
    assert [entry.what for entry in log] == ["larger rate"]
    (tmp_path / "log.json").write_text('[{"setting": "x"}]', encoding="utf-8")
    with pytest.raises(DataError, match=r"0\.what: field required"):
        read_best(tmp_path)
