"""The first section: what was run, what holds, what is not the same here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.errors import counted
from plait.results.findings import count_verdicts, stays_corrected
from plait.results.markdown import figure, items, paragraph
from plait.results.records import FALL
from plait.results.sections.besides import sum_up_alone
from plait.results.tables import read_outline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.results.gathering import Results
    from plait.results.records import BestModel


def show_summary(results: Results) -> list[str]:
    """Return the section's lines."""
    rows = [row for table in results.tables for row in table.rows if not row.is_repeated]
    runs = {row.run for row in rows}
    done = {run for run in runs if results.records.row(run)}
    rows_done = [row for row in rows if row.run in done]
    lines = paragraph(
        "Four reports fine-tuned one BERT for sentiment (`sst`, accuracy), paraphrase (`quora`, "
        "accuracy) and similarity (`sts`, Pearson's r) at once. Here is every row of their tables, "
        "as printed and as plait reruns it, and whether what they found is found again. All "
        "figures are on dev, at the checkpoint that is best there, as in the reports. `mean` is "
        "that of the three; `overall` is the mean with (1 + r) / 2 "
        "for similarity, the score of the course's leaderboard."
    )
    seeds = [len(results.records.row(run)) for run in done]
    between = f", with {_range(seeds)} each" if seeds else ""
    told = [
        f"**Rows**: {len(rows_done)} of {len(rows)} are run: "
        f"{counted(len(done), 'distinct run')} of {len(runs)}{between}."
    ]
    counts = count_verdicts(results.judgements)
    stay = count_verdicts([j for j in results.judgements if stays_corrected(j)])
    told.append(
        f"**Findings**: of {len(results.judgements)}, {_verb(counts['holds'], 'hold')} here "
        f"({stay['holds']} also with the number of tests in mind), "
        f"{_verb(counts['does not'], 'do')} not ({stay['does not']} with that in mind), "
        f"{_verb(counts['within the noise'], 'are')} within the noise; "
        f"{counts['not tested']} could not be tested yet."
    )
    if fallen := [record for record in results.records if record.fall]:
        rows_fallen = ", ".join(sorted({f"`{record.recipe}`" for record in fallen}))
        told.append(
            f"**Ended low**: {counted(len(fallen), 'run')} fell apart late, or forgot one task "
            f"over another, and ended with an overall {figure(FALL, 1)} or more below the run's "
            f"own best checkpoint, which is the one shown: {rows_fallen}."
        )
    if lost := [record for record in results.records if record.guesses]:
        rows_lost = ", ".join(sorted({f"`{record.recipe}`" for record in lost}))
        told.append(
            f"**Fell apart**: {counted(len(lost), 'run')} came out no better than guessing in "
            f"every task: {rows_lost}. Findings that compare such a row are not tested."
        )
    if sharing := sum_up_alone(results.records):
        told.append(sharing)
    if results.best:
        models = ", ".join(
            f"{model.name} {figure(model.dev.figure('overall'))}" for model in results.best
        )
        cautions = [f" Of {m.name}: {m.caution}" for m in results.best if m.caution]
        told.append(
            f"**Best models**, overall: {models} ([more](#best-models)).{''.join(cautions)}"
        )
    if any(model.goal for model in results.best):
        told.append(_tell_goals(results.best))
    told.append(f"**Not the same**: {_departures(results)} ([more](#settings)).")
    return lines + items(told)


def _tell_goals(models: Sequence[BestModel]) -> str:
    """Say which of the goals that were set beforehand are met, each by the best that has it."""
    first: dict[float, BestModel] = {}
    for model in models:
        if model.goal is not None:
            first.setdefault(model.goal, model)
    shown = [
        f"{figure(goal)} for {model.name}, {'missed' if model.lacks else 'met'} "
        f"({figure(model.dev.figure('overall'))})"
        for goal, model in sorted(first.items())
    ]
    return f"**Goals** set beforehand, overall: {'; '.join(shown)}."


def _verb(number: int, verb: str) -> str:
    """Say how many do something."""
    alone = {"do": "does", "are": "is", "hold": "holds"}
    return f"{number} {alone[verb] if number == 1 else verb}"


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return counted(low, "seed") if low == high else f"{low} to {high} seeds"


def _departures(results: Results) -> str:
    """Say in a sentence what keeps our figures from being the reports'."""
    outline = read_outline()
    printed, here = outline["printed"], outline["profiles"].get(results.profile)
    parts = []
    if here:
        parts.append(
            f"the encoder is {here['encoder']} ({here['parameters']} million parameters), not "
            f"{printed['encoder']} ({printed['parameters']} million)"
        )
    had = results.records.most_rows("train")
    for task, sizes in printed["rows"].items():
        most = max(train for train, _ in sizes.values())
        if had.get(task, most) < most:
            parts.append(f"{task} has {had[task]:,} training rows here, not {most:,}")
    return (
        "; ".join(parts) + "; so compare the order of rows and the size of steps, not levels"
        if parts
        else "see the settings"
    )
