"""Write results.md: the printed tables with our scores, the tests of all claims, and the costs.

The text is in templates/results.md.j2; this module computes what it shows.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePath
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from plait.config import flatten
from reproduction import claims, published
from reproduction.claims import Judgement, compare, expect, sampling_variance
from reproduction.formatting import (
    count,
    interval,
    item,
    names,
    number,
    over_seeds,
    p_text,
    signed,
    unbroken,
    wrap,
)
from reproduction.records import (
    DROP,
    RECORDS,
    SUMMARIES,
    BestModel,
    Experiment,
    Records,
    read_best,
    read_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reproduction.published import Report, Row, Table
    from reproduction.records import Record
    from reproduction.statistics import Difference

HERE = Path(__file__).parent
CLAIMS_PICTURE = "claims"
Cells = list[str]


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that the page and the pictures show."""

    profile: str
    records: Records
    reports: list[Report]
    judgements: list[Judgement]
    best: list[BestModel]
    log: list[Experiment]

    @property
    def tables(self) -> list[Table]:
        """The tables of all reports."""
        return [table for report in self.reports for table in report.tables]

    @property
    def pictures(self) -> list[str]:
        """Names of the pictures: the claims, and each table with printed scores and ours."""
        drawn = [
            table.name
            for table in self.tables
            if any(row.scores and self.records.row(row.run) for row in table.rows)
        ]
        return [CLAIMS_PICTURE, *drawn] if any(j.difference for j in self.judgements) else drawn


def gather(profile: str = "small", folder: Path = RECORDS) -> Results:
    """Read the records of a profile and test the claims."""
    records = read_records(profile, folder)
    judged = claims.judge_all(published.read_claims(), records)
    return Results(profile, records, published.read_reports(), judged, *read_best(folder))


def write_results(profile: str, records: Path, out: Path) -> Results:
    """Write results.md and the pictures into a folder."""
    from reproduction.plots import draw

    results = gather(profile, records)
    for name in results.pictures:
        draw(results, name, out / "pictures" / f"{name}.svg")
    (out / "results.md").write_text(make_page(results), encoding="utf-8", newline="\n")
    return results


