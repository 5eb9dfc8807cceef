"""published.toml and claims.toml fit the packaged recipes and themselves."""

from __future__ import annotations

import pytest

from plait import read_recipe
from plait.config import list_recipes, read_ensemble
from reproduction.published import read_claims, read_details, read_reports, read_rows

ROWS = read_rows()
ALIASES = {name: row.alias for name, row in ROWS.items() if row.alias}
TABLES = [table for report in read_reports() for table in report.tables]


def test_every_row_has_a_recipe_and_a_table():
    assert ROWS.keys() <= list_recipes().keys()
    shown = {row.recipe for table in TABLES for row in table.rows}
    assert shown == ROWS.keys()
    systems = [row.system for row in ROWS.values() if len(row.scores) > 1]
    assert {s: systems.count(s) for s in "ABCD"} == {"A": 19, "B": 13, "C": 9, "D": 18}
    assert len({(row.system, row.table, row.row) for row in ROWS.values()}) == len(ROWS)


@pytest.mark.parametrize(("name", "other"), ALIASES.items())
def test_an_alias_is_the_same_run(name, other):
    settings = [read_recipe(n).model_dump(exclude={"name", "about"}) for n in (name, other)]
    assert settings[0] == settings[1]


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.scores], ids=str)
def test_printed_summaries_fit_the_printed_scores(row):
    """Two summaries do not fit: the reports' own errors, which the notes name."""
    if row.recipe in ("a/annealed-mse", "b/pcgrad-cosine-para-200-batch-16"):
        assert "as printed" in row.note
        return
    computed = row.model_copy(
        update={"scores": {k: row.scores[k] for k in ("sst", "quora", "sts")}}
    )
    for name in row.scores.keys() & {"sum", "mean", "overall"}:
        assert row.scores[name] == pytest.approx(computed.score(name), abs=0.0021)


def test_the_ensemble_has_the_best_five_of_the_grid():
    grid = [row for name, row in ROWS.items() if name.startswith("d/lambda-") and row.scores]
    grid.sort(key=lambda row: (-row.scores["overall"], -row.scores["sst"]))
    members = read_ensemble("d/ensemble").members.values()
    assert {member.name for member in members} == {row.recipe for row in grid[:5]}


def test_claims_and_details_name_rows():
    claims = read_claims()
    assert len(claims) == 46
    assert {r for c in claims for r in (*c.better, *c.worse)} <= ROWS.keys() - ALIASES.keys()
    assert {detail.recipe for detail in read_details()} <= ROWS.keys()
    best = next(claim for claim in claims if claim.kind == "best")
    printed = [ROWS[name].score("overall") for name in (*best.better, *best.worse)]
    assert best.published == pytest.approx(printed[0] - max(printed[1:]))
