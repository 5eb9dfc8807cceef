"""Pages: well-formed, alone in the world, the same every time, whatever a run is like."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import plait.analysis.report
from plait.analysis.report import plots
from plait.analysis.report.history import History
from plait.analysis.report.page import render, write_report
from plait.analysis.report.plots import Easel, Series, curves
from plait.analysis.report.sections import glance, sureness
from plait.analysis.report.style import COLOURS, NUM_SERIES, series_marker, series_role
from plait.analysis.report.subjects import read_subjects
from plait.config import read_recipe
from plait.errors import RunError, UsageError
from plait.inference.ensemble import make_ensemble
from plait.inference.fitting.calibrate import calibrate
from plait.tasks import TaskScores
from plait.tasks.metrics import metric_span
from plait.training.average import average_runs
from plait.training.run import train

LINE = [Series("a", [(1, 1.0), (2, 2.0)], 0)]


class Page(HTMLParser):
    """Reads a page, and fails where an element is not closed or an id is there twice."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.headings: list[tuple[str, str]] = []
        self.pictures: list[dict[str, str | None]] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids), "an id is there twice"

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
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if name == "svg" and "role" in attributes:
            self.pictures.append(attributes)
        if name == "a":
            self.links.append(attributes["href"])
        for key in ("src", "srcset", "href", "data", "poster", "action"):
            if name not in ("a", "use") and key in attributes:
                self.loaded.append(attributes[key])


def titles(page: Page, level: str = "h2") -> list[str]:
    return [text for found, text in page.headings if found == level]


def check(text: str) -> Page:
    """Return a page that is well-formed and needs nothing from outside."""
    page = Page(text)
    assert page.loaded == []
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    style = re.search(r"<style>(.*?)</style>", text, re.S)[1]
    assert "@import" not in style
    assert re.findall(r"url\((?!#)", text) == []
    assert "http" not in re.sub(r">[^<]*<", "><", text)  # not in any tag; texts may have some
    for link in page.links:
        assert link.startswith("#")
        assert link[1:] in page.ids
    named = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    assert named <= set(page.ids)
    assert page.pictures
    assert all(picture.get("aria-label") for picture in page.pictures)
    levels = [int(level[1]) for level, _ in page.headings]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels)), "a level is left out"
    return page


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


def test_a_run(run, tmp_path):
    out = write_report([run], tmp_path / "new" / "page.html", pictures=tmp_path / "pictures")
    text = out.read_text(encoding="utf-8")
    page = check(text)
    assert titles(page, "h1") == ["What run learned"]
    assert titles(page) == [
        "At a glance",
        "Learning",
        "What it answers",
        "How sure it is",
        "How it was made",
    ]
    assert titles(page, "h4") == [
        "Who was taken for whom",
        "How well each class is found",
        "How often each class is answered",
        "Surest mistakes",
        "Who was taken for whom",
        "How well each class is found",
        "How often each class is answered",
        "Surest mistakes",
        "True score against answer",
        "How scores are spread",
        "Worst misses",
    ]
    figures = json.loads((run / "scores.json").read_text())["dev"]["primary"]
    for value in figures.values():
        assert f"{value:.3f}".replace("-", "\N{MINUS SIGN}") in page.text
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert {"mood-confusion.svg", "mood-confusion.png", "near-scatter.svg"} <= names
    assert len(names) == 2 * len(page.pictures)
    for path in (tmp_path / "pictures").glob("*.svg"):
        ET.parse(path)


def test_the_same_runs_make_the_same_bytes(run, tmp_path):
    pages = [write_report([run], tmp_path / f"{i}.html").read_bytes() for i in range(2)]
    assert pages[0] == pages[1]
    files = []
    for number in range(2):
        folder = tmp_path / f"pictures{number}"
        folder.mkdir()
        Easel(folder).draw("x", "t", "a", lambda figure: curves(figure, LINE, "y"))
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert files[0] == files[1]
    assert set(files[0]) == {"x.svg", "x.png"}


