"""Findings are judged by the records: every verdict can come out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from fake_records import make_record, write_all

from plait.results.findings import (
    Finding,
    compare,
    count_verdicts,
    judge_all,
    read_findings,
    sampling_variance,
)
from plait.results.records import Record, Records, read_records
from plait.results.tables import read_published


def records(rows: Mapping[str, list[float]], task: str = "sst") -> Records:
    """Make records of single figures, seeds from 1."""
    return Records(
        Record.model_validate(make_record(recipe, {task: value}, seed))
        for recipe, values in rows.items()
        for seed, value in enumerate(values, 1)
    )


def finding(claim: str = "gain") -> Finding:
    return Finding.model_validate(
        {
            "system": "A",
            "where": "here",
            "says": "x",
            "better": ["a/pcgrad"],
            "worse": ["a/baseline"],
            "figure": "sst",
            "claim": claim,
        }
    )


def verdict(rows: Mapping[str, list[float]], claim: str = "gain") -> str:
    (judged,) = judge_all([finding(claim)], records(rows))
    return judged.verdict


# --- what is claimed ---------------------------------------------------------------------


def test_there_are_findings_of_every_report():
    assert len(read_findings()) > 40
    assert {f.system for f in read_findings()} == {"A", "B", "C", "D", "all four"}


@pytest.mark.parametrize("claimed", read_findings(), ids=lambda f: f"{f.system} {f.says}")
def test_what_is_claimed_is_what_was_printed(claimed):
    """Also that its rows exist, and none is an alias, which has no records."""
    published = read_published()
    rows = (*claimed.better, *claimed.worse)
    assert all(published[recipe].alias is None for recipe in rows)
    assert len(set(rows)) == len(rows)
    if all(published[recipe].figures for recipe in rows):
        assert claimed.published is not None
        assert claimed.published > 0 if claimed.claim != "no gain" else claimed.published < 0.005
    else:
        assert claimed.published is None


def test_no_finding_is_there_twice():
    keys = [(f.better, f.worse, f.figure) for f in read_findings()]
    assert len(keys) == len(set(keys))


def test_a_published_difference_is_one_of_means():
    squared = next(f for f in read_findings() if "squared error" in f.says)
    assert squared.published == pytest.approx((0.582 + 0.581) / 2 - (0.437 + 0.412) / 2)


# --- verdicts ----------------------------------------------------------------------------

BASE = [0.500, 0.505, 0.502]


def test_every_verdict():
    higher = [value + 0.02 + noise for value, noise in zip(BASE, (0, 0.001, -0.001), strict=True)]
    shaken = [0.53, 0.49, 0.51]
    assert verdict({"a/pcgrad": higher, "a/baseline": BASE}) == "holds"
    assert verdict({"a/pcgrad": BASE, "a/baseline": higher}) == "does not"
    assert verdict({"a/pcgrad": shaken, "a/baseline": BASE}) == "within the noise"
    assert verdict({"a/pcgrad": higher}) == "not tested"


def test_every_verdict_on_nothing_gained():
    quiet, slightly = [0.5, 0.5005, 0.5002], [0.5001, 0.5004, 0.5002]
    higher = [value + 0.02 + d for value, d in zip(BASE, (0, 0.001, -0.001), strict=True)]
    shaken = [0.53, 0.49, 0.51]
    assert verdict({"a/pcgrad": slightly, "a/baseline": quiet}, "no gain") == "holds"
    assert verdict({"a/pcgrad": higher, "a/baseline": BASE}, "no gain") == "does not"
    assert verdict({"a/pcgrad": shaken, "a/baseline": BASE}, "no gain") == "within the noise"


BEST = Finding(
    system="A",
    where="here",
    says="x",
    better=("a/pcgrad",),
    worse=("a/baseline", "a/annealed", "a/proportional"),
    figure="sst",
    claim="best",
)


@pytest.mark.parametrize(
    ("other", "verdict", "difference"),
    [
        (-0.03, "holds", 0.02),  # beside which the second, at -.02, is the nearest
        (0.001, "within the noise", -0.001),  # though the mean of the three is far below
        (0.02, "does not", -0.02),
    ],
)
def test_what_is_best_beats_each_of_the_others(other, verdict, difference):
    shaken = (0, 0.0004, -0.0004)
    steps = {"a/baseline": -0.2, "a/annealed": -0.02, "a/proportional": other}
    rows = {
        recipe: [value + step + noise for value, noise in zip(BASE, shaken, strict=True)]
        for recipe, step in steps.items()
    }
    (judged,) = judge_all([BEST], records({"a/pcgrad": BASE, **rows}))
    assert judged.verdict == verdict
    assert judged.difference is not None
    assert judged.difference.value == pytest.approx(difference)


def test_that_one_of_many_is_ahead_of_the_best_counts_for_less():
    """By hand: the pair's own p-value is .041, and one of three others came out so."""
    ahead = [value + 0.005 for value in BASE]
    low = [value - 0.2 for value in BASE]
    rows = {"a/pcgrad": BASE, "a/annealed": ahead, "a/baseline": low, "a/proportional": low}
    (judged,) = judge_all([BEST], records(rows))
    assert judged.difference is not None
    alone = judged.difference.p_value()
    assert alone == pytest.approx(0.041, abs=0.001)
    assert judged.p_value == pytest.approx(3 * alone)
    assert judged.verdict == "within the noise"