def make_page(results: Results) -> str:
    """Return the page."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        **{"number": number, "signed": signed, "wrap": wrap, "item": item},
        **{"names": names, "count": count, "over_seeds": over_seeds},
    }
    printed = published.read_published()
    text = environment.get_template("results.md.j2").render(
        results=results,
        records=results.records,
        reports=results.reports,
        pictures=results.pictures,
        best=results.best,
        log=results.log,
        margin=claims.MARGIN,
        drop=DROP,
        summary=summarise(results),
        spreads=list(describe_spreads(results.records)),
        errors=describe_dev_errors(results.records),
        claim_tables=[(r.system, *describe_claims(r, results)) for r in results.reports],
        printed_rows=lambda table: [c for row in table.rows for c in show_row(row, table, results)],
        notes=lambda table: list(describe_rows(table, results.records)),
        details=list(show_details(results.records)),
        alone=list(show_alone(results.records)),
        others=show_others(results),
        best_table=lambda model: list(show_best(model, results)),
        costs=list(show_costs(results.records)),
        run_costs=list(show_run_costs(results.records)),
        settings=list(describe_settings(results)),
        data=list(show_data(results.records, printed["printed"]["rows"])),
    )
    return text.rstrip() + "\n"


# --- summary -----------------------------------------------------------------------------


def summarise(results: Results) -> dict[str, Any]:
    """Return the numbers of the first section."""
    records = results.records
    rows = [row for t in results.tables for row in t.rows if row.recipe not in t.repeated]
    runs = {row.run for row in rows}
    done = {run for run in runs if records.row(run)}
    sharing = list(_compare_alone(records))
    seeds = [len(records.row(run)) for run in done]
    goals: dict[float, BestModel] = {}
    for model in results.best:
        if model.goal is not None:
            goals.setdefault(model.goal, model)
    return {
        "rows": len(rows),
        "rows_done": sum(row.run in done for row in rows),
        "runs": len(runs),
        "runs_done": len(done),
        "seeds": (min(seeds, default=0), max(seeds, default=0)),
        "counts": claims.count_verdicts(results.judgements),
        "firm": claims.count_verdicts([j for j in results.judgements if j.is_firm]),
        "tests": sum(j.p_value is not None for j in results.judgements),
        "dropped": [record for record in records if record.drop],
        "chance": [record for record in records if record.is_chance],
        "sharing": [found for *_, found in sharing if not isinstance(found, str)],
        "gained": list(_significant(sharing, 1)),
        "lost": list(_significant(sharing, -1)),
        "goals": sorted(goals.items()),
        "departures": list(_departures(results)),
    }


def _significant(sharing: Iterable[tuple[str, str, Difference | str]], sign: int) -> Iterator[str]:
    for recipe, task, found in sharing:
        if not isinstance(found, str) and min(sign * end for end in found.interval) > 0:
            yield f"`{task}` of `{recipe}` {signed(found.value)}"


def _departures(results: Results) -> Iterator[str]:
    """Yield what differs from the reports in all rows."""
    outline = published.read_published()
    printed, here = outline["printed"], outline["profiles"].get(results.profile)
    if here:
        yield (
            f"the encoder is {here['encoder']} ({here['parameters']} million parameters), not "
            f"{printed['encoder']} ({printed['parameters']} million)"
        )
    sizes = results.records.most_rows("train")
    for task, reported in printed["rows"].items():
        most = max(train for train, _ in reported.values())
        if sizes.get(task, most) < most:
            yield f"{task} has {sizes[task]:,} training rows here, not {most:,}"


# --- claims ------------------------------------------------------------------------------


def describe_spreads(records: Records) -> Iterator[str]:
    """Yield the expected standard deviation over seeds of each score."""
    tasks = dict.fromkeys(task for record in records for task in record.dev.tasks)
    for name in (*tasks, "mean", "overall"):
        found = expect(records, name)
        if found is not None and found.variance > 0 and len(records.rows_that_vary(name)) > 2:
            alike = math.isinf(found.freedom)
            weight = "all rows alike" if alike else f"weight of {found.freedom:.1f} seeds"
            yield f"`{name}` {number(math.sqrt(found.variance), 4)} ({weight})"


def describe_dev_errors(records: Records) -> list[str]:
    """Return the median standard error of each score over other dev sets of the same size."""
    errors: dict[str, list[float]] = {}
    for record in records:
        for name in (*record.dev.tasks, "overall"):
            if len(record.dev.tasks) > 1 and record.dev.get(name) is not None:
                errors.setdefault(name, []).append(sampling_variance(record, name) ** 0.5)
    return [f"`{name}` {number(median(each))}" for name, each in errors.items()]


def describe_claims(report: Report, results: Results) -> tuple[list[Cells], list[str]]:
    """Return the rows of a report's table of claims, and notes below it."""
    judged = [j for j in results.judgements if j.claim.system == report.system]
    rows = dict.fromkeys(
        row for j in judged if j.difference for row in (*j.claim.better, *j.claim.worse)
    )
    records = results.records
    several = {recipe for recipe in records.recipes if len(records.row(recipe)) > 1}
    notes = []
    if rows and not several & rows.keys():
        notes.append("No row compared here has a second seed: the expected variance is used.")
    if low := [row for row in rows if any(record.drop for record in records.row(row))]:
        notes.append(f"Rows with a run that ended far below its best checkpoint: {names(low)}.")
    return [_claim_cells(j) for j in judged], notes


def _claim_cells(judgement: Judgement) -> Cells:
    claim, found = judgement.claim, judgement.difference
    told = judgement.reason or unbroken(f"**{judgement.verdict}**")
    printed = claim.published
    cells = [f"{claim.says} ({claim.where})", told, f"`{claim.score}`"]
    cells.append("not printed" if printed is None else signed(printed))
    if found is None or judgement.p_value is None or judgement.corrected is None:
        return [*cells, *[""] * 5]
    p_values = (judgement.p_value, judgement.corrected)
    difference = [signed(found.value), interval(found.interval), str(found.num_seeds)]
    return [*cells, *difference, *map(p_text, p_values)]


# --- tables ------------------------------------------------------------------------------


def show_row(row: Row, table: Table, results: Results) -> Iterator[Cells]:
    """Yield the printed line of a row, and ours."""
    columns = (*table.tasks, *table.summaries)
    again = " (again)" if row.recipe in table.repeated else ""
    blank = [""] * (len(columns) + 1)
    if row.scores:
        printed = (_printed(row, column) for column in columns)
        yield [f"{row.row}{again}", "published", *printed, ""]
    else:
        yield [f"{row.row}{again}", "not printed", *blank]
    name = f"`{row.recipe}`" if row.alias is None else f"`{row.recipe}`, the same as `{row.run}`"
    records = results.records.row(row.run)
    if not records:
        yield [name, "not run yet", *blank]
        return
    tasks = records[0].dev.tasks
    cells = [
        over_seeds(results.records.scores(row.run, column))
        if column in tasks or (column in SUMMARIES and len(tasks) > 1)
        else ""
        for column in columns
    ]
    yield [name, "here", *cells, str(len(records))]