def test_answers_are_kept(run):
    calls = []

    def answering(task, done, total):
        calls.append(task)

    (first,) = read_subjects([run], answering=answering)
    assert set(calls) == {"mood", "same", "near"}
    assert len(list((run / "answers").iterdir())) == 3
    calls.clear()
    (again,) = read_subjects([run], answering=answering)
    assert calls == []
    for task, found in first.answers.items():
        assert (again.answers[task].answers == found.answers).all()
    kept = next((run / "answers").iterdir())
    kept.write_bytes(b"damaged")
    read_subjects([run], answering=answering)
    assert len(set(calls)) == 1
    expected = json.loads((run / "scores.json").read_text())["dev"]["tasks"]
    for task, scores in first.scores.items():
        assert scores.to_json()["confusion"] == expected[task]["confusion"]


def test_answers_are_asked_for_again_where_a_plugin_has_changed(tiny_recipe, tmp_path):
    plugin, recipe = tmp_path / "mine.py", tiny_recipe("plugged")
    plugin.write_text("RATE = 1\n")
    config = read_recipe(recipe, [f"plugins=[{str(plugin)!r}]", "train.max_steps=1"])
    run = train(config, tmp_path / "plugged-run", data=str(recipe.parent)).folder
    other = make_ensemble([run], tmp_path / "both")
    for place in (run, other):
        plugin.write_text("RATE = 1\n")
        calls: list[str] = []
        for source, num_asked in (("RATE = 1\n", 3), ("RATE = 1\n", 0), ("RATE = 2\n", 3)):
            plugin.write_text(source)
            calls.clear()
            read_subjects([place], answering=lambda task, *_: calls.append(task))  # noqa: B023
            assert len(set(calls)) == num_asked


PCGRAD = [
    "train.aggregator=pcgrad",
    "train.schedule={name='round-robin', together=true}",
    "train.train_limit=8",
]


def test_several_runs_and_runs_alone(run, tiny_recipe, tmp_path):
    recipe = tiny_recipe("other")
    config = read_recipe(recipe, overrides=PCGRAD)
    other = train(config, tmp_path / "other-run", data=str(recipe.parent)).folder
    alone = tmp_path / "alone"
    shutil.copytree(run, alone / "mood")
    calibrate(other)
    out = write_report([run, other], tmp_path / "page.html", alone=alone)
    page = check(out.read_text(encoding="utf-8"))
    assert titles(page, "h1") == ["2 runs side by side"]
    assert titles(page) == [
        "At a glance",
        "Against run",
        "Learning",
        "What they answer",
        "How sure they are",
        "Where tasks disagree",
        "What sharing gained",
        "How they were made",
    ]
    assert "train.aggregator.name" in page.text
    assert "calibrated" in page.text
    assert "mood and same" in titles(page, "h3")


def test_the_best_baseline_stands_beside_the_figure(make_subject, material):
    """A run of an earlier version has the majority class alone."""
    table = {"kind": "binary"}
    answers = ([0, 1, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.6, 0.4]])
    old = {"baseline": {"primary": {"same": 0.5}}}
    new = old | {"baselines": {"same": {"majority class": 0.5, "a regression": 0.75}}}
    first, second = (
        str(glance.write(material(make_subject("run", {"same": (table, *answers)}, result=result))))
        for result in (old, new)
    )
    assert "0.500" in first
    assert "majority class</td>" in first
    assert "does not beat" not in first
    assert "a regression</td>" in second
    assert "<p>same: the model (0.750) does not beat a regression (0.750) on 4 dev rows" in second
    both = [make_subject(name, {"same": (table, *answers)}, result=new) for name in ("a", "b")]
    assert " · b</p>" in str(glance.write(material(*both)))


def test_an_ensemble_and_an_average(run, tiny_run, tmp_path):
    both = make_ensemble([run, tiny_run], tmp_path / "both")
    soup = average_runs([run, tiny_run], tmp_path / "soup").path
    text = write_report([both, soup], tmp_path / "page.html").read_text(encoding="utf-8")
    page = check(text)
    assert "Nothing was logged that could be drawn." in page.text
    assert "average of" in page.text
    assert "members" in page.text


