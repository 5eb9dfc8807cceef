"""The report: one offline, well-formed page with every section, whatever a run is like."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from plait.analysis import plots, sections
from plait.analysis.page import Report, number, percent, signed
from plait.analysis.plots import COLOURS, NUM_SERIES, Series, series_colour, series_marker
from plait.analysis.report import render, write_report
from plait.analysis.runs import AnalysedRun, History, read_history, read_runs
from plait.config import RunConfig, read_recipe
from plait.data import Dataset, Tokenizer
from plait.errors import RunError, UsageError
from plait.inference.calibration import Scaling
from plait.inference.ensemble import make_ensemble
from plait.inference.fitting.answers import TaskAnswers
from plait.inference.fitting.calibrate import calibrate
from plait.tasks.metrics import metric_span

MINUS = "\N{MINUS SIGN}"
CLASSES = {"kind": "classes", "labels": ["bad", "so-so", "good"]}
LABELS = {"kind": "labels", "labels": ["glad", "tired"]}
SCORE = {"kind": "score", "range": [0, 5]}
BINARY = {"kind": "binary"}


class Page(HTMLParser):
    """Reads a page, and fails if an element is not closed or an id occurs twice."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.headings: list[tuple[str, str]] = []
        self.figures: list[dict[str, str | None]] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids), "an id occurs twice"

    def handle_starttag(self, name, attributes):
        self._note(name, dict(attributes))
        if name not in ("meta", "br"):
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self._note(name, dict(attributes))

    def handle_endtag(self, name):
        assert self.open, f"</{name}> closes nothing"
        assert self.open.pop() == name

    def handle_data(self, data):
        self.text += data
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            self.headings.append((self.open[-1], data))

    def _note(self, name, attributes):
        self.tags.add(name)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.figures += [attributes] if name == "svg" else []
        self.links += [attributes["href"]] if name == "a" else []
        if name not in ("a", "use"):
            keys = ("src", "srcset", "href", "data", "poster", "action")
            self.loaded += [attributes[key] for key in keys if key in attributes]


def titles(page: Page, level: str = "h2") -> list[str]:
    return [text for found, text in page.headings if found == level]


def check(text: str) -> Page:
    """Return a page that is well-formed and loads nothing from elsewhere."""
    page = Page(text)
    assert page.loaded == []
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    assert "http" not in re.sub(r">[^<]*<", "><", text)  # in no tag; texts may have links
    named = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    assert named <= set(page.ids)
    assert all(figure.get("aria-label") and figure["role"] == "img" for figure in page.figures)
    levels = [int(level[1]) for level, _ in page.headings]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels)), "a heading level is left out"
    return page


# --- trained runs ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(tmp_path_factory, train_once) -> Path:
    """A calibrated run of the same data as `tiny_run`, with logged conflicts."""
    trained = train_once(
        "train.aggregator=pcgrad",
        "train.schedule={name='round-robin', together=true}",
        "train.train_limit=8",
        "train.eval_limit=10",
    )
    run = shutil.copytree(trained, tmp_path_factory.mktemp("other") / "other")
    calibrate(run)
    return run


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


def test_one_run(run, tmp_path):
    out = write_report([run], tmp_path / "new" / "page.html")
    text = out.read_text(encoding="utf-8")
    page = check(text)
    assert titles(page, "h1") == ["Training report: run"]
    assert titles(page) == [
        "Summary",
        "Learning curves",
        "Errors",
        "Calibration",
        "Reproducibility",
    ]
    classes = ["Confusion matrix", "Precision, recall and F1", "Most confident errors"]
    numbers = ["Predicted and actual", "Largest errors"]
    assert titles(page, "h4") == [*classes, *classes, *numbers]
    assert len(page.figures) == 6 + 5 + 2
    for value in json.loads((run / "scores.json").read_text())["dev"]["primary"].values():
        assert f"{value:.3f}".replace("-", MINUS) in page.text
    assert write_report([run], out).read_text(encoding="utf-8") == text  # the same bytes


def test_several_runs_and_single_task_runs(run, other, tmp_path):
    shutil.copytree(run, tmp_path / "alone" / "mood")
    heard = []
    out = write_report(
        [run, other],
        tmp_path / "page.html",
        alone=tmp_path / "alone",
        progress=lambda what, done, total: heard.append((what, done, total)),
    )
    page = check(out.read_text(encoding="utf-8"))
    assert titles(page, "h1") == ["Training report: 2 runs"]
    assert titles(page) == [
        "Summary",
        "Comparison with run",
        "Learning curves",
        "Errors",
        "Calibration",
        "Gradient conflicts",
        "Joint and single-task training",
        "Reproducibility",
    ]
    assert "mood and same" in titles(page, "h3")
    assert "calibrated" in page.text
    assert "train.aggregator.name" in page.text
    assert "only a sample of the dev rows" in page.text
    assert ("comparing near", 1000, 1000) in heard


