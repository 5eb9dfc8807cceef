"""The model card of a run or an ensemble: a page in Markdown, made from the folder's files.

card.md             the card; what the user writes outside the two markers is kept
card-TIME.md        a previous card without markers, which was replaced
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.config import read_resolved
from plait.data.storage import write_text
from plait.errors import PlaitError, RunError, counted, show_controls
from plait.inference.baselines import best_in, list_shortfalls
from plait.inference.calibration import FILE as CALIBRATION
from plait.inference.calibration import take_scalings
from plait.inference.folders import RunFolder
from plait.inference.intervals import wilson_bound
from plait.tasks.metrics import format_number, primary_metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plait.config import FileConfig, RunConfig, TaskConfig

AUDIT = "audit.json"
BEGIN = "<!-- plait: begin. Everything up to the end marker is replaced; write outside of it. -->"
END = "<!-- plait: end -->"
MAX_LABELS = 8
"""Labels of a task that are listed."""

# --- the file ----------------------------------------------------------------------------


def write_card(folder: Path) -> Path | None:
    """Write the card of a folder; text outside the markers is kept.

    A card without markers, from an earlier version, is renamed to card-TIME.md; its path is
    returned.
    """
    path, text, aside = RunFolder(folder).card, f"{BEGIN}\n\n{make_card(folder)}\n{END}\n", None
    if path.is_file():
        before, begin, rest = path.read_bytes().partition(BEGIN.encode())
        _, end, after = rest.partition(f"{END}\n".encode())
        try:
            if not (begin and end):
                raise ValueError("no markers")
            text = before.decode() + text + after.decode()
        except ValueError:  # no markers, or saved in another encoding than UTF-8
            aside = folder / f"card-{datetime.now():%Y%m%d-%H%M%S}.md"
            aside.write_bytes(path.read_bytes())  # a copy: there is a card at any time
    write_text(path, text)
    return aside


def update_card(folder: Path) -> None:
    """Write the card again after a change of the folder, if there is one or the run is finished.

    The card stays as it is if another file of the folder is damaged.
    """
    run = RunFolder(folder)
    if run.card.is_file() or run.scores.is_file():
        with suppress(PlaitError):
            write_card(folder)


# --- the text ----------------------------------------------------------------------------


def make_card(folder: Path, using: str | None = None) -> str:
    """Return the card of a run, an average of runs or an ensemble, without markers.

    `using` takes the place of the last section, which explains how to use the folder.
    """
    from jinja2 import Environment, PackageLoader

    members, how, listed = _read_members(folder)
    first = members[0] if members else folder
    config = read_resolved(first / "recipe.toml")
    info, result = _read(first / "run.json"), _read(folder / "scores.json")
    found = _read_found(folder, config)
    calibrated, audit = found[CALIBRATION].get("tasks", {}), found[AUDIT]
    settings, dev = audit.get("settings", {}), result.get("dev", {})
    example, task = next(iter(config.tasks.items()))
    environment = Environment(
        loader=PackageLoader("plait.inference"), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "basename": lambda path: f"`{Path(path).name}`",
        "cell": lambda text: text.replace("|", "\\|"),
        "number": format_number,
        "plain": _plain,
    }
    text = environment.get_template("card.md.j2").render(
        name=result.get("recipe", folder.resolve().name) if members else config.name,
        config=config,
        counted=counted,
        members=listed,
        how=how,
        info=info,
        result=result,
        encoder=info.get("encoder", {}),
        tasks=[_task_row(name, task) for name, task in config.tasks.items()],
        dev=dev,
        is_begun=info and not result and (folder / "checkpoint.safetensors").exists(),
        scores=_score_rows(config, result),
        shortfalls=list_shortfalls(result, config.tasks, format_number),
        data=list(_data_rows(config, info)),
        data_notes=list(_data_notes(config, info)),
        stages=_stage_rows(config),
        weakest=list(_weakest(dev.get("tasks", {}))),
        uncalibrated=[n for n, t in config.tasks.items() if t.labels and n not in calibrated],
        is_audited=audit and (settings.get("english", True) or settings.get("own")),
        is_english=settings.get("english"),
        calibration=_table([{"task": name, **row} for name, row in calibrated.items()]),
        split=found[CALIBRATION].get("split"),
        source=found[CALIBRATION].get("source"),
        audit=_table(audit.get("summary")),
        using=using,
        example=example,
        texts=['"One text."', '"Another text."'] if task.is_pair else ['"One text."'],
    )
    return show_controls(re.sub(r"\n{3,}", "\n\n", text).strip()) + "\n"


def _read_members(folder: Path) -> tuple[list[Path], str, list[list[str]]]:
    """Return the members of an ensemble, how they are combined, and a table row for each."""
    path = folder / "ensemble.toml"
    if not path.is_file():
        return [], "", []
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    members, rows = [folder / member for member in table["members"]], []
    for written, member in zip(table["members"], members, strict=True):
        if not (member / "recipe.toml").is_file():
            raise RunError(f"{path} names a member {member}, which is not a run")
        encoder = _read(member / "run.json").get("encoder", {})
        rows.append([f"[{member.name}]({written}/card.md)", str(encoder.get("origin", ""))])
    how = {"mode": "by vote (numbers by their median)", "mean": "by their mean"}
    return members, how[table["how"]], rows


def _task_row(name: str, task: TaskConfig) -> list[str]:
    inputs = " and ".join(f"`{column}`" for column in task.text)
    inputs += ", encoded apart" if task.inputs == "apart" else ""
    answers = f"a number from {task.range[0]:g} to {task.range[1]:g}"
    if task.labels:
        more = len(task.labels) - MAX_LABELS
        answers = ", ".join(map(_plain, task.labels[:MAX_LABELS]))
        answers += f" and {more} more" if more > 0 else ""
        answers = f"any number of {answers}" if task.kind.form == "independent" else answers
    return [name, task.kind.name, inputs, answers]


def _score_rows(config: RunConfig, result: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for name, value in result.get("dev", {}).get("primary", {}).items():
        kind = config.tasks[name].kind
        metric = primary_metric(kind, config.tasks[name].metric)
        count = result["dev"]["tasks"][name]["num_examples"]
        bound = ""
        if metric == "accuracy" and value is not None and count:
            bound = format_number(float(wilson_bound(value * count, count)))
        best, beaten = best_in(result, name, kind) or ("none", None)
        numbers = [format_number(beaten), format_number(value), bound]
        rows.append([name, metric, best, *numbers, f"{count:,}"])
    return rows


def _data_rows(config: RunConfig, info: Mapping[str, Any]) -> Iterator[list[str]]:
    counts = info.get("data", {})

    def row(name: str, split: str, title: str, files: Sequence[FileConfig], licence: str) -> Any:
        found = counts.get(split, {}).get(name)
        rows = f"{found['rows']:,}" if found else "unknown"
        return [name, title, ", ".join(map(_file, files)), rows, licence or "unknown"]

    for name, task in config.tasks.items():
        splits = {"train": task.train, "unlabelled": task.unlabelled, "dev": task.dev_files}
        for split, files in splits.items():
            if files or counts.get(split, {}).get(name):
                yield row(name, split, split, files, task.licence)
    for name, texts in config.texts.items():
        yield row(name, "texts", "pre-training texts", texts.files, texts.licence)


def _file(file: FileConfig) -> str:
    chosen = [
        f"{column} is {' or '.join(map(str, values))}"
        for column, values in (file.where or {}).items()
    ]
    return f"`{Path(file.path).name}`" + (f" where {' and '.join(chosen)}" if chosen else "")


def _data_notes(config: RunConfig, info: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was left out of the training data, and what was added to it."""
    if config.data.folds:
        part = f"part {config.data.fold} of {config.data.folds} of the training rows"
        yield (
            f"{part[0].upper()}{part[1:]} was left out of training."
            if config.data.leave_out
            else f"The dev set is {part}; the dev files were not read."
        )
    for split in ("train", "unlabelled", "texts"):
        for name, facts in info.get("data", {}).get(split, {}).items():
            for key, what in (("rows", "training row"), ("texts", "pre-training text")):
                if number := facts.get(f"held_out_{key}"):
                    yield f"{name}: {counted(number, what)} left out, as dev or test has the same."
            for made in facts.get("made", ()):
                yield f"{name}: {made}."