def test_without_dev_files(run, tmp_path):
    data = Path(read_recipe(run / "recipe.toml").data.root)
    hidden = tmp_path / "hidden"
    recipe = (run / "recipe.toml").read_text().replace(str(data), str(hidden))
    (run / "recipe.toml").write_text(recipe)
    notes = []
    text = write_report([run], tmp_path / "page.html", note=notes.append).read_text("utf-8")
    page = check(text)
    assert len(notes) == 1
    assert "cannot be read" in notes[0]
    assert "Who was taken for whom" in page.text  # scores.json has it
    assert "How sure it is" not in page.text
    with pytest.raises(UsageError, match=r"hidden|mood-dev"):
        write_report([run], tmp_path / "page.html", data=str(hidden))
    assert check(write_report([run], tmp_path / "page.html", data=str(data)).read_text("utf-8"))


def test_refusals(run, tmp_path):
    mine, pipe = tmp_path / "mine.html", tmp_path / "pipe"
    os.mkfifo(pipe)
    mine.write_text("<p>mine</p>")
    with pytest.raises(UsageError, match=r"is no report of plait's"):
        write_report([run], mine)
    assert mine.read_text() == "<p>mine</p>"
    with pytest.raises(UsageError, match=r"is no report of plait's"):
        write_report([run], pipe)
    with pytest.raises(UsageError, match="is a folder"):
        write_report([run], tmp_path)
    with pytest.raises(UsageError, match="is named twice"):
        write_report([run, run], tmp_path / "x.html")
    with pytest.raises(UsageError, match="is not a folder"):
        write_report([run], tmp_path / "x.html", pictures=mine)
    with pytest.raises(RunError, match="there is no run at"):
        write_report([tmp_path / "none"], tmp_path / "x.html")
    with pytest.raises(RunError, match="there is no folder"):
        write_report([run], tmp_path / "x.html", alone=tmp_path / "none")
    with pytest.raises(RunError, match="holds no run of mood, same, near"):
        write_report([run], tmp_path / "x.html", alone=tmp_path)
    assert not (tmp_path / "x.html").exists()


# --- whatever a run is like --------------------------------------------------------------

CLASSES = {"kind": "classes", "labels": ["bad", "so-so", "good"]}
SCORE = {"kind": "score", "range": [0, 5]}


def test_text_with_html_in_it(make_subject, material):
    evil = '<script>alert("1")</script> & </td> -->'
    table = {"kind": "classes", "labels": [evil, "#0072b2", '" onload="x'], "about": evil}
    answers = np.eye(3)[[1, 2, 0]] * 0.7 + 0.1
    subject = make_subject(evil, {"t": (table, [0, 1, 2], answers)})
    text = render(material(subject))
    page = check(text)
    assert "<script" not in text
    assert f"What {evil} learned" in page.text
    assert "1 #0072b2" in page.text  # a label is no colour


def test_nan_and_empty(make_subject, material):
    nothing = np.full((4, 3), math.nan)
    constant = np.full(4, 2.5)
    history = History(
        {"n": [(1, math.nan)]}, {"dev": {"n": {"accuracy": [(1, math.nan), (2, math.nan)]}}}
    )
    tasks = {
        "n": (CLASSES, [0, 1, 2, 0], nothing),
        "c": (SCORE, [0, 1, 2, 3], constant),
        "m": (SCORE, [0, 1, 2, 3], np.full(4, math.nan)),
        "missing": (CLASSES, [0, 0, 2, 2], np.eye(3)[[0, 2, 2, 0]]),  # nobody is so-so
        "unscored": (CLASSES,),
    }
    subject = make_subject("run", tasks, history=history, result={"best_step": 2})
    page = check(render(material(subject, make_subject("other", tasks))))
    assert "none" in page.text


def test_nothing_at_all(make_subject, material):
    subject = make_subject("run", {"t": (CLASSES,)}, why_silent="it has no dev files")
    text = render(material(subject))
    page = Page(text)
    assert "There is nothing to show: run: it has no dev files." in page.text
    assert page.pictures == []


