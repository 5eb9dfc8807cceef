"""The outline has every printed row once, and summaries are worked out as they should be."""

from __future__ import annotations

import pytest
from fake_records import KINDS, make_record

from plait.results.records import Record
from plait.results.tables import read_details, read_published, read_reports

TABLES = [table for report in read_reports() for table in report.tables]
ROWS = [row for table in TABLES for row in table.rows]


def test_every_published_recipe_is_a_row_once():
    first = [row.recipe for row in ROWS if not row.is_repeated]
    assert sorted(first) == sorted(read_published())
    assert len(first) == len(set(first)) == 66


def test_every_table_is_of_its_system():
    assert {row.published.system for row in ROWS} == {report.system for report in read_reports()}
    for table in TABLES:
        assert {row.published.system for row in table.rows} == {table.system}
        numbered = {row.published.table for row in table.rows if not row.is_repeated}
        assert len(numbered) == 1
        (number,) = numbered
        assert not number or f"table {number}:" in table.title


def test_an_alias_has_the_records_of_the_run_it_repeats():
    runs = {row.recipe: row.run for row in ROWS if row.run != row.recipe}
    assert runs == {
        "a/square-root-ce": "a/square-root",
        "a/annealed-ce": "a/annealed",
        "d/concat-smart-pretrain": "d/lambda-1-dropout-0.3",
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe)
def test_summaries_are_the_printed_ones_but_for_misprints(row):
    misprinted = {("a/annealed-mse", "mean"), ("b/pcgrad-cosine-para-200-batch-16", "sum")}
    for name in ("sum", "mean", "overall"):
        if (printed := row.printed(name)) is not None and (row.recipe, name) not in misprinted:
            assert row.figure(name) == pytest.approx(printed, abs=0.0021)


def test_a_misprint_does_not_reach_what_is_worked_out():
    row = next(row for row in ROWS if row.recipe == "a/annealed-mse")
    assert (row.printed("mean"), row.figure("mean")) == (0.522, pytest.approx(0.552))


def test_summaries_of_a_table():
    by_name = {table.name: table for table in TABLES}
    assert by_name["b"].summaries == ("sum", "mean", "overall")
    assert by_name["d-grid"].summaries == ("mean", "overall")
    assert by_name["minbert"].summaries == ()
    assert all(task in KINDS for table in TABLES for task in table.tasks)


# --- figures besides ---------------------------------------------------------------------


def record(**tasks: float) -> Record:
    return Record.model_validate(make_record("a/baseline", tasks))


@pytest.mark.parametrize(
    "detail", read_details(), ids=lambda detail: f"{detail.where} {detail.what}"
)
def test_a_detail_reads_as_many_figures_as_were_printed(detail):
    assert detail.recipe in read_published()
    found = detail.read(record(sst=0.5, quora=0.75, sts=0.6))
    assert found is not None
    assert len(found) == len(detail.published)
    if detail.mistaken:
        assert found == [12 + 21, 34 + 43]
    else:
        assert set(found) == {0.5 if detail.task == "sst" else 0.75}
    assert detail.read(record(sts=0.6)) is None
