"""The page shows what the records and the reports say, and says where there is nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fake_records import dev_figures, make_record, write_all, write_record

from plait.results import write_results
from plait.results.markdown import between, figure, over_seeds, probability, signed


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of nearly every row, with a best model."""
    folder = tmp_path_factory.mktemp("results")
    write_all(folder / "records")
    extra = make_record("course", {"sst": 0.52, "quora": 0.87, "sts": 0.88})
    write_record(folder / "records", extra)
    held = [{"what": "all rows", "hardware": "NVIDIA H200", "minutes": 61.5}]
    (folder / "records" / "small" / "held.json").write_text(json.dumps(held), encoding="utf-8")
    best = folder / "best"
    best.mkdir()
    model = {
        "name": "soup",
        "about": "Three runs averaged.",
        "parameters": 33400000,
        "how_chosen": "On folds of train.",
        "goal": 0.798,
        "dev": dev_figures({"sst": 0.56, "quora": 0.89, "sts": 0.9}),
        "interval": {"overall": [0.79, 0.81]},
        "quora_without_implied": 0.87,
        "seconds": 120.0,
        "hardware": "NVIDIA H200",
    }
    (best / "soup.json").write_text(json.dumps(model), encoding="utf-8")
    lesser = {"name": "lesser", "about": "One run.", "caution": "It has seen Quora.", "goal": 0.79}
    lesser["dev"] = dev_figures({"sst": 0.5, "quora": 0.9, "sts": 0.9})
    (best / "lesser.json").write_text(json.dumps(lesser), encoding="utf-8")
    tried = [{"what": "larger rate", "setting": "lr=1e-4", "fold_overall": 0.7812, "verdict": "no"}]
    (best / "log.json").write_text(json.dumps(tried), encoding="utf-8")
    return page(folder / "records", best=best)


def page(records: Path, **options: object) -> str:
    out = records.parent / "page.md"
    write_results(records, out=out, pictures=None, **options)
    return out.read_text(encoding="utf-8").replace("\u00a0", " ")


def line(text: str, start: str) -> str:
    (found,) = {entry for entry in text.splitlines() if entry.startswith(start)}
    return found


def test_a_run_that_fell_apart_is_told(tmp_path):
    """The kept checkpoint's figures look like any other's; a stage before may have had better."""
    figures = {"sst": 0.458, "quora": 0.845, "sts": 0.873}
    for recipe, seed, end in (("a/annealed", 1, 0.70), ("a/pcgrad", 1, 0.71), ("a/pcgrad", 2, 0.4)):
        points = [
            {"step": step, "epoch": 1, "dev": figures, "overall": overall}
            for step, overall in ((800, 0.9), (1200, 0.747), (2400, None), (3600, end))
        ]
        record = make_record(recipe, figures, seed, curves=points, best_step=1200)
        write_record(tmp_path, record)
    text = " ".join(page(tmp_path, best=tmp_path / "none").split())
    told = "seed 2: overall fell from .747 after 1,200 updates to .400 at the end"
    assert f"Round robin, truncated + PCGrad, {told}; shown is the best checkpoint." in text
    assert text.count("overall fell from") == 1
    assert "**Ended low**: 1 run fell apart late" in text
    assert "which is the one shown: `a/pcgrad`." in text


def test_a_run_that_only_guesses_is_told_and_not_compared(tmp_path):
    guessed, learnt = (
        {"sst": 0.26, "quora": 0.63, "sts": None},
        {"sst": 0.5, "quora": 0.8, "sts": 0.6},
    )
    base = {"baseline": dev_figures({"sst": 0.253, "quora": 0.625, "sts": None})}
    write_record(tmp_path, make_record("d/baseline-sequential", guessed, **base))
    write_record(tmp_path, make_record("d/cos-sim-sequential", learnt, **base))
    half = guessed | {"quora": 0.7}  # learnt one of the three
    for seed in (1, 2):
        write_record(tmp_path, make_record("b/pcgrad-200", half, seed, **base))
    text = " ".join(page(tmp_path, best=tmp_path / "none").split())
    assert "in every task: `d/baseline-sequential`. Findings" in text
    assert "seed 1: fell apart; its figures are those of guessing." in text
    assert text.count("figures are those of guessing") == 1
    assert "cannot be told, as it fell apart: `d/baseline-sequential` |" in text


