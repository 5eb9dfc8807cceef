"""Words that mean rows."""

from __future__ import annotations

import pytest

from plait.config import list_recipes
from plait.errors import UsageError
from plait.reproduce import find_rows


def names(*words: str) -> list[str]:
    return [row.recipe for row in find_rows(words)]


def test_all_published_rows_but_each_run_once():
    published = {n: t["published"] for n, t in list_recipes().items() if "published" in t}
    aliases = {name for name, table in published.items() if "alias" in table}
    rows = find_rows()
    assert len(aliases) == 3
    assert {row.recipe for row in rows} == published.keys() - aliases
    assert {alias for row in rows for alias in row.aliases} == aliases


def test_a_system_a_table_a_row():
    assert names("a/2") == ["a/annealed", "a/proportional", "a/square-root"]
    assert names("a/2/annealed") == names("A/annealed") == ["a/annealed"]
    assert set(names("a/2")) < set(names("a"))


def test_what_is_named_first_is_run_first():
    assert names("d/lambda-sst", "a/annealed") == ["d/lambda-sst", "a/annealed"]
    assert names("a/square-root", "a/2") == ["a/square-root", "a/annealed", "a/proportional"]


def test_what_all_four_have_goes_by_the_name_of_its_recipes():
    assert names("minbert") == names("all four")
    assert {name.partition("/")[0] for name in names("minbert")} == {"minbert"}
    with pytest.raises(UsageError, match="did you mean 'minbert'"):
        find_rows(["minbrt"])


def test_an_alias_means_the_run_that_it_repeats():
    assert names("a/annealed-ce") == ["a/annealed"]
    assert names("a/annealed-ce", "a/annealed") == ["a/annealed"]
    assert "a/annealed" in names("a/3")
    assert "a/annealed-ce" in find_rows(["a/annealed"])[0].aliases


@pytest.mark.parametrize("word", ["e", "a/9", "a/anealed", "course", "demo", ""])
def test_a_word_that_means_no_row(word):
    with pytest.raises(UsageError, match=r"no published row is called"):
        find_rows([word])