def test_what_is_best_in_print_is_so_by_the_nearest_of_the_others():
    dropout = next(f for f in read_findings() if f.claim == "best" and "Dropout" in f.says)
    overall = [(0.546 + 0.900 + 1.888 / 2) / 3, (0.536 + 0.905 + 1.884 / 2) / 3]
    assert dropout.published == pytest.approx(overall[0] - overall[1])


def test_a_large_difference_of_single_seeds_is_told_by_the_spread_of_other_rows():
    others = {"b/baseline": [0.400, 0.404, 0.402], "c/baseline": [0.450, 0.455]}
    rows = {"a/pcgrad": [0.65], "a/baseline": [0.50], **others}
    assert verdict(rows) == "holds"
    (judged,) = judge_all([finding()], records(rows))
    assert judged.difference is not None
    assert (judged.difference.num_seeds, judged.difference.is_paired) == (1, False)
    # Seeds of others are .002 and .0035 apart, known by three degrees of freedom.
    assert verdict(rows | {"a/pcgrad": [0.505]}) == "within the noise"


def test_rows_of_one_task_say_nothing_of_the_spread_of_a_summary():
    """By hand: two rows whose overall is .7 +- .01, beside one of sentiment alone."""
    both = [{"sst": 0.69, "quora": 0.69}, {"sst": 0.71, "quora": 0.71}]
    rows = {"a/pcgrad": both, "a/baseline": both, "minbert/sst-full-model": [{"sst": 0.3}]}
    rows["minbert/sst-full-model"].append({"sst": 0.7})
    kept = Records(
        Record.model_validate(make_record(recipe, primary, seed))
        for recipe, seeds in rows.items()
        for seed, primary in enumerate(seeds, 1)
    )
    assert kept.rows_that_vary("sst")[-1] == "minbert/sst-full-model"
    assert kept.rows_that_vary("overall") == ["a/baseline", "a/pcgrad"]
    found = compare([("a/pcgrad", None)], [("a/baseline", None)], "overall", kept)
    assert not isinstance(found, str)
    # Two sides; the variance of two figures; over two seeds.
    assert found.error**2 == pytest.approx(2 * 0.02**2 / 2 / 2)


def test_single_seeds_alone_tell_nothing():
    (judged,) = judge_all([finding()], records({"a/pcgrad": [0.9], "a/baseline": [0.1]}))
    assert (judged.verdict, judged.p_value) == ("not tested", None)
    assert "one seed" in judged.reason


def test_missing_rows_are_named():
    (judged,) = judge_all([finding()], records({"a/pcgrad": BASE}))
    assert judged.reason == "not run yet: `a/baseline`"
    assert judge_all([finding()], records({}))[0].reason == "not run yet"


def test_a_figure_that_no_seed_has():
    kept = Records(
        Record.model_validate(make_record(recipe, {"sst": value}))
        for recipe, value in (("a/pcgrad", 0.5), ("a/baseline", None))
    )
    assert judge_all([finding()], kept)[0].reason == "no `sst` of `a/baseline`"


def test_groups_are_compared_seed_by_seed():
    """Rows far apart do not matter where seeds agree."""
    rows = {
        "a/pcgrad": [0.91, 0.92, 0.90],
        "a/annealed": [0.12, 0.13, 0.11],
        "a/baseline": [0.50, 0.511, 0.489],
    }
    keys = [(recipe, None) for recipe in rows]
    found = compare(keys[:2], keys[2:], "sst", records(rows), paired=True)
    assert not isinstance(found, str)
    assert found.is_paired
    assert found.value == pytest.approx(0.515 - 0.5)
    assert found.error == pytest.approx(0.001 / 3**0.5)