def test_what_findings_rest_on_is_told_below_them(tmp_path):
    """Seeds of other rows, runs that ended low."""
    figures = {"sst": 0.25, "quora": 0.8, "sts": 0.6}
    turns = [
        {"step": 100, "dev": figures, "overall": 0.6},
        {"step": 200, "dev": figures, "overall": 0.4},
    ]
    low = make_record("d/baseline-sequential", figures, curves=turns, best_step=100)
    write_record(tmp_path, low)
    write_record(tmp_path, make_record("d/cos-sim-sequential", figures))
    for seed in (1, 2):
        write_record(tmp_path, make_record("b/pcgrad-200", figures | {"sst": 0.3 / seed}, seed))
    text = " ".join(page(tmp_path, best=tmp_path / "none").split())
    of_d = text[text.index("### Findings of D") : text.index("### Findings over all four")]
    assert "the spread over seeds is the one that rows of `b/...` lead to expect" in of_d
    assert "ended low, as noted below their table: `d/baseline-sequential`." in of_d
    assert "No row compared here" not in text[: text.index("### Findings of D")]


def test_without_a_record_every_row_says_so(tmp_path):
    text = page(tmp_path, best=tmp_path / "none")
    assert "0 of 66 are run: 0 distinct runs of 63." in text
    assert line(text, "| `a/baseline` |") == "| `a/baseline` | not run yet |  |  |  |  |  |  |"
    assert "## Costs" not in text
    assert "## Best models" not in text
    assert "## Each task alone" not in text
    assert "![" not in text


def test_a_row_is_a_mean_and_a_deviation_over_seeds(tmp_path):
    for seed, sst in enumerate((0.50, 0.52, 0.54), 1):
        figures = {"sst": sst, "quora": 0.8, "sts": 0.6}
        write_record(tmp_path, make_record("a/square-root", figures, seed))
    text = page(tmp_path, best=tmp_path / "none")
    ours = ".520 ± .020 | .800 ± .000 | .600 ± .000 | .640 ± .007 | .707 ± .007 | 3 |"
    assert f"| `a/square-root` | here | {ours}" in text
    # The report prints the run a second time, under another name.
    assert f"| `a/square-root-ce`, which is `a/square-root` | here | {ours}" in text
    printed = ".500 | .810 | .582 | .631 | *.700* |  |"
    assert f"| Square root | published | {printed}" in text
    assert f"| Square root (again) | published | {printed}" in text
    assert "2 of 66 are run: 1 distinct run of 63, with 3 seeds each." in text


def test_what_sharing_gained_is_summed_up(tmp_path):
    for seed, off in enumerate((-0.001, 0.0, 0.001), 1):
        figures = {"sst": 0.5, "quora": 0.8, "sts": 0.6}
        write_record(
            tmp_path, make_record("a/square-root", {t: v + off for t, v in figures.items()}, seed)
        )
        for task, moved in (("sst", 0.45), ("quora", 0.85), ("sts", 0.6)):
            record = make_record("a/square-root", {task: moved - off}, seed, alone=task)
            write_record(tmp_path, record)
    text = " ".join(page(tmp_path, best=tmp_path / "none").split())
    assert (
        "**Sharing**: of 3 tasks trained alone beside the row that has it among others, "
        "1 (`sst` of `a/square-root` +.050) gained by it and 1 (`quora` of `a/square-root` -.050) "
        "lost, as far as these seeds can tell"
    ) in text


def test_nothing_is_said_of_sharing_where_no_task_was_alone(tmp_path):
    write_record(tmp_path, make_record("a/square-root", {"sst": 0.5, "quora": 0.8, "sts": 0.6}))
    assert "**Sharing**" not in page(tmp_path, best=tmp_path / "none")


def test_one_seed_has_no_deviation(tmp_path):
    write_record(tmp_path, make_record("minbert/sst-full-model", {"sst": 0.5}))
    text = page(tmp_path, best=tmp_path / "none")
    assert line(text, "| `minbert/sst-full-model` | here") == (
        "| `minbert/sst-full-model` | here | .500 |  | 1 |"
    )


def test_every_section_is_there_in_order(whole):
    titles = re.findall(r"^## (.+)$", whole, flags=re.M)
    assert titles == [
        *("Findings", "System A", "System B", "System C", "System D", "minBERT alone"),
        *("Figures besides", "Each task alone", "Not in the reports", "Best models"),
        *("Log of experiments", "Costs", "Settings"),
    ]


def test_what_is_not_the_same_comes_from_the_records(whole):
    told = " ".join(whole.split())
    assert "e5-small (33 million parameters), not BERT-base (110 million)" in told
    assert "quora has 63,483 training rows here, not 283,010" in told
    assert (
        "| `quora` | 283,010 / 40,429 (A, D); 141,506 / 20,215 (B, C) | 63,483 / 20,212 |" in whole
    )
    assert '`encoder.pooling="mean"`' in whole


