"""The page of defaults is what the records say, and the harness draws and judges as it says."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from doc_blocks import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import defaults
from contenders import Row, Task

KEPT = sorted(defaults.RECORDS.glob("*.jsonl"))


@pytest.mark.skipif(not KEPT, reason="there are no records")
def test_the_page_is_fresh():
    made = defaults.page(defaults.read_records(KEPT))
    assert defaults.PAGE.read_text(encoding="utf-8") == made, (
        "docs/defaults.md is stale: run `python benchmarks/defaults.py page` and commit the result"
    )


ROWS = [Row((f"text {i}",), "abc"[i % 3]) for i in range(300)]
CLASSES = Task("topic", "classes")


def test_a_draw_follows_from_seed_and_task_and_larger_ones_contain_smaller_ones():
    few, more = (defaults.draw(ROWS, CLASSES, size, 1) for size in ("8c", "16c"))
    assert Counter(row.label for row in few) == {"a": 8, "b": 8, "c": 8}
    assert {*few} < {*more}
    assert few == defaults.draw(ROWS, CLASSES, "8c", 1)
    assert few != defaults.draw(ROWS, CLASSES, "8c", 2)
    assert few != defaults.draw(ROWS, Task("other", "classes"), "8c", 1)
    assert {*defaults.draw(ROWS, CLASSES, "100", 1)} < {*defaults.draw(ROWS, CLASSES, "200", 1)}
    assert defaults.draw(ROWS, CLASSES, "whole", 1) == ROWS


def test_a_draw_for_scores_and_for_several_labels():
    assert len(defaults.draw(ROWS, Task("grade", "score"), "8c", 1)) == 64
    several = [Row((f"text {i}",), "a;b" if i % 2 else "b;c" * (i % 3 > 0)) for i in range(300)]
    drawn = defaults.draw(several, Task("topics", "labels"), "8c", 1)
    counts = Counter(label for row in drawn for label in row.label.split(";") if label)
    assert min(counts.values()) >= 8
    assert len(drawn) <= 24


def test_the_metrics():
    rows = [Row(("x",), label) for label in ("a", "a", "a", "b")]
    assert defaults.score(CLASSES, ["a", "b"], rows, list("aaaa")) == 0.75
    macro = Task("spam", "binary", metric="macro_f1")
    assert defaults.score(macro, ["a", "b"], rows, list("aaaa")) == pytest.approx(3 / 7)
    several = Task("tags", "labels", metric="micro_f1")
    tagged = [Row(("x",), "a;b"), Row(("x",), "")]
    assert defaults.score(several, ["a", "b"], tagged, [{"a"}, {"b"}]) == 0.5
    grade = Task("grade", "score", metric="pearson")
    numbers = [Row(("x",), str(i)) for i in range(4)]
    assert defaults.score(grade, [], numbers, [2, 4, 6, 8]) == pytest.approx(1)
    assert defaults.score(grade, [], numbers, [1, 1, 1, 1]) == 0


def records(who, scores, **more):
    shared = {"encoder": "packaged", "task": "topic", "size": "8c", "dev_rows": 1000}
    plain = {"name": "defaults", "overrides": [], "metric": "accuracy", "seconds": 1.0}
    some = enumerate(scores)
    return [shared | plain | {"who": who, "seed": i, "score": s} | more for i, s in some]


def test_what_is_below_its_baseline_beyond_the_interval():
    base = dict(enumerate(records("frozen", [0.80, 0.82, 0.81])))
    clear = dict(enumerate(records("plait-fit", [0.70, 0.72, 0.71])))
    chance = dict(enumerate(records("plait-fit", [0.79, 0.81, 0.80])))
    assert defaults.shortfall(clear, base) == pytest.approx(0.1)
    assert defaults.shortfall(chance, base) == 0  # 1,000 dev rows have an error of .025
    assert defaults.shortfall(base, clear) == 0


def test_the_page_and_the_summary_of_some_records():
    some = [
        *records("frozen", [0.5, 0.6], name="C=1"),
        *records("tfidf", [0.7, 0.8], encoder=defaults.ANY),
        *records("plait-fit", [0.4, 0.5]),
        *records("plait-fit", [0.6, 0.6], overrides=["train.lr=1e-4"], rule="rate"),
    ]
    header, *rows = defaults.summary_rows(some, "packaged", "8c")
    found = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert found["plait-fit"]["mean"] == ".450"
    assert found["plait-fit"]["baseline"] == ".750"
    assert found["plait-fit"]["furthest"] == "topic -.300"
    page = defaults.page(some)
    assert "| rate | plait-fit train.lr=1e-4 | packaged | 8c | 1 | 2 | +.150 |" in page
    assert "| 8c | tfidf | 1.0 | .450, .750 (1) |" in page


def test_the_last_record_that_has_a_score_counts(tmp_path):
    import json

    one, two = records("frozen", [0.5]), records("frozen", [0.6])
    failed = [{**one[0], "error": "out of memory"}]
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in [*one, *two, *failed]))
    assert [record["score"] for record in defaults.read_records([path])] == [0.6]
