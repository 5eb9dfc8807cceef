"""`plait check` as a user meets it."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.parquet
import pytest

from csv_rows import read_rows


@pytest.fixture
def recipe(tiny_recipe):
    """The tiny recipe, with a mail address in line 2 of mood's training file and a double."""
    path = tiny_recipe()
    file = path.parent / "mood-train.csv"
    header, *rows = file.read_text().splitlines()
    rows = [
        "x1,ask jane@example.org,good",
        "x2,the sea was calm .,good",
        "x3,The sea was calm!,bad",
        *rows,
    ]
    file.write_text("\n".join([header, *rows]))
    return path


def test_a_summary_and_findings(plait, recipe):
    done = plait("check", recipe)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split()[:4] == ["task", "split", "labels", "rows"]
    assert done.out.splitlines()[1].split()[:2] == ["mood", "train"]
    assert "mood-train.csv, line 3: label good" in done.out
    assert "mood-train.csv, line 2: mail address" in done.out
    assert "jane" not in done.out
    assert done.out.splitlines()[-1].startswith("nothing would stop training; ")
    assert "jane@example.org" in plait("check", recipe, "--show").out


def test_rows_of_parquet_are_called_rows(plait, recipe, tmp_path):
    texts = [f"The {i}th film of all" for i in range(12)]
    texts[7] = texts[3]
    moods = ["good", "bad", "so-so"] * 4
    table = pa.table({"text": texts, "label": [*moods[:7], moods[3], *moods[8:]]})
    pyarrow.parquet.write_table(table, recipe.parent / "mood.parquet")
    text = recipe.read_text(encoding="utf-8")
    for name in ("mood-train.csv", "mood-dev.csv"):
        text = text.replace(f'"{name}"', '"mood.parquet"')
    recipe.write_text(text, encoding="utf-8")
    out = plait("check", recipe).out
    assert "mood.parquet, row 8\n" in out
    assert re.search(r"mood\.parquet, row 1: as row 1 of \S+mood\.parquet", out)
    assert "mood.parquet, line" not in out


def test_a_huge_text_is_shown_in_part(plait, recipe):
    huge = "film " * 20_000
    with (recipe.parent / "mood-train.csv").open("a", encoding="utf-8") as file:
        file.write(f"\nx4,{huge},good\nx5,{huge},good\n")
    out = plait("check", recipe, "--show").out
    assert "film film" in out
    assert max(map(len, out.splitlines())) < 1200


def test_json_and_csv(plait, recipe, tmp_path):
    out = tmp_path / "new" / "rows.csv"
    done = plait("check", recipe, "--json", "--csv", out)
    told = json.loads(done.out)
    assert told["stops"] is False
    assert [s["rows"] for s in told["splits"]] == [48, 18, 32, 16, 24, 12]
    rows = read_rows(out)
    assert sum(len(f["places"]) or 1 for f in told["findings"]) == len(rows)
    assert {"check": "contradictions", "line": "4"}.items() <= (
        next(r for r in rows if r["check"] == "contradictions" and r["line"] == "4").items()
    )
    assert "jane" not in out.read_text()
    again = plait("check", recipe, "--csv", out)
    assert again.code == 2
    assert "exists already" in again.complaint()


def test_what_would_stop_training_exits_with_2(plait, recipe):
    file = recipe.parent / "mood-train.csv"
    file.write_text(file.read_text() + "\nx9,the end .,fnie\n")
    done = plait("check", recipe)
    assert done.code == 2
    assert "stop: mood train: 1 row cannot be used" in done.out
    assert "label 'fnie'" in done.out
    assert plait("check", recipe, "-o", "data.bad_rows=skip").code == 0


def test_wrong_labels_are_looked_for_on_request(plait, recipe):
    assert "untrained encoder" not in plait("check", recipe).out
    done = plait("check", recipe, "--mislabelled")
    assert done.code == 0, done.err
    assert "untrained encoder" in done.out


def test_another_data_folder_and_none(plait, recipe, tmp_path):
    done = plait("check", recipe, "--data", tmp_path / "nowhere")
    assert done.code == 2
    assert "there is no data folder" in done.complaint()
    empty = tmp_path / "empty"
    empty.mkdir()
    done = plait("check", recipe, "--data", empty)
    assert done.code == 2
    assert done.out.count("\nstop: ") == 6


def test_a_recipe_that_is_not_there(plait):
    assert "there is no recipe 'dmeo'; did you mean 'demo'" in plait("check", "dmeo").complaint()