def test_only_seeds_that_are_shared_are_paired():
    rows = {"a/pcgrad": [0.52, 0.53, 0.51, 0.9], "a/baseline": BASE}
    sides = [("a/pcgrad", None)], [("a/baseline", None)]
    found = compare(*sides, "sst", records(rows), paired=True)
    assert not isinstance(found, str)
    assert (found.num_seeds, found.value) == (3, pytest.approx(0.52 - sum(BASE) / 3))
    apart = compare(*sides, "sst", records(rows))
    assert not isinstance(apart, str)
    assert (apart.num_seeds, apart.value) == (3, pytest.approx(0.615 - sum(BASE) / 3))


def test_rows_that_fell_apart_tell_nothing_of_the_spread():
    fallen = make_record("d/baseline-sequential", {"sst": 0.26})
    fallen["baseline"] = {"primary": {"sst": 0.26}}
    kept = Records(map(Record.model_validate, [fallen, make_record("a/baseline", {"sst": 0.5})]))
    assert kept.rows_that_vary("sst") == ["a/baseline"]


def test_the_dev_error_of_a_summary_is_put_together():
    """By hand, from accuracies of .5 and .8 and a correlation of .6."""
    record = Record.model_validate(
        make_record("a/baseline", {"sst": 0.5, "quora": 0.8, "sts": 0.6})
    )
    sst, quora, sts = 0.25 / 1101, 0.16 / 20212, 0.64**2 / 860
    assert sampling_variance(record, "sum") == pytest.approx(sst + quora + sts)
    assert sampling_variance(record, "mean") == pytest.approx((sst + quora + sts) / 9)
    assert sampling_variance(record, "overall") == pytest.approx((sst + quora + sts / 4) / 9)


def test_records_like_the_reports_find_what_they_found(tmp_path):
    write_all(tmp_path)
    judged = judge_all(read_findings(), read_records(tmp_path, "small"))
    counts = count_verdicts(judged)
    assert sum(counts.values()) == len(read_findings())
    assert counts["holds"] > 25
    assert counts["not tested"] == 1  # c/smart has no record
    for judgement in judged:
        if judgement.p_value is not None:
            assert judgement.corrected is not None
            assert judgement.corrected >= judgement.p_value


# --- heads that nobody trained -----------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sst", "quora", "overall"),
    [
        ({}, True, True, True),
        ({"stages": ["finetune"], "train": {}}, True, True, True),
        ({"stages": ["finetune"], "train": {"tasks": ["sst"]}}, True, False, False),
        ({"stages": ["finetune"], "train": {"tasks": ["sst", "quora"]}}, True, True, True),
        (
            {"stages": ["one", "two"], "stage": {"one": {"tasks": ["quora"]}}},
            *(True, True, True),  # the other takes all
        ),
        (
            {
                "stages": ["one", "two"],
                "train": {"tasks": ["quora"]},
                "stage": {"two": {"tasks": ["quora"]}},
            },
            *(False, True, False),
        ),
    ],
)
def test_what_a_run_trains(settings, sst, quora, overall):
    record = make_record("a/pcgrad", {"sst": 0.5, "quora": 0.8}, settings=settings)
    trains = Record.model_validate(record).trains
    assert [trains("sst"), trains("quora"), trains("overall")] == [sst, quora, overall]


def test_heads_that_nobody_trained_do_not_widen_other_rows():
    """But they do where a row of such heads is compared."""

    def pool(untrained: bool) -> Records:
        only = {"stages": ["finetune"], "train": {"tasks": ["sst"]}} if untrained else {}
        wild = [make_record("b/baseline", {"quora": q}, s, settings=only) for q, s in WILD]
        tame = [
            make_record(recipe, {"quora": q}, s)
            for recipe, rise in (("a/pcgrad", 0.02), ("a/baseline", 0.0))
            for q, s in ((0.80 + rise, 1), (0.81 + rise, 2))
        ]
        return Records(Record.model_validate(record) for record in (*wild, *tame))

    pair = ([("a/pcgrad", None)], [("a/baseline", None)], "quora")
    told_apart, alike = compare(*pair, pool(True)), compare(*pair, pool(False))
    assert not isinstance(told_apart, str)
    assert not isinstance(alike, str)
    assert told_apart.value == pytest.approx(alike.value)
    assert told_apart.error < alike.error / 2
    with_wild = ([("a/pcgrad", None)], [("b/baseline", None)], "quora")
    first, second = (compare(*with_wild, pool(untrained)) for untrained in (True, False))
    assert not isinstance(first, str)
    assert not isinstance(second, str)
    assert first.error == pytest.approx(second.error)


WILD = ((0.63, 1), (0.52, 2))
"""Figures of a head as it was made, by seed."""