def _printed(row: Row, column: str) -> str:
    if column in row.scores:
        return number(row.scores[column])
    value = row.score(column)
    return "" if value is None else f"*{number(value)}*"


def describe_rows(table: Table, records: Records) -> Iterator[str]:
    """Yield notes on the rows of a table."""
    common = records.common_overrides
    shared = {row.note for row in table.rows}
    if len(shared) == 1:
        yield from filter(None, shared)
    for row in table.rows:
        if row.recipe in table.repeated:
            continue
        if row.note and len(shared) > 1:
            yield f"{row.row}: {row.note}"
        own = sorted({o for r in records.row(row.run) for o in r.overrides} - common)
        if own:
            yield f"{row.row}: run with {', '.join(f'`-o {word}`' for word in own)}."
        for record in records.row(row.run):
            yield from (f"{row.row}, seed {record.seed}: {note}" for note in _notes(record))


def _notes(record: Record) -> Iterator[str]:
    if record.is_chance:
        yield "no better than the baseline in every task."
    if record.drop:
        best, last = record.drop
        yield (
            f"overall {number(best.overall)} after {best.step:,} updates, "
            f"{number(last.overall)} at the end; the table has the best checkpoint."
        )
    if record.members:
        each = [member.summary["overall"] for member in record.members.values()]
        known = [value for value in each if value is not None]
        mean = f" (mean {number(fmean(known))})" if known else ""
        yield (
            f"overall {number(record.dev.get('overall'))}; its {len(each)} members have "
            f"{', '.join(map(number, each))}{mean}."
        )


def show_details(records: Records) -> Iterator[Cells]:
    """Yield the scores of single tasks that the reports print, and ours."""
    for detail in published.read_details():
        read = [detail.read(record) for record in records.row(detail.recipe)]
        ours = [fmean(column) for column in zip(*read, strict=True)]
        digits = 0 if detail.mistaken else max(len(f"{v:g}") - 2 for v in detail.published)
        printed, here = (
            " ".join(number(value, digits) for value in values)
            for values in (detail.published, ours)
        )
        what = f"{detail.what}{f' ({detail.note})' if detail.note else ''}"
        cells = [detail.where, f"`{detail.recipe}`", f"`{detail.task}`", what]
        yield [*cells, printed, here or "not run yet"]


def show_alone(records: Records) -> Iterator[Cells]:
    """Yield the tasks that were trained alone, beside the joint runs."""
    for recipe, task, found in _compare_alone(records):
        both = (records.scores(recipe, task), records.scores(recipe, task, task))
        cells = [f"`{recipe}`", f"`{task}`", *map(over_seeds, both)]
        if isinstance(found, str):
            yield [*cells, "", "", found]
        else:
            yield [*cells, signed(found.value), interval(found.interval), str(found.num_seeds)]


def _compare_alone(records: Records) -> Iterator[tuple[str, str, Difference | str]]:
    def place(key: tuple[str, str]) -> tuple[str, int]:
        row = records.row(key[0])
        return key[0], list(row[0].dev.tasks).index(key[1]) if row else 0

    for recipe, task in sorted(records.alone, key=place):
        yield recipe, task, compare([(recipe, None)], [(recipe, task)], task, records)


def show_others(results: Results) -> tuple[list[str], list[Cells]]:
    """Return the scores and rows of recipes that are in no report."""
    records = results.records
    known = {row.recipe for table in results.tables for row in table.rows}
    recipes = [recipe for recipe in records.recipes if recipe not in known]
    tasks = dict.fromkeys(task for r in recipes for task in records.row(r)[0].dev.tasks)
    columns = [*tasks, "mean", "overall"]
    rows = [
        [
            f"`{recipe}`",
            *(over_seeds(records.scores(recipe, column)) for column in columns),
            str(len(records.row(recipe))),
        ]
        for recipe in recipes
    ]
    return columns, rows


# --- best models -------------------------------------------------------------------------


