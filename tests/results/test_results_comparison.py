"""Recipes beside each other: what is told apart, and what is noise."""

from __future__ import annotations

import pytest
from fake_records import make_record

from plait.errors import UsageError
from plait.results.comparison import compare_recipes, write_comparison
from plait.results.records import Record, Records

BASE = {"sst": 0.50, "quora": 0.80, "sts": 0.70}
SHAKES = (0.0, 0.01, -0.01, 0.005)


def rows(recipe, moved=0.0, shakes=SHAKES, tasks=BASE, noise=(), **more):
    """Return a recipe's records, one a seed, shaken alike for all recipes but for some noise."""
    for seed, shake in enumerate(shakes):
        own = noise[seed] if noise else 0.0
        primary = {task: value + shake + moved + own for task, value in tasks.items()}
        yield Record.model_validate(make_record(recipe, primary, seed, **more))


def compared(*groups, order=None):
    records = Records([record for group in groups for record in group])
    names = dict.fromkeys(record.recipe for record in records)
    return compare_recipes(records, order or list(names))


def step(comparison, recipe, figure="overall"):
    (found,) = (s for s in comparison.steps if (s.recipe, s.figure) == (recipe, figure))
    return found


def test_what_is_better_worse_or_noise():
    made = compared(
        rows("plain"),
        rows("good", 0.05, noise=(0.001, -0.001, 0.002, 0.0)),
        rows("bad", -0.05, noise=(0.001, -0.001, 0.002, 0.0)),
        rows("shaken", 0.0, noise=(0.02, -0.03, 0.01, -0.01)),
        order=["plain", "good", "bad", "shaken"],
    )
    assert [step(made, name).verdict for name in ("good", "bad", "shaken")] == [
        "better",
        "worse",
        "within the noise",
    ]
    assert step(made, "good", "sst").found.value == pytest.approx(0.0505)
    assert step(made, "good").found.is_paired
    assert {s.recipe for s in made.steps} == {"good", "bad", "shaken"}  # the first is the measure


def test_a_step_that_many_tests_would_make_is_no_more_than_perhaps():
    noise = (0.01, 0.02, 0.01, 0.03)
    alone = compared(rows("plain"), rows("good", tasks={"sst": 0.5}, noise=noise))
    assert step(alone, "good", "sst").verdict == "better"
    others = [rows(f"other-{i}", noise=(0.03, -0.02, 0.01, -0.02)) for i in range(4)]
    many = compared(rows("plain"), rows("good", noise=noise), *others)
    assert step(many, "good", "sst").verdict.startswith("perhaps")


def test_two_seeds_take_the_spread_of_all():
    made = compared(rows("plain", shakes=(0.0, 0.01)), rows("other", 0.2, shakes=(0.0, 0.01)))
    assert not step(made, "other").found.is_paired
    assert step(made, "other").verdict == "better"


def test_one_seed_cannot_be_told():
    made = compared(rows("plain", shakes=(0.0,)), rows("other", 0.2, shakes=(0.0,)))
    assert "one seed" in step(made, "other").verdict
    assert "one seed" in write_comparison(made)


def test_recipes_of_other_tasks_are_compared_by_what_both_have():
    two = {"sst": 0.6, "quora": 0.8}
    made = compared(rows("plain"), rows("fewer", tasks=two))
    assert [s.figure for s in made.steps] == ["sst", "quora"]
    header, _, fewer = made.figure_table()
    assert fewer[header.index("sts")] == ""


def test_one_task_has_no_overall():
    made = compared(rows("plain", tasks={"sst": 0.5}), rows("other", tasks={"sst": 0.6}))
    assert made.figures == ["sst"]
    assert [s.figure for s in made.steps] == ["sst"]


def test_one_recipe_alone_shows_its_spread():
    page = write_comparison(compared(rows("plain")))
    assert "| `plain` | .501 ± .009 |" in page.replace("\u00a0", " ")
    assert "Against" not in page


def test_the_page_says_in_what_they_differ_and_who_fell():
    aggregator = {"settings": {"train": {"aggregator": {"name": "pcgrad"}}, "seed": 3}}
    summed = {"settings": {"train": {"aggregator": {"name": "sum"}}, "seed": 4}}
    curves = [{"step": 17000, "overall": 0.7}, {"step": 18616, "overall": 0.4}]
    page = write_comparison(
        compared(rows("plain", **summed), rows("surgery", **aggregator, curves=curves))
    )
    assert '| `train.aggregator.name` | "sum" | "pcgrad" |' in page
    assert "`seed`" not in page
    assert "surgery, seed 0: overall fell from .700 after 17,000 updates to .400" in page
    assert "plain, seed 0: " not in page


def test_a_recipe_that_was_not_run_is_left_out():
    made = compared(rows("plain"), rows("other"), order=["plain", "failed", "other"])
    assert made.recipes == ("plain", "other")
    none = compared(rows("plain"), order=["failed"])
    assert none.to_json() == {"recipes": {}, "against": None, "tests": []}


def test_records_of_recipes_that_nobody_named_have_no_part():
    old = make_record("old", {"sst": 0.9})
    old["dev"]["tasks"]["sst"]["num_examples"] = 7
    others = [Record.model_validate(old)]
    made = compared(rows("plain"), rows("other", 0.05), others, order=["plain", "other"])
    assert made.tasks == ["sst", "quora", "sts"]
    assert step(made, "other").verdict == "better"


def test_who_is_held_against_and_by_which_figures():
    groups = [list(rows("plain")), list(rows("other", 0.05)), list(rows("third"))]
    records = Records([record for group in groups for record in group])
    made = compare_recipes(records, ["plain", "other", "third"], ["sst"], against="other")
    assert made.recipes == ("other", "plain", "third")
    assert [(s.recipe, s.figure) for s in made.steps] == [("plain", "sst"), ("third", "sst")]
    told = made.to_json()
    assert told["against"] == "other"
    assert told["recipes"]["plain"]["sst"]["0"] == 0.5
    assert [test["here"] for test in told["tests"]] == ["worse", "worse"]
    with pytest.raises(UsageError, match="did you mean 'plain'"):
        compare_recipes(records, ["plain", "other"], against="plane")
    with pytest.raises(UsageError, match="did you mean 'quora'"):
        compare_recipes(records, ["plain", "other"], ["quor"])


def test_figures_of_other_dev_rows_are_not_compared():
    short = make_record("short", BASE)
    short["dev"]["tasks"]["sst"]["num_examples"] = 100
    with pytest.raises(UsageError, match="1,101 dev rows of sst and short on 100"):
        compared(rows("plain"), [Record.model_validate(short)])