def test_fifty_tasks(make_subject, material):
    generator = np.random.default_rng(0)
    tasks, losses, conflicts = {}, {}, {}
    for i in range(50):
        name = f"task-{i}-with-a-name-that-is-long"
        answered = (generator.random(6) * 5, generator.random(6) * 5) if i % 10 == 0 else ()
        tasks[name] = (SCORE, *answered)
        losses[name] = [(1, 1.0), (2, 0.5)]
    names = list(tasks)
    for one, other in pairwise(names):
        conflicts[one, other] = {"cosine": [(1, -0.1)], "share": [(1, generator.random())]}
    subject = make_subject("run", tasks, history=History(losses, {}, conflicts))
    page = check(render(material(subject)))
    assert len([link for link in page.links if link.startswith("#task-")]) == 5
    assert len(page.pictures) == 50 + 5 * 2 + 12
    assert "37 pairs that conflict less are in the table." in page.text


@pytest.mark.parametrize("num_classes", [2, 9, 12, 13, 60])
def test_many_classes(make_subject, material, num_classes):
    labels = [f"{'a label that is rather long ' * 3}{i}" for i in range(num_classes)]
    generator = np.random.default_rng(0)
    true = generator.integers(num_classes, size=200)
    chances = generator.dirichlet(np.ones(num_classes), size=200)
    table = {"kind": "classes", "labels": labels}
    page = check(render(material(make_subject("run", {"t": (table, true, chances)}))))
    assert labels[-1] in page.text


def test_many_rows_are_counted_in_cells(make_subject, material):
    generator = np.random.default_rng(0)
    true = generator.random(5000) * 5
    answered = np.clip(true + generator.normal(size=5000), 0, 5)
    text = render(material(make_subject("run", {"t": (SCORE, true, answered)})))
    assert "counted in a cell" in check(text).text
    assert len(text) < 400_000


def test_a_kind_without_pictures_has_its_figures(make_subject, material):
    """Such as one of several labels at once, which has no confusion matrix."""
    subject = make_subject("run", {"t": (CLASSES,), "s": (SCORE, [1, 2], [2, 1])})
    per_class = [{"label": "x", "precision": 0.5, "recall": 0.25, "f1": 0.333, "support": 4}]
    scores = TaskScores("labels", 8, {"accuracy": 0.625, "micro_f1": 0.4}, per_class, None)
    subject.scores["t"] = scores
    page = check(render(material(subject)))
    assert "labels, 8 dev rows" in page.text
    assert "micro f1" in page.text
    assert "0.625" in page.text


def test_names_are_told_apart(tmp_path, tiny_run):
    runs = [shutil.copytree(tiny_run, tmp_path / name / "run") for name in ("a", "b")]
    assert [s.name for s in read_subjects(runs)] == ["a/run", "b/run"]


# --- pictures ----------------------------------------------------------------------------


