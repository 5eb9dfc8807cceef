"""`plait reproduce`: rows in; records out, each made once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

SHORT = ["train.max_steps=2", "train.batch_size=4", "encoder.max_length=32", "device=cpu"]


@pytest.fixture
def reproduce(plait, course, tiny_encoder, tmp_path, monkeypatch):
    """Run rows for two updates on small files, with records in `records`."""
    monkeypatch.chdir(tmp_path)
    words = [f"encoder.source={tiny_encoder}", "encoder.pooling=mean", *SHORT]
    given = [word for setting in words for word in ("-o", setting)]
    place = ["--data", course, "--out", "records", "--runs", "runs"]
    return partial(plait, "reproduce", *place, *given)


def read(tmp_path, name):
    return json.loads((tmp_path / "records" / f"{name}.json").read_text())


def stamps(tmp_path):
    return {path: path.stat().st_mtime_ns for path in (tmp_path / "records").rglob("*.json")}


def test_rows_become_records_once(reproduce, tmp_path):
    done = reproduce("a/3", "b/pcgrad-200", "--seeds", "2")
    assert done.code == 0, done.err
    assert "a/annealed-ce is the same run as a/annealed" in done.out
    made = {str(p.relative_to(tmp_path / "records")) for p in stamps(tmp_path)}
    rows = ("a/annealed", "a/annealed-mse", "a/square-root", "a/square-root-mse", "b/pcgrad-200")
    assert made == {f"small/{row}/seed-{seed}.json" for row in rows for seed in (11711, 11712)}
    assert not list((tmp_path / "runs").rglob("*.safetensors"))  # only records are kept

    before = stamps(tmp_path)
    again = reproduce("a", "b/pcgrad-200", "--seeds", "2", "--list")
    assert "\n10 done, " in f"\n{again.out}"
    again = reproduce("a/3", "b/pcgrad-200", "--seeds", "2")
    assert again.code == 0, again.err
    assert "10 records are there already" in again.out
    assert stamps(tmp_path) == before


def test_what_a_record_holds(reproduce, tmp_path):
    assert reproduce("b/sst-first-200", "-o", "train.train_limit=4").code == 0
    record = read(tmp_path, "small/b/sst-first-200/seed-11711")
    assert record["recipe"] == "b/sst-first-200"
    assert (record["profile"], record["alone"], record["seed"]) == ("small", None, 11711)
    assert record["settings"]["train"]["max_steps"] == 2
    assert record["settings"]["train"]["schedule"]["name"] == "by-epoch"
    assert record["steps"] == 2
    assert record["hardware"].startswith("cpu")
    assert record["data"]["train"] == {"sst": 24, "quora": 24, "sts": 24}
    assert record["versions"].keys() == {"plait", "python", "torch"}
    assert record["dev"]["primary"].keys() == {"sst", "quora", "sts"}
    (last,) = record["curves"]
    assert (last["step"], last["epoch"]) == (2, 1)
    assert last["dev"] == record["dev"]["primary"]
    assert last["overall"] == record["dev"]["summary"]["overall"]
    assert last["train"].keys() == last["dev"].keys()
    assert last["loss"]["sst"] > 0


def test_the_same_row_gives_the_same_figures(reproduce, tmp_path):
    assert reproduce("a/annealed").code == 0
    first = read(tmp_path, "small/a/annealed/seed-11711")
    (tmp_path / "records/small/a/annealed/seed-11711.json").unlink()
    assert reproduce("a/annealed", "--jobs", "2", "--keep").code == 0
    second = read(tmp_path, "small/a/annealed/seed-11711")
    assert (second["dev"], second["curves"]) == (first["dev"], first["curves"])
    assert (tmp_path / "runs/small/a/annealed/seed-11711/model.safetensors").is_file()


def test_a_record_of_other_settings_is_not_taken(reproduce, tmp_path):
    assert reproduce("a/annealed").code == 0
    done = reproduce("a/annealed", "-o", "train.lr=1e-3")
    assert done.code == 2
    assert "seed-11711.json was made under other settings (train.lr)" in done.complaint()
    path = tmp_path / "records/small/a/annealed/seed-11711.json"
    path.write_text("{")
    assert "is no record of this row; remove it" in reproduce("a/annealed").complaint()


def test_each_task_alone(reproduce, tmp_path):
    assert reproduce("d/concat-sequential", "--each-alone").code == 0
    for task in ("sst", "quora", "sts"):
        record = read(tmp_path, f"small/d/concat-sequential/alone/{task}/seed-11711")
        assert (record["alone"], list(record["dev"]["primary"])) == (task, [task])


def test_an_ensemble_of_rows(reproduce, tmp_path):
    short = ["-o", "stage.pretrain.max_steps=1"]
    assert reproduce("d/lambda-5-dropout-0.1", *short).code == 0
    before = stamps(tmp_path)
    done = reproduce("d/ensemble", *short)
    assert done.code == 0, done.err
    record = read(tmp_path, "small/d/ensemble/seed-11711")
    assert len(record["members"]) == 5
    assert record["settings"].keys() == record["members"].keys()
    assert record["dev"]["primary"].keys() == {"sst", "quora", "sts"}
    after = stamps(tmp_path)
    assert len(after) == 6  # a record for every member, too
    assert all(after[path] == stamp for path, stamp in before.items())
    assert not list((tmp_path / "runs").rglob("*.safetensors"))
    assert "nothing is left to train" in reproduce("d/ensemble", *short).out
    other = reproduce("d/ensemble", *short, "-o", "ensemble.how=mean")
    assert "was made under other settings (ensemble.how)" in other.complaint()


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_that_fails_does_not_end_the_others(reproduce, tmp_path, jobs):
    words = ["--jobs", jobs]
    done = reproduce("b/pcgrad-cosine-sts-200", "c/pcgrad-smart-extra-data", *words)
    assert done.code == 2
    assert "1 could not be run: c/pcgrad-smart-extra-data" in done.err
    assert "reviews-5class.tsv" in done.err
    assert len(stamps(tmp_path)) == 1


def test_the_next_command_makes_a_page_of_these_records(reproduce, plait, tmp_path):
    done = reproduce("a/annealed")
    page = "plait results --records records --profile small --out records-small.md"
    assert f"Make a page of them with: {page} --pictures records-small-pictures" in done.out
    assert plait(*page.split()[1:], "--no-pictures").code == 0
    assert (tmp_path / "records-small.md").is_file()


def test_no_records_are_spoken_of_where_none_is_made(reproduce, tmp_path):
    done = reproduce("a/annealed", "--data", tmp_path / "nowhere")
    assert done.code == 2
    assert "a/annealed, seed 11711 failed: there is no data folder" in done.err
    assert "The records are in" not in done.out


def test_an_unknown_row(reproduce):
    assert "did you mean 'a/annealed'" in reproduce("a/anealed").complaint()


@pytest.mark.slow
def test_a_stop_and_the_same_command_again(course, tiny_encoder, tmp_path):
    settings = [f"encoder.source={tiny_encoder}", "encoder.max_length=32", "device=cpu"]
    words = [sys.executable, "-m", "plait", "reproduce", "a/1", "--jobs", "2", "--data", course]
    words += [word for setting in [*settings, "train.epochs=60"] for word in ("-o", setting)]
    process = subprocess.Popen(
        list(map(str, words)), cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    while not list((tmp_path / "runs").rglob("checkpoint.safetensors")):
        assert process.poll() is None
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"stopped; go on with: plait reproduce a/1" in said
    done = subprocess.run(
        list(map(str, words)), cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "results").rglob("seed-*.json"))) == 4
