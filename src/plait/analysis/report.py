"""Write a training report about one run or several: one HTML file that works offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait import __version__
from plait.analysis.page import Report
from plait.analysis.plots import css_variables
from plait.analysis.runs import read_runs
from plait.analysis.sections import SECTIONS
from plait.data.storage import write_text
from plait.errors import RunError, UsageError, counted
from plait.inference.ensemble import is_ensemble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from plait.analysis.runs import AnalysedRun
    from plait.inference.predictor import Progress

MARK = "<!-- plait report -->"
"""Marks a file that may be overwritten."""


def write_report(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    data: str | None = None,
    alone: str | Path | None = None,
    device: str = "auto",
    note: Callable[[str], None] = lambda _: None,
    reading: Progress | None = None,
    answering: Progress | None = None,
    progress: Progress = lambda *_: None,
) -> Path:
    """Write a report about runs or ensembles, compared with the first one; return its path.

    `alone` is a folder with a single-task run per task, named as the task.
    """
    target = Path(out)
    check_target(target)
    how: dict[str, Any] = {"data": data, "device": device, "note": note}
    how |= {"reading": reading, "answering": answering}
    found = read_runs([Path(run) for run in runs], **how)
    singles: dict[str, AnalysedRun] = {}
    if alone is not None:
        folders = find_alone(Path(alone), [task for run in found for task in run.config.tasks])
        singles = dict(zip(folders, read_runs(list(folders.values()), **how), strict=True))
    text = render(Report(found, singles, progress))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, text)
    return target


def check_target(path: Path) -> None:
    """Refuse to overwrite anything but a report, before any slow work begins."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file, such as {path}/report.html")
    if path.exists() and not is_report(path):
        raise UsageError(
            f"{path} exists and is not a plait report, so it is not overwritten; choose another "
            "--out"
        )


def is_report(path: Path) -> bool:
    """Return whether a file is a report that plait wrote."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK.encode() in file.read(200)


def find_alone(folder: Path, tasks: Iterable[str]) -> dict[str, Path]:
    """Return the single-task runs in a folder that `plait train --each-alone` wrote."""
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder} with single-task runs")
    found = {
        task: folder / task
        for task in dict.fromkeys(tasks)
        if (folder / task / "recipe.toml").is_file() or is_ensemble(folder / task)
    }
    if not found:
        raise RunError(
            f"{folder} has no run of {', '.join(dict.fromkeys(tasks))}; "
            f"`plait train RECIPE --each-alone --out {folder}` trains one per task"
        )
    return found


def render(report: Report) -> str:
    """Return the page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("plait.analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = [run.name for run in report.runs]
    about = f"{counted(len(report.tasks), 'task')}: {', '.join(report.tasks)}."
    return environment.get_template("report.html.j2").render(
        mark=MARK,
        version=__version__,
        title=f"Training report: {names[0] if len(names) == 1 else f'{len(names)} runs'}",
        about=about if report.is_single else f"Runs: {', '.join(names)}. {about}",
        sections=[found for make in SECTIONS if (found := make(report)) is not None],
        css_variables=css_variables,
    )
