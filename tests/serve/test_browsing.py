"""What the server shows of runs: scores, curves, reports, mistakes, and nothing beside them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import time

import pytest

from plait.analysis.report import MARK
from plait.inference.ensemble import make_ensemble
from plait.serve.catalog import Catalog
from plait.serve.errands import MOST_WAITING, Busy, Errands
from plait.serve.logs import Log
from plait.serve.making import hide_folders
from plait.serve.records import MOST_POINTS, find_report, read_curves, read_record


@pytest.fixture
def run(tiny_run, tmp_path):
    """A copy of the tiny run that a test may change."""
    return shutil.copytree(tiny_run, tmp_path / "runs" / "tiny")


def wait(client, path):
    async def ask():
        for _ in range(600):
            done = await client.get(path)
            if done.status_code != 202:
                return done
            assert done.json()["status"] == "making"
            assert done.headers["retry-after"]
            await asyncio.sleep(0.1)
        raise AssertionError("it took a minute")

    return ask()


# --- records -----------------------------------------------------------------------------


def test_a_record(asking, run):
    told = asking("GET", "/v1/runs/tiny", given={"folders": {"tiny": run}}).json()
    scores = json.loads((run / "scores.json").read_text("utf-8"))
    assert told["kind"] == "run"
    assert told["is_served"]
    assert told["is_finished"]
    assert told["recipe"] == "tiny"
    assert told["steps"] == scores["steps"]
    assert [score["metric"] for score in told["scores"]] == ["accuracy", "accuracy", "pearson"]
    assert {s["task"]: s["value"] for s in told["scores"]} == scores["dev"]["primary"]
    assert "/" not in told["encoder"]  # where it lies is nobody's business


def test_a_recipe_that_chooses_another_figure(run):
    recipe = (run / "recipe.toml").read_text("utf-8")
    recipe = recipe.replace("[tasks.mood]", '[tasks.mood]\nmetric = "macro_f1"')
    (run / "recipe.toml").write_text(recipe, "utf-8")
    assert read_record(run)["scores"][0]["metric"] == "macro_f1"


def test_a_record_of_little(tmp_path):
    for name, text in (("run.json", "{"), ("scores.json", "[1]"), ("recipe.toml", "name = 3")):
        (tmp_path / name).write_text(text)
    told = read_record(tmp_path)
    assert (told["kind"], told["is_finished"], told["scores"]) == ("run", False, [])


def test_an_ensemble_and_an_export(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "runs" / "other")
    make_ensemble([run, other], tmp_path / "runs" / "both")
    told = read_record(tmp_path / "runs" / "both")
    assert (told["kind"], told["members"]) == ("ensemble", ["tiny", "other"])
    (other / "export.json").write_text("{}")
    assert read_record(other)["kind"] == "export"


def test_curves(asking, run):
    found = asking("GET", "/v1/runs/tiny/curves", given={"folders": {"tiny": run}}).json()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    logged = [line for line in lines if line["event"] == "losses" and "mood" in line["losses"]]
    losses = [[one["step"], one["losses"]["mood"]] for one in logged]
    scored = [line for line in lines if line["event"] == "scores"]
    accuracy = [[one["step"], one["metrics"]["mood"]["accuracy"]] for one in scored]
    assert found["losses"]["mood"] == losses
    assert found["scores"]["mood"]["accuracy"] == accuracy


def test_long_curves_are_thinned_and_damaged_ones_told(asking, run, code):
    log = run / "metrics.jsonl"
    line = '{"event": "losses", "step": %d, "losses": {"mood": 0.5}}\n'
    log.write_text("".join(line % step for step in range(5000)))
    points = read_curves(run)["losses"]["mood"]
    assert len(points) <= MOST_POINTS
    assert points[-1] == [4999, 0.5]
    log.write_text("nonsense\n" + line % 1)
    done = asking("GET", "/v1/runs/tiny/curves", given={"folders": {"tiny": run}})
    assert code(done, 422) == "damaged"
    assert str(run.parent) not in done.text
    log.unlink()
    assert read_curves(run) == {"losses": {}, "scores": {}}


def test_links_are_not_followed(run, tmp_path):
    for name in ("recipe.toml", "run.json", "scores.json", "metrics.jsonl"):
        (run / name).rename(tmp_path / name)
        (run / name).symlink_to(tmp_path / name)
    (tmp_path / "ensemble.toml").write_text('members = ["secret"]')
    (run / "ensemble.toml").symlink_to(tmp_path / "ensemble.toml")
    (tmp_path / "page.html").write_text(MARK)
    (run / "report.html").symlink_to(tmp_path / "page.html")
    told = read_record(run)
    assert (told["recipe"], told["scores"], told["device"]) == ("", [], None)
    assert (told["kind"], told["members"]) == ("ensemble", [])
    assert read_curves(run)["losses"] == {}
    assert find_report(run) is None


NAMES = ["..", "%2e%2e", "tiny%2f..", "..%2ftiny", "etc", "TINY", "tiny%00", "a" * 300]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rest", ["", "/curves", "/report", "/mistakes"])
def test_a_name_is_no_path(asking, run, name, rest):
    given = {"folders": {"tiny": run}, "errands": Errands(device="cpu")}
    done = asking("GET", f"/v1/runs/{name}{rest}", given=given)
    assert done.status_code == 404
    assert done.json()["error"]["code"] in ("unknown_run", "not_found")


def test_runs_that_cannot_answer_are_shown_without_their_place(asking, models, run):
    left_out = {"half": f"{run.parent}/half has no model yet: its training has not got that far"}
    given = {"catalog": Catalog(models.catalog.runs, left_out), "folders": {"half": run}}
    (told,) = asking("GET", "/v1/runs", given=given).json()["left_out"]
    assert told["reason"] == "half has no model yet: its training has not got that far"
    assert not asking("GET", "/v1/runs/half", given=given).json()["is_served"]


def test_paths_lose_their_folders():
    said = "/a b/c.csv, line 3: no label; see '/x/y/z.toml' and https://e.org, 1/2"
    assert hide_folders("/home/me/data/dev.csv, line 3: no") == "dev.csv, line 3: no"
    assert hide_folders("there is no 'C:\\data\\x.csv'") == "there is no 'x.csv'"
    assert hide_folders("there is no run at runs/mine/best; see") == "there is no run at best; see"
    assert "/x/" not in hide_folders(said)
    assert hide_folders(said).endswith("1/2")


# --- reports and mistakes ----------------------------------------------------------------


def test_a_report_and_mistakes_are_made_and_kept(serving, run):
    async def go():
        async with serving(folders={"tiny": run}, errands=Errands(device="cpu")) as client:
            mistakes = await wait(client, "/v1/runs/tiny/mistakes")
            report = await wait(client, "/v1/runs/tiny/report")
            again = await client.get("/v1/runs/tiny/report")
            return mistakes, report, again

    mistakes, report, again = asyncio.run(go())
    assert report.status_code == 200
    assert report.headers["content-security-policy"].startswith("sandbox;")
    assert MARK in report.text[:100]
    assert again.content == report.content
    assert not (run / "report.html").exists()  # a server writes no pages into runs
    tasks = {found["task"]: found for found in mistakes.json()["tasks"]}
    assert list(tasks) == ["mood", "same", "near"]
    scores = json.loads((run / "scores.json").read_text("utf-8"))["dev"]["tasks"]
    wrong = round((1 - scores["mood"]["metrics"]["accuracy"]) * tasks["mood"]["rows"])
    assert tasks["mood"]["mistakes"] == wrong == len(tasks["mood"]["worst"])
    sure = [row["confidence"] for row in tasks["mood"]["worst"]]
    assert sure == sorted(sure, reverse=True)
    assert all(row["answer"] != row["truth"] for row in tasks["mood"]["worst"])
    assert tasks["near"]["mistakes"] is None
    assert all(row["where"].startswith("near-dev.csv line ") for row in tasks["near"]["worst"])


def test_a_report_that_is_there_is_shown_until_the_model_changes(asking, run):
    given = {"folders": {"tiny": run}, "errands": Errands(device="cpu")}
    page = run / "report.html"
    page.write_text(f"<!DOCTYPE html>\n{MARK}\nmine")
    assert asking("GET", "/v1/runs/tiny/report", given=given).text.endswith("mine")
    then = time.time() + 60
    os.utime(run / "model.safetensors", (then, then))
    assert find_report(run) is None
    os.utime(page, (then, then))
    assert find_report(run) == page
    page.write_text("a page of somebody else's")
    assert find_report(run) is None


def test_where_data_is_missing_it_is_said_and_asking_again_tries_again(serving, run, code):
    recipe = (run / "recipe.toml").read_text("utf-8")
    broken = recipe.replace("mood-dev.csv", "gone.csv")
    (run / "recipe.toml").write_text(broken, "utf-8")

    async def go():
        async with serving(folders={"tiny": run}, errands=Errands(device="cpu")) as client:
            missing = await wait(client, "/v1/runs/tiny/mistakes")
            (run / "recipe.toml").write_text(recipe, "utf-8")
            return missing, await wait(client, "/v1/runs/tiny/mistakes")

    missing, found = asyncio.run(go())
    assert code(missing, 422) == "not_made"
    message = missing.json()["error"]["message"]
    assert "gone.csv" in message
    assert str(run.parent) not in message
    assert found.status_code == 200


def test_servers_that_show_no_data(asking, run, code):
    for what in ("report", "mistakes"):
        done = asking("GET", f"/v1/runs/tiny/{what}", given={"folders": {"tiny": run}})
        assert code(done, 422) == "not_shown"
    assert not asking("GET", "/v1/runs").json()["shows_data"]


def test_few_things_wait_to_be_made(tmp_path):
    errands = Errands(device="cpu")
    folders = [tmp_path / str(i) for i in range(MOST_WAITING + 1)]
    for folder in folders[:-1]:
        errands.ask("mistakes", folder)
    assert errands.ask("mistakes", folders[0]) is errands.ask("mistakes", folders[0])
    with pytest.raises(Busy):
        errands.ask("mistakes", folders[-1])
    began = time.monotonic()
    errands.close()  # gives up what is under way
    assert time.monotonic() - began < 5


def test_what_nobody_foresaw_is_in_the_log_with_its_place(tmp_path):
    lines = io.StringIO()
    errands = Errands(device="cpu", log=Log(lines))
    errand = errands.ask("a thing nobody makes", tmp_path)
    until = time.monotonic() + 60
    while not lines.getvalue() and time.monotonic() < until:
        time.sleep(0.05)
    errands.close()
    assert errand.error == "it failed (KeyError)"
    told = json.loads(lines.getvalue())
    assert (told["event"], told["error"]) == ("not_made", "KeyError")
    assert "errands.py:" in told["where"]