def _stage_rows(config: RunConfig) -> list[list[str]]:
    rows = []
    for name in config.stages:
        stage = config.stage_config(name)
        methods = [stage.schedule, stage.aggregator, stage.weighting, *stage.regularizers]
        names = ", ".join(method["name"] for method in methods)
        numbers = [f"{stage.epochs}", f"{stage.batch_size}", f"{stage.lr:g}"]
        tasks = ", ".join(stage.tasks or config.tasks)
        rows.append([name, stage.kind["name"], tasks, *numbers, names])
    return rows


def _weakest(tasks: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each task's class or label of the lowest recall, unless every recall is 1."""
    for name, scores in tasks.items():
        if weak := [e for e in scores["per_class"] if e["support"] and e["recall"] < 1]:
            yield name, min(weak, key=lambda entry: entry["recall"])


# --- results of other commands -----------------------------------------------------------


def _read_found(folder: Path, config: RunConfig) -> dict[str, dict[str, Any]]:
    """Read the calibration and the audit, unless they belong to another model."""
    found = {name: _read(folder / name) for name in (CALIBRATION, AUDIT)}
    weights = folder / "model.safetensors"
    if any("model" in values for values in found.values()) and weights.is_file():
        with weights.open("rb") as file:
            now = hashlib.file_digest(file, "sha256").hexdigest()
        found = {name: v if v.get("model", now) == now else {} for name, v in found.items()}
    if found[CALIBRATION]:  # refuse what loading the model would refuse
        take_scalings(folder / CALIBRATION, found[CALIBRATION], config.tasks)
    return found


_HEADS = {"count": "texts", "mean_change": "moved", "verdict": "result"}
"""Names of the columns of `plait audit`."""


def _table(rows: Any) -> tuple[list[str], list[list[str]]] | None:
    """Return head and rows of a list of JSON objects, inner ones as "after ece"; else None."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    flat = []
    for row in rows:
        cells: dict[str, Any] = {}
        for key, value in row.items():
            inner = value.items() if isinstance(value, dict) else [("", value)]
            cells |= {f"{key} {name}".strip(): v for name, v in inner if not isinstance(v, list)}
        flat.append(cells)
    names = list(dict.fromkeys(key for row in flat for key in row))
    head = [_HEADS.get(name, name.replace("_", " ")) for name in names]
    return (head, [[_cell(row.get(name)) for name in names] for row in flat]) if names else None


def _cell(value: Any) -> str:
    return format_number(value) if isinstance(value, float) else "" if value is None else str(value)


def _plain(text: str) -> str:
    """Escape Markdown in a label."""
    return re.sub(r"[<`\[]", r"\\\g<0>", " ".join(text.split()))


def _read(path: Path) -> dict[str, Any]:
    """Read a JSON file of the folder; return an empty dict if it does not exist."""
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    return values if isinstance(values, dict) else {}