def show_best(model: BestModel, results: Results) -> Iterator[Cells]:
    """Yield the scores of a best model beside the highest row here and in print."""
    records = results.records
    printed = [row for table in results.tables for row in table.rows if len(row.scores) > 1]
    joint = [r for r in records.recipes if len(records.row(r)[0].dev.tasks) > 1]
    for name in (*model.dev.tasks, "mean", "overall"):
        theirs = [row.scores.get(name) or row.score(name) for row in printed]
        ours = [claims.mean_score(records, recipe, name) for recipe in joint]
        ends = model.interval.get(name)
        highest = [max((v for v in some if v is not None), default=None) for some in (ours, theirs)]
        here = f"**{number(model.dev.get(name))}**"
        yield [f"`{name}`", here, interval(ends, number) if ends else "", *map(number, highest)]


# --- costs and settings ------------------------------------------------------------------


def show_costs(records: Records) -> Iterator[Cells]:
    """Yield the time of all runs, by folder and hardware."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    totals: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.seconds is not None:
            folder = f"`{record.recipe.partition('/')[0]}/...`"
            name = f"{folder}, tasks alone" if record.alone else folder
            groups[name, record.hardware].append(record.seconds)
            totals[record.hardware].append(record.seconds)
    every = [*sorted(groups.items()), *((("**all**", h), s) for h, s in sorted(totals.items()))]
    for (name, hardware), times in every:
        seconds = sum(times)
        yield [name, hardware, f"{len(times):,}", f"{seconds / 60:,.0f}", f"{seconds / 3600:,.1f}"]


def show_run_costs(records: Records) -> Iterator[Cells]:
    """Yield the mean cost of a run of each recipe."""
    for recipe in records.recipes:
        row = records.row(recipe)
        yield [
            f"`{recipe}`",
            str(len(row)),
            _mean([r.steps for r in row]),
            _mean([r.best_step for r in row]),
            _mean([r.seconds / 60 if r.seconds else None for r in row], 1),
            _mean([r.peak_memory_mib for r in row]),
        ]


def _mean(values: Iterable[float | None], digits: int = 0) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):,.{digits}f}" if known else ""


def describe_settings(results: Results) -> Iterator[str]:
    """Yield what differs from the reports in all rows: encoder, profile, versions, hardware."""
    outline, records = published.read_published(), results.records
    printed, here = outline["printed"], outline["profiles"].get(results.profile)
    if here:
        yield (
            f"Encoder: {here['encoder']}, {here['parameters']} million parameters; the reports' is "
            f"{printed['encoder']}, {printed['parameters']} million."
        )
        path = HERE / "profiles" / f"{results.profile}.toml"
        table = flatten(tomllib.loads(path.read_text(encoding="utf-8")))
        changes = ", ".join(f"`{key}={json.dumps(value)}`" for key, value in table.items())
        yield (
            f"Profile `{results.profile}`, laid over every recipe: {changes}. A stage that trains "
            "only the heads keeps its own learning rate."
        )
    if usual := sorted(records.common_overrides - records.neutral_overrides):
        yield f"Every run was made with {', '.join(f'`-o {word}`' for word in usual)}."
    for title, read in (("Weights", _weights), ("Versions", _versions), ("Hardware", _hardware)):
        counts = Counter(text for record in records if (text := read(record)))
        several = len(counts) > 1
        each = [
            f"{text}{f' ({n:,} runs)' if several else ''}" for text, n in sorted(counts.items())
        ]
        if each:
            yield f"{title}: {'; '.join(each)}."


def _weights(record: Record) -> str:
    origin, digest = record.encoder.get("origin"), record.encoder.get("sha256")
    if not origin:
        return ""
    name = PurePath(origin).name if PurePath(origin).is_absolute() else origin
    return f"{name}{f', sha256 {digest[:12]}' if digest else ''}"


def _versions(record: Record) -> str:
    return ", ".join(f"{name} {version}" for name, version in record.versions.items())


def _hardware(record: Record) -> str:
    return f"{record.hardware}{f' in {record.precision}' if record.precision else ''}"


def show_data(records: Records, printed: dict[str, dict[str, tuple[int, int]]]) -> Iterator[Cells]:
    """Yield the numbers of training and dev rows, of the reports and here."""
    train, dev = records.most_rows("train"), records.most_rows("dev")
    for task, sizes in printed.items():
        theirs = [
            f"{a:,} / {b:,}{'' if who == 'all' else f' ({who})'}" for who, (a, b) in sizes.items()
        ]
        here = f"{train[task]:,} / {dev.get(task, 0):,}" if task in train else "not run yet"
        yield [f"`{task}`", "; ".join(theirs), here]