def test_an_ensemble(run, tiny_run, tmp_path):
    both = make_ensemble([run, tiny_run], tmp_path / "both")
    page = check(write_report([both], tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "The runs logged no scores or losses." in page.text
    assert "members" in page.text


def test_answers_are_saved(run):
    asked: list[str] = []
    for expected in ({"mood", "same", "near"}, set()):
        asked.clear()
        (found,) = read_runs([run], answering=lambda task, *_: asked.append(task))
        assert set(asked) == expected
    scores = json.loads((run / "scores.json").read_text())["dev"]["tasks"]
    assert found.scores["mood"].to_json()["confusion"] == scores["mood"]["confusion"]


def test_without_dev_files(run, tmp_path):
    data = Path(read_recipe(run / "recipe.toml").data.root)
    hidden = tmp_path / "hidden"
    recipe = (run / "recipe.toml").read_text().replace(str(data), str(hidden))
    (run / "recipe.toml").write_text(recipe)
    notes: list[str] = []
    text = write_report([run], tmp_path / "page.html", note=notes.append).read_text("utf-8")
    assert len(notes) == 1
    assert "cannot be read" in notes[0]
    assert titles(check(text)) == ["Summary", "Learning curves", "Errors", "Reproducibility"]
    assert "Confusion matrix" in text  # from scores.json
    with pytest.raises(UsageError, match=r"hidden|mood-dev"):
        write_report([run], tmp_path / "page.html", data=str(hidden))
    assert check(write_report([run], tmp_path / "page.html", data=str(data)).read_text("utf-8"))


def test_refusals(run, tmp_path):
    mine = tmp_path / "mine.html"
    mine.write_text("<p>mine</p>")
    with pytest.raises(UsageError, match="is not a plait report"):
        write_report([run], mine)
    assert mine.read_text() == "<p>mine</p>"
    with pytest.raises(UsageError, match="is a folder"):
        write_report([run], tmp_path)
    out = tmp_path / "x.html"
    with pytest.raises(UsageError, match="is named twice"):
        write_report([run, run], out)
    with pytest.raises(RunError, match="there is no run at"):
        write_report([tmp_path / "none"], out)
    with pytest.raises(RunError, match="there is no folder"):
        write_report([run], out, alone=tmp_path / "none")
    with pytest.raises(RunError, match="has no run of mood, same, near"):
        write_report([run], out, alone=tmp_path)
    assert not out.exists()


def test_runs_of_the_same_name(tmp_path, tiny_run):
    runs = [shutil.copytree(tiny_run, tmp_path / name / "run") for name in ("a", "b")]
    assert [run.name for run in read_runs(runs)] == ["a/run", "b/run"]


# --- runs made by hand -------------------------------------------------------------------

Rows = tuple[dict[str, Any], Any, Any]
"""A task of a recipe, labels and answers."""


@pytest.fixture
def analysed(tiny_encoder: Path):
    """Factory: a run with answers to the rows of some tasks."""
    tokenizer = Tokenizer.from_file(tiny_encoder / "tokenizer.json")

    def make(name: str, tasks: dict[str, Rows], **more: Any) -> AnalysedRun:
        files = {"train": "train.csv", "dev": "dev.csv", "label": "label", "text": "text"}
        tables = {task: {**files, **rows[0]} for task, rows in tasks.items()}
        config = RunConfig.model_validate({"name": "made", "tasks": tables})
        answers = {}
        for task, (_, labels, given) in tasks.items():
            spec = config.tasks[task]
            texts = [(f"row {i} <script>",) for i in range(len(labels))]
            dataset = Dataset.from_texts(texts, tokenizer, 32)
            true = np.asarray(labels, np.float64)
            answers[task] = TaskAnswers(
                spec, spec.kind.metrics[0], dataset, true, np.asarray(given, np.float64), None
            )
        values = {"members": (), "info": {}, "result": {}, "history": History(), **more}
        scores = {task: found.score() for task, found in answers.items()}
        return AnalysedRun(name, Path(name), config, **values, answers=answers, scores=scores)

    return make


def chances(count: int, width: int) -> Any:
    return np.random.default_rng(0).dirichlet(np.ones(width), size=count)


def test_every_form_of_task(analysed):
    run = analysed(
        "run",
        {
            "mood": (CLASSES | {"about": "<b>&"}, [0, 1, 2], chances(3, 3)),
            "moods": (LABELS, [[1, 0], [1, 1]], [[0.9, 0.2], [0.3, 0.6]]),
            "near": (SCORE, [0, 5, 2], [1, 4, math.nan]),
            "same": (BINARY, [0, 1], [[0.4, 0.6], [0.4, 0.6]]),
        },
    )
    page = check(render(Report([run])))
    assert titles(page, "h3")[:4] == ["mood", "moods", "near", "same"]
    assert "row 0 <script>" in page.text
    assert "<b>&" in page.text
    assert "too few dev rows" in page.text  # for a temperature


def test_tasks_and_conflicts(analysed, monkeypatch):
    monkeypatch.setattr(sections, "MAX_PAIRS", 2)
    names = [f"task{i}" for i in range(4)]
    losses = {name: [(step, 1 / step) for step in range(1, 40)] for name in names}
    conflicts = {pair: {"cosine": [(1, -0.1)], "share": [(1, 0.5)]} for pair in pairwise(names)}
    tasks = {name: (SCORE, [0, 1], [0, 1]) for name in names}
    page = check(render(Report([analysed("run", tasks, history=History(losses, {}, conflicts))])))
    assert len([link for link in page.links if link.startswith("#task-")]) == 4
    assert len(page.figures) == 4 + 4 + 2
    assert "The table has 1 more pair." in page.text


@pytest.mark.parametrize("num_classes", [12, 60])
def test_many_classes(analysed, num_classes):
    labels = [f"{'a label that is rather long ' * 3}{i}" for i in range(num_classes)]
    true = np.random.default_rng(0).integers(num_classes, size=200)
    table = {"kind": "classes", "labels": labels}
    page = check(render(Report([analysed("run", {"t": (table, true, chances(200, num_classes))})])))
    assert labels[-1] in page.text


def test_many_rows_are_shaded_cells(analysed):
    generator = np.random.default_rng(0)
    true = generator.random(5000) * 5
    given = np.clip(true + generator.normal(size=5000), 0, 5)
    text = render(Report([analysed("run", {"t": (SCORE, true, given)})]))
    assert "Darker cells have more rows." in check(text).text
    assert len(text) < 400_000


def test_the_best_baseline(analysed):
    """A run of an earlier version has the majority class alone."""
    rows = {"same": (BINARY, [0, 1, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.6, 0.4]])}
    old = {"baseline": {"primary": {"same": 0.5}}}
    dev = {"primary": {"same": 0.75}, "tasks": {"same": {"num_examples": 4}}}
    new = old | {"baselines": {"same": {"a regression": 0.8}}, "dev": dev}
    summary = sections.summarise_scores(Report([analysed("run", rows, result=old)]))
    assert summary.tables[0].rows[0][:3] == ["same", "0.750", "0.500"]
    assert summary.notes == []
    both = [analysed(name, rows, result=new) for name in ("a", "b")]
    summary = sections.summarise_scores(Report(both))
    assert summary.tables[0].rows[0][:4] == ["same", "0.750", "0.750", "0.800"]
    assert summary.notes[1].startswith("same: the model (0.750) does not beat a regression (0.800)")
    assert summary.notes[1].endswith(" · b")


def test_comparisons_need_the_same_rows(analysed):
    right, wrong = np.eye(3), np.eye(3)[[0, 1, 1]]
    first = analysed("first", {"t": (CLASSES, [0, 1, 2], right)})
    same = analysed("same", {"t": (CLASSES, [0, 1, 2], wrong)})
    fewer = analysed("fewer", {"t": (CLASSES, [0, 1], wrong[:2])})
    other = analysed("other", {"t": (SCORE, [0, 1, 2], [0, 1, 2])})
    section = sections.compare_runs(Report([first, same, fewer, other]))
    rows = {row[1]: row[3:6] for row in section.tables[0].rows}
    assert rows["same"] == ["1.000", "0.667", f"{MINUS}0.333"]
    assert rows["other"] == ["none", "1.000", "none"]
    ends = {row[1]: row[6:] for row in section.tables[0].rows}
    assert ends["same"] == [f"{MINUS}1.000", "0.000"]
    assert ends["fewer"] == ends["other"] == ["none", "none"]


def test_temperatures(analysed):
    given = [[0.8, 0.2], [0.2, 0.8]] * 6
    run = analysed("run", {"t": (BINARY, [1, 0] * 2 + [0, 1] * 4, given)})
    (row,) = sections.show_calibration(Report([run])).tables[0].rows
    assert row[2].endswith(" (not saved)")
    scaled = replace(run.answers["t"], scaling=Scaling(2.0))
    report = Report([replace(run, answers={"t": scaled})])
    (row,) = sections.show_calibration(report).tables[0].rows
    assert row[2] == "2.00 (saved)"
    # If all rows are of one group, no fold has rows to fit on, and nothing changes.
    grouped = replace(scaled.dataset, find_groups=lambda: np.zeros(12, np.uint64))
    report = Report([replace(run, answers={"t": replace(scaled, dataset=grouped)})])
    (row,) = sections.show_calibration(report).tables[0].rows
    assert row[3:5] == row[5:]


def test_different_settings(analysed):
    rows = {"t": (CLASSES, [0], np.eye(3)[:1])}
    first, second = analysed("a", rows), analysed("b", rows)
    assert sections.different_settings(Report([first, second])) == {}
    changed = replace(second, config=second.config.model_copy(update={"seed": 9}))
    found = sections.different_settings(Report([first, changed]))
    assert found == {"seed": [str(first.config.seed), "9"]}


# --- reading and writing -----------------------------------------------------------------


def test_the_log_of_a_run(tmp_path):
    lines = [
        {"event": "scores", "step": 0, "split": "dev", "metrics": {"a": {"accuracy": None}}},
        {
            "event": "losses",
            "step": 5,
            "losses": {"a": 1.5, "b": None},
            "conflicts": {"a,b": {"cosine": -0.5, "share": 1.0}},
        },
        {"event": "scores", "step": 5, "split": "dev", "metrics": {"a": {"accuracy": 0.5}}},
    ]
    path = tmp_path / "metrics.jsonl"
    text = "\n".join(map(json.dumps, lines)) + "\n"
    path.write_text(text + '{"event": "los')  # the process was killed while it wrote
    history = read_history(path)
    assert history.losses["a"] == [(5, 1.5)]
    assert math.isnan(history.losses["b"][0][1])
    assert history.score("dev", "a", "accuracy")[1] == (5, 0.5)
    assert math.isnan(history.score("dev", "a", "accuracy")[0][1])
    assert history.conflicts == {("a", "b"): {"cosine": [(5, -0.5)], "share": [(5, 1.0)]}}
    assert history.score("train", "a", "accuracy") == []
    path.write_text("nonsense\n" + text)
    with pytest.raises(RunError, match="line 1: this is not a log that plait wrote"):
        read_history(path)
    assert read_history(tmp_path / "none").losses == {}


def test_numbers():
    values = (0.5, -0.25, -0.0001, math.nan, None)
    assert [number(v) for v in values] == ["0.500", f"{MINUS}0.250", "0.000", "none", "none"]
    values = (0.1, -0.1, 0.0, 0.0001, 1.0, math.nan)
    written = ["+0.100", f"{MINUS}0.100", "0.000", "0.000", "+1.000", "none"]
    assert [signed(v) for v in values] == written
    assert [percent(v) for v in (0.256, math.nan)] == ["26%", "none"]


# --- figures -----------------------------------------------------------------------------


def test_no_two_series_look_the_same():
    assert len({(series_colour(i), series_marker(i)) for i in range(40)}) == 40
    assert len({light for light, _ in COLOURS.values()}) == len(COLOURS)


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    a, b = sorted((luminance(one), luminance(other)))
    return (b + 0.05) / (a + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(dark):
    """At least what WCAG asks of text (4.5) and of graphics (3)."""
    paper = COLOURS["paper"][dark]
    assert contrast(COLOURS["ink"][dark], paper) > 7
    assert contrast(COLOURS["muted"][dark], paper) > 4.5
    assert contrast(COLOURS["series-0"][dark], paper) > 4.5  # links
    for place in range(NUM_SERIES):
        assert contrast(COLOURS[f"series-{place}"][dark], paper) > 3
    fill, share = COLOURS["fill"][dark], plots.STRONGEST
    strongest = "#" + "".join(
        f"{round(share * int(fill[i : i + 2], 16) + (1 - share) * int(paper[i : i + 2], 16)):02x}"
        for i in (1, 3, 5)
    )
    assert contrast(COLOURS["ink"][dark], strongest) > 4.5


@pytest.mark.parametrize(
    ("metric", "values", "limits"),
    [
        ("accuracy", [0.4, 1.0], (0.37, 1.0)),
        ("pearson", [-1.0, 1.0], (-1.0, 1.0)),
        ("mae", [0.0, 3.0], (0.0, 3.15)),
    ],
)
def test_an_axis_ends_at_the_best_value(metric, values, limits):
    figure = Figure()
    plots.curves(figure, [Series("a", list(enumerate(values)), 0)], metric, metric_span(metric))
    assert figure.axes[0].get_ylim() == pytest.approx(limits)


def test_classes_are_numbered_unless_they_are_numbers():
    for labels, rows, columns in (
        (["1", "2"], ["1", "2"], ["1", "2"]),
        (["bad", "good"], ["0 bad", "1 good"], ["0", "1"]),
    ):
        figure = Figure()
        plots.confusion(figure, [[3, 1], [0, 2]], labels)
        axes = figure.axes[0]
        assert [tick.get_text() for tick in axes.get_yticklabels()] == rows
        assert [tick.get_text() for tick in axes.get_xticklabels()] == columns