def test_findings_have_a_verdict_each(whole):
    rows = re.findall(r"^\| .+ \| (\*\*.+?\*\*|not run yet.*?) \| `\w+` \|", whole, flags=re.M)
    assert len(rows) == 46
    told = line(whole, "- **Findings**")
    assert f"of 46, {rows.count('**holds here**')} hold here" in told
    assert "not run yet: `c/smart`" in rows


def test_costs_are_sums(whole):
    assert "| `minbert/...` | NVIDIA H200 | 6 | 20 | 0.3 |" in whole  # 6 * 195.2 seconds
    runs = [
        int(n) for n in re.findall(r"^\| `\w+(?:/\.\.\.)?`.* \| NVIDIA H200 \| (\d+)", whole, re.M)
    ]
    total = re.search(r"^\| \*\*all\*\* \| NVIDIA H200 \| (\d+) \|", whole, flags=re.M)
    assert total is not None
    assert sum(runs) == int(total[1])


def test_single_tasks_stand_beside_their_row(whole):
    rows = re.findall(r"^\| `a/square-root-new-heads` \| `(\w+)` \| .+ \| 3 \|$", whole, re.M)
    assert rows == ["sst", "quora", "sts"]


def test_the_best_model_and_the_log(whole):
    assert "| `overall` | **.800** | .790 to .810 |" in whole
    assert "- Parameters: 33,400,000" in whole
    assert "| larger rate | `lr=1e-4` | no | .7812 |" in whole


def test_a_caution_stands_wherever_its_model_does(whole):
    told = " ".join(whole.split())
    best_first = "**Best models**, overall: soup .800, lesser .783 ([more](#best-models))."
    assert f"{best_first} Of lesser: It has seen Quora. - **Goals" in told
    assert "- **It has seen Quora.**" in told


def test_goals_are_told_whether_met_or_missed(whole):
    told = " ".join(whole.split())
    assert (
        "- **Goals** set beforehand, overall: .790 for lesser, missed (.783); .798 for soup, met "
        "(.800). - **Not"
    ) in told
    assert "- Goal set beforehand, `overall`: .798, met -" in told
    assert "- Goal set beforehand, `overall`: .790, missed by .007 " in told


def test_what_was_held_is_told(whole):
    assert "| all rows | NVIDIA H200 | 62 |" in whole


def test_rows_of_no_report_are_shown_too(whole):
    assert "| `course` | .520 | .870 | .880 | .757 | .777 | 1 |" in whole


def test_tables_are_even(whole):
    """Every line of a table has as many cells as its header."""
    for block in re.findall(r"(?:^\|.*\n)+", whole, flags=re.M):
        widths = {entry.count(" |") for entry in block.splitlines() if not entry.startswith("|-")}
        assert len(widths) == 1, block


def test_an_ensemble_tells_of_its_members(whole):
    told = " ".join(whole.split())
    assert "from 5 members of .780, .780, .780, .780, .780 (mean .780)." in told


def test_a_row_with_settings_of_its_own_says_so(tmp_path):
    figures = {"sst": 0.5, "quora": 0.8, "sts": 0.6}
    write_record(tmp_path, make_record("a/baseline", figures, overrides=[]))
    write_record(tmp_path, make_record("a/pcgrad", figures, overrides=["train.epochs=2"]))
    text = page(tmp_path, best=tmp_path / "none")
    assert "- Round robin, truncated + PCGrad: run with `-o train.epochs=2`." in text


# --- figures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.5126, ".513"),
        (-0.007, "-.007"),
        (-0.0001, ".000"),
        (1.535, "1.535"),
        (0.9999, "1.000"),
        (10.0, "10.000"),
        (None, "none"),
        (float("nan"), "none"),
    ],
)
def test_figures_are_written_as_in_print(value, shown):
    assert figure(value) == shown


def test_other_ways_to_write_figures():
    assert (signed(0.013), signed(-0.001), signed(0.0), signed(None)) == (
        "+.013",
        "-.001",
        "+.000",
        "none",
    )
    assert over_seeds([0.5]) == ".500"
    assert over_seeds([]) == "none"
    assert over_seeds([0.5, 0.6]) == ".550\u00a0±\u00a0.071"
    assert between((0.5, 0.6)) == ".500\u00a0to\u00a0.600"
    assert between((-0.5, 0.6), signs=True) == "-.500\u00a0to\u00a0+.600"
    assert (probability(0.0004), probability(0.04)) == ("<.001", ".040")
