"""Runs become one page that stands by itself: no network, no scripts, pictures inside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plait import __version__
from plait.analysis.report.markup import MARK, Html, is_report, join, shorten, tag
from plait.analysis.report.plots import Easel
from plait.analysis.report.sections import (
    answers,
    disagreement,
    glance,
    learning,
    making,
    sharing,
    sureness,
    versus,
)
from plait.analysis.report.sections.material import Material
from plait.analysis.report.style import variables
from plait.analysis.report.subjects import Subject, read_subjects
from plait.data.storage import write_text
from plait.errors import RunError, UsageError, counted
from plait.inference.ensemble import is_ensemble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.inference.predictor import Progress

SECTIONS = (glance, versus, learning, answers, sureness, disagreement, sharing, making)
"""In the order of the page."""

STYLE = Path(__file__).with_name("page.css")


def write_report(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    data: str | None = None,
    pictures: str | Path | None = None,
    alone: str | Path | None = None,
    device: str = "auto",
    note: Callable[[str], None] = lambda _: None,
    begin: Callable[[str], None] = lambda _: None,
    reading: Progress | None = None,
    answering: Progress | None = None,
    comparing: Progress = lambda *_: None,
) -> Path:
    """Write a page about runs, or ensembles, side by side; return its path.

    `alone` is a folder with a run for each task by itself, named as the task. `begin` hears
    what is under way, the others how far it is.
    """
    target, folder = Path(out), None if pictures is None else Path(pictures)
    check_target(target)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; choose another --pictures")
    listeners = {"reading": reading, "answering": answering}
    subjects = read_subjects(
        [Path(run) for run in runs], data=data, device=device, note=note, **listeners
    )
    singles = {}
    if alone is not None:
        found = find_alone(Path(alone), subjects)
        read = read_subjects(list(found.values()), data=data, device=device, note=note, **listeners)
        singles = dict(zip(found, read, strict=True))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    easel = Easel(folder, lambda name: begin(f"drawing {name}"))
    material = Material(subjects, easel, singles, comparing)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, render(material))
    return target


def check_target(path: Path) -> None:
    """Refuse a file that is not a report already, before anything slow begins."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file with --out, such as {path}/report.html")
    if path.exists() and not is_report(path):
        raise UsageError(
            f"{path} exists already and is no report of plait's, so it is not overwritten; "
            "choose another --out"
        )


def find_alone(folder: Path, subjects: Sequence[Subject]) -> dict[str, Path]:
    """Return the single tasks' runs in a folder as `plait train --each-alone` leaves it."""
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder} with a run for each task")
    tasks = dict.fromkeys(task for subject in subjects for task in subject.config.tasks)
    found = {
        task: folder / task
        for task in tasks
        if (folder / task / "recipe.toml").is_file() or is_ensemble(folder / task)
    }
    if not found:
        raise RunError(
            f"{folder} holds no run of {', '.join(tasks)}; `plait train RECIPE --each-alone --out "
            f"{folder}` makes one for each task"
        )
    return found


def render(material: Material) -> str:
    """Return the whole page."""
    parts = [part for part in (write.write(material) for write in SECTIONS) if part is not None]
    names = [subject.name for subject in material.subjects]
    title = f"What {names[0]} learned" if len(names) == 1 else f"{len(names)} runs side by side"
    style = STYLE.read_text(encoding="utf-8")
    colours = (
        f":root {{ {variables(dark=False)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {variables(dark=True)} }} }}\n"
        f"@media print {{ :root {{ {variables(dark=False)} }} }}\n"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"plait {__version__}"),
        tag("title", title),
        tag("style", Html(f"\n{colours}{style}")),
    )
    body = tag(
        "body",
        tag("header", tag("h1", title), tag("p", _introduce(material), class_="lead")),
        _contents(material, parts),
        tag("main", "\n", (join(part, "\n") for part in parts)),
        tag("footer", tag("p", f"Written by plait {__version__}.")),
    )
    return f"<!DOCTYPE html>\n{MARK}\n{tag('html', head, body, lang='en')}\n"


def _introduce(material: Material) -> str:
    names = ", ".join(shorten(subject.name, 60) for subject in material.subjects)
    tasks = material.tasks
    told = f"{counted(len(tasks), 'task')}: {', '.join(tasks)}"
    return told + "." if material.is_single else f"{names}. {told}."


def _contents(material: Material, parts: Sequence[Html]) -> Html:
    """Return links to the parts, and to the tasks where they are many."""
    links = []
    for part in parts:
        name = part.split('id="', 1)[1].split('"', 1)[0]
        heading = part.split("<h2>", 1)[1].split("</h2>", 1)[0]
        links.append(tag("li", tag("a", Html(heading), href=f"#{name}")))
        if name == "answers" and len(material.tasks) > 1:
            shown = [task for task in material.tasks if f'id="task-{task}"' in part]
            inner = [tag("li", tag("a", task, href=f"#task-{task}")) for task in shown]
            links[-1] = tag("li", tag("a", Html(heading), href=f"#{name}"), tag("ul", inner))
    return tag("nav", tag("ul", links), aria_label="On this page")