def test_no_two_series_look_the_same():
    looks = {(series_role(i), series_marker(i)) for i in range(40)}
    assert len(looks) == 40
    assert len({light for light, _ in COLOURS.values()}) == len(COLOURS)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    a, b = sorted((luminance(one), luminance(other)))
    return (b + 0.05) / (a + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(dark):
    """At least what WCAG asks of text (4.5) and of what pictures are made of (3)."""
    paper = COLOURS["paper"][dark]
    assert contrast(COLOURS["ink"][dark], paper) > 7
    assert contrast(COLOURS["muted"][dark], paper) > 4.5
    for number in range(NUM_SERIES):
        assert contrast(COLOURS[f"series-{number}"][dark], paper) > 3
    fill, ink = COLOURS["fill"][dark], COLOURS["ink"][dark]
    assert contrast(COLOURS["series-0"][dark], paper) > 4.5  # links
    strongest = "#" + "".join(
        f"{round(0.85 * int(fill[i : i + 2], 16) + 0.15 * int(paper[i : i + 2], 16)):02x}"
        for i in (1, 3, 5)
    )
    assert contrast(ink, strongest) > 4.5


@pytest.mark.parametrize(
    ("metric", "values", "limits"),
    [
        ("accuracy", [0.4, 1.0], (0.37, 1.0)),
        ("accuracy", [0.0, 0.5], (0.0, 0.525)),
        ("micro_f1", [1.0, 1.0], (0.945, 1.0)),
        ("pearson", [-1.0, 1.0], (-1.0, 1.0)),
        ("pearson", [-0.5, 0.5], (-0.55, 0.55)),
        ("mae", [0.0, 3.0], (0.0, 3.15)),
    ],
)
def test_an_axis_ends_where_its_figure_does(metric, values, limits):
    """Where no figure could be, matplotlib would leave a margin of a twentieth."""
    figure = Figure()
    line = Series("a", list(enumerate(values, 1)), 0)
    curves(figure, [line], metric, metric_span(metric))
    assert figure.axes[0].get_ylim() == pytest.approx(limits)


def test_a_picture_of_accuracy_ends_at_1(make_subject, material):
    """A task that is always right stands at the top; there is no 1.02 above it."""
    history = History(scores={"dev": {"t": {"accuracy": [(1, 1.0), (2, 1.0)]}}})
    text = render(material(make_subject("run", {"t": (CLASSES,)}, history=history)))
    picture = next(
        part for part in text.split("</svg>") if "accuracy of t over the updates" in part
    )
    marks = [float(mark) for mark in re.findall(r">([01]\.\d+)<", picture)]
    assert max(marks) == 1.0
    assert len(marks) > 2


def test_pictures_of_one_name_are_kept_apart(tmp_path):
    easel = Easel(tmp_path)
    for _ in range(2):
        easel.draw("same/name", "t", "a", lambda figure: curves(figure, LINE, "y"))
    assert len({path.name for path in tmp_path.iterdir()}) == 4


def test_only_plots_knows_matplotlib():
    folder = Path(plait.analysis.report.__file__).parent
    users = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "matplotlib" in ast.unparse(node).split("import")[0] + ast.unparse(node)
    }
    assert users == {"plots.py"}


def test_no_temperature_is_named_that_calibrate_would_not_keep(material, make_subject):
    table = {"kind": "binary"}
    chances = [[0.8, 0.2], [0.2, 0.8]] * 6
    for labels, told in (([0, 1] * 6, "dev tells none"), ([1, 0] * 2 + [0, 1] * 4, "would suit")):
        text = render(material(make_subject("run", {"t": (table, labels, chances)})))
        assert told in text


def test_a_group_has_no_part_in_the_other_half(make_subject, task_answers):
    """All rows belong together, and none tells what suits the others: figures stay as they are."""
    answers = task_answers(
        {"kind": "binary"}, [1, 0] * 2 + [0, 1] * 4, [[0.8, 0.2], [0.2, 0.8]] * 6
    )
    grouped = replace(answers.dataset, find_groups=lambda: np.zeros(12, np.uint64))
    subject = make_subject("run", {"t": ({"kind": "binary"},)})
    _, _, _, *alone = sureness._row("t", subject, answers)
    _, _, _, *together = sureness._row("t", subject, replace(answers, dataset=grouped))
    assert together[:2] == together[2:] == alone[:2] != alone[2:]


@pytest.mark.parametrize(
    ("labels", "rows", "columns"),
    [(["1", "2"], ["1", "2"], ["1", "2"]), (["bad", "good"], ["0 bad", "1 good"], ["0", "1"])],
)
def test_labels_that_are_numbers_have_no_others_beside_them(labels, rows, columns):
    def names(axis):
        return [tick.label1.get_text() for tick in axis.get_major_ticks()]

    matrix, found, shares = Figure(), Figure(), Figure()
    plots.confusion(matrix, [[3, 1], [0, 2]], labels)
    figures = {"precision": 0.5, "recall": 0.5, "f1": 0.5}
    plots.class_figures(found, [{"label": label, **figures} for label in labels])
    plots.class_shares(shares, labels, [4, 2], [3, 3])
    assert names(matrix.axes[0].xaxis) == columns
    for figure in (matrix, found, shares):
        assert names(figure.axes[0].yaxis) == rows
